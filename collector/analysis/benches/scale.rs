//! A report on a billion requests a day, on paper: bytes, workers, time of merging and money, from
//! rates that were measured on one machine, and from models that are merged here.
//!
//! `cargo bench -p stroboscope-analysis --bench scale` prints both tables of the section *Reports
//! on a billion requests a day* of `collector/docs/scale.md`.

use std::time::Instant;

use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::{Segment, SegmentedTrace};

const REQUESTS_PER_DAY: f64 = 1e9;
const SPANS_PER_REQUEST: f64 = 53.0;
/// Stored bytes of a span, of 1.3 million generated requests with 53 spans (benchmark `million`).
const STORED_BYTES: f64 = 22.0;
/// Spans a second that `infer` reads on one processor: 68.9 million in 25.2 s on two of an Intel
/// Xeon (family 6, model 207).
const SPANS_PER_S: f64 = 68.9e6 / 25.2 / 2.0;
/// List prices of a large cloud in 2026, in dollars: a virtual processor for an hour, a gigabyte of
/// objects for a month, and a thousand reads of objects.
const PROCESSOR_HOUR: f64 = 0.045;
const GIGABYTE_MONTH: f64 = 0.023;
const THOUSAND_READS: f64 = 0.000_4;
/// Bytes that one ranged read fetches.
const READ_BYTES: f64 = 8e6;

/// Infers a model of `labels` segments from requests of `labels / 100` kinds. Each request has 90
/// segments of its kind, and ten random ones of any kind.
fn model(labels: usize, random: &mut Random) -> Model {
    let mut model = Model::with_max_labels(labels);
    let kinds = labels.div_ceil(100);
    let ids: Vec<SegmentId> = (0..labels)
        .filter_map(|label| {
            let [task, start, end] = [format!("service:{label}"), "start".into(), "end".into()];
            let labels = model.labels_mut();
            labels.intern(&task.into(), &start.into(), &end.into())
        })
        .collect();
    for request in 0..20 * kinds {
        let first = request % kinds * 100;
        let segments = (0..100).map(|at| {
            let label = match at % 10 {
                0 => random.below(labels),
                _ => (first + at) % labels,
            };
            let start_ns = at as i64 * 1_000 + random.below(1_500) as i64;
            Segment::new(ids[label], start_ns, start_ns + 900)
        });
        let id = TraceId(request as u128 + 1);
        model.observe(&SegmentedTrace::new(
            id,
            None,
            0,
            200_000,
            segments.collect(),
        ));
    }
    model
}

/// Returns the least time in seconds that merging a model takes, of some runs.
fn merge_s(one: &Model, other: &Model) -> f64 {
    let runs = (0..5).map(|_| {
        let mut merged = one.clone();
        let started = Instant::now();
        merged.merge(other);
        started.elapsed().as_secs_f64()
    });
    runs.fold(f64::INFINITY, f64::min)
}

/// Pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

fn main() {
    println!(
        "| bursts | spans a day | stored a day | processors for `infer` in 10 min | compute | storage of 30 days a month | reads |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, duty) in [
        ("always on", 1.0),
        ("4 ms every 32 ms", 0.125),
        ("1 ms every 1,024 ms", 1.0 / 1_024.0),
    ] {
        let spans = REQUESTS_PER_DAY * SPANS_PER_REQUEST * duty;
        let bytes = spans * STORED_BYTES;
        let processor_s = spans / SPANS_PER_S;
        println!(
            "| {name} | {:.2} billion | {:.1} GB | {:.0} | ${:.2} | ${:.2} | ${:.3} |",
            spans / 1e9,
            bytes / 1e9,
            (processor_s / 600.0).ceil(),
            processor_s / 3_600.0 * PROCESSOR_HOUR,
            30.0 * bytes / 1e9 * GIGABYTE_MONTH,
            bytes / READ_BYTES / 1_000.0 * THOUSAND_READS,
        );
    }
    println!("\n| segments | model | one merge | 64 parts by one driver | in a tree of 8 |");
    println!("|---|---|---|---|---|");
    let mut random = Random(3);
    for labels in [100, 400, 1_600, 4_000] {
        let (one, other) = (model(labels, &mut random), model(labels, &mut random));
        let mut merged = one.clone();
        merged.merge(&other);
        assert_eq!(merged.traces(), one.traces() + other.traces());
        let merge_s = merge_s(&one, &other);
        // Eight drivers merge 8 parts each at the same time, and one merges their results.
        println!(
            "| {labels} | {:.2} MB | {:.2} ms | {:.0} ms | {:.0} ms |",
            one.bytes() as f64 / 1e6,
            1e3 * merge_s,
            64.0 * 1e3 * merge_s,
            16.0 * 1e3 * merge_s
        );
    }
}
