//! Measures the traces per second that one core observes, compared with a naive double loop in the
//! same run.
//!
//! Run: `cargo bench -p stroboscope-analysis --bench observe`. Each figure is the median of several
//! rounds. The traces are random trees of nested intervals with jitter, so some pairs are ordered,
//! some overlap, and some occur in either order. The bench also times the steps after observing:
//! the relations from the counts, and the critical path and slack of one trace.

use std::hint::black_box;
use std::time::Instant;
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::{ClockBounds, ClockId, Segment, SegmentedTrace, Segmenter};

const ROUNDS: usize = 7;
const TRACES: usize = 2000;

fn main() {
    // `cargo test --benches` also runs this program, without `--bench`. It has nothing to test
    // then.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!(
        "segments  labels   observe/s     naive/s   ratio   whole us/s   inexact/s   relations   critical path/s"
    );
    for (segments, labels) in [
        (20, 20),
        (20, 200),
        (40, 40),
        (100, 100),
        (100, 200),
        (100, 1000),
        (200, 200),
    ] {
        measure(segments, labels);
    }
    measure_segmentation();
    for segments in [20, 100, 200] {
        measure_ordered_paths(segments);
    }
}

/// Measures requests of stages, each with five parallel segments. As in a real page, most pairs of
/// segments are ordered.
fn measure_ordered_paths(segments: usize) {
    let mut state = 88_172_645_463_325_252;
    let mut trace = || {
        let mut start_ns = 1_700_000_000_000_000_000;
        let mut all = Vec::new();
        for stage in 0..segments / 5 {
            let ends = (0..5).map(|lane| {
                let end_ns = start_ns + 1 + (next(&mut state) % 1_000_000) as i64;
                all.push(Segment::new(
                    SegmentId(stage as u32 * 5 + lane),
                    start_ns,
                    end_ns,
                ));
                end_ns
            });
            start_ns = ends.max().unwrap_or(start_ns);
        }
        SegmentedTrace::new(TraceId(1), None, i64::MAX, i64::MIN, all)
    };
    let traces: Vec<_> = (0..TRACES).map(|_| trace()).collect();
    let mut model = model(segments);
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    let seconds = median(|| {
        traces
            .iter()
            .for_each(|trace| drop(black_box(analyse(trace, &relations))));
    });
    println!(
        "critical path and slack of {segments} segments, {} relations: {:.0} traces/s",
        relations.all_happens_before().len(),
        TRACES as f64 / seconds
    );
}

/// Measures the segmentation of a request of 40 spans on four levels.
fn measure_segmentation() {
    let span = |span_id: u64| SpanRecord {
        span_id,
        parent_id: span_id.div_ceil(4) * u64::from(span_id > 1),
        service: format!("service{}", span_id % 7).into(),
        name: format!("GET /operation/{}", span_id % 5).into(),
        host: "host".into(),
        process: 1,
        start_ns: span_id as i64 * 1000,
        end_ns: 200_000 - span_id.div_ceil(4) as i64 * 500,
        flags: SpanFlags(0),
        events: Vec::new(),
    };
    let records = TraceRecords {
        spans: (1..=40).map(span).collect(),
        ..TraceRecords::default()
    };
    let mut labels = Labels::default();
    let mut segmenter = Segmenter::default();
    let seconds = median(|| {
        (0..TRACES).for_each(|_| drop(black_box(segmenter.segment(&records, &mut labels))));
    });
    println!(
        "cutting 40 spans into {} segments: {:.0} traces/s",
        labels.len(),
        TRACES as f64 / seconds
    );
}

fn measure(segments: usize, label_count: usize) {
    let mut state = 88_172_645_463_325_252;
    let traces: Vec<_> = (0..TRACES)
        .map(|_| random_trace(&mut state, segments, label_count))
        .collect();
    let mut model = model(label_count);
    let observe_s = median(|| {
        model = self::model(label_count);
        traces.iter().for_each(|trace| model.observe(trace));
    });
    let mut naive = Naive::new(label_count);
    let naive_s = median(|| {
        naive = Naive::new(label_count);
        traces.iter().for_each(|trace| naive.observe(trace));
    });
    assert!(
        naive.agrees(&model),
        "the kernel and the double loop disagree"
    );
    let inexact: Vec<SegmentedTrace> = traces.iter().map(with_two_clocks).collect();
    let inexact_s = median(|| {
        let mut model = self::model(label_count);
        inexact.iter().for_each(|trace| model.observe(trace));
    });
    let whole: Vec<SegmentedTrace> = traces.iter().map(in_whole_microseconds).collect();
    let whole_s = median(|| {
        let mut model = self::model(label_count);
        whole.iter().for_each(|trace| model.observe(trace));
    });
    let relations_s = median(|| drop(black_box(model.relations(0.0))));
    let relations = model.relations(0.01);
    let path_s = median(|| {
        traces
            .iter()
            .for_each(|trace| drop(black_box(analyse(trace, &relations))));
    });
    let per_second = |seconds: f64| TRACES as f64 / seconds;
    println!(
        "{segments:>8} {label_count:>7} {:>11.0} {:>11.0} {:>7.1} {:>11.0} {:>11.0} {:>8.1} ms {:>17.0}",
        per_second(observe_s),
        per_second(naive_s),
        naive_s / observe_s,
        per_second(whole_s),
        per_second(inexact_s),
        relations_s * 1e3,
        per_second(path_s),
    );
}

/// Returns the trace as two hosts with inexact clocks would record it.
fn with_two_clocks(trace: &SegmentedTrace) -> SegmentedTrace {
    let mut trace = trace.clone();
    for (index, segment) in trace.segments.iter_mut().enumerate() {
        let clock = ClockId(index as u16 % 2);
        (segment.start_clock, segment.end_clock) = (clock, clock);
    }
    trace.clocks = vec![ClockBounds::within(100_000), ClockBounds::within(200_000)];
    trace
}

/// Returns the trace as two hosts with a resolution of one microsecond would record it.
fn in_whole_microseconds(trace: &SegmentedTrace) -> SegmentedTrace {
    let mut trace = with_two_clocks(trace);
    for segment in &mut trace.segments {
        segment.start_ns -= segment.start_ns.rem_euclid(1000);
        segment.end_ns -= segment.end_ns.rem_euclid(1000);
    }
    let clocks = vec![
        ClockBounds {
            error_ns: 0,
            tick_ns: 1000,
            island: 0
        };
        2
    ];
    trace = SegmentedTrace::new(trace.id, None, trace.start_ns, trace.end_ns, trace.segments);
    SegmentedTrace { clocks, ..trace }
}

fn median(mut work: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[ROUNDS / 2]
}

fn model(label_count: usize) -> Model {
    let mut labels = Labels::default();
    for number in 0..label_count {
        labels.intern(
            &format!("task{number}").into(),
            &"start".into(),
            &"end".into(),
        );
    }
    let mut model = Model::new();
    *model.labels_mut() = labels;
    model
}

/// Naive double loop, with one counter per pair and kind. It is correct only if no label repeats
/// within a trace, as here.
struct Naive {
    labels: usize,
    counts: Vec<[u64; 3]>,
}

impl Naive {
    fn new(labels: usize) -> Naive {
        Naive {
            labels,
            counts: vec![[0; 3]; labels * labels],
        }
    }

    fn observe(&mut self, trace: &SegmentedTrace) {
        for (i, a) in trace.segments.iter().enumerate() {
            for (j, b) in trace.segments.iter().enumerate() {
                if i == j {
                    continue;
                }
                let counts = &mut self.counts[a.id.index() * self.labels + b.id.index()];
                counts[0] += 1;
                if b.start_ns < a.end_ns {
                    counts[1] += 1;
                    if a.start_ns < b.end_ns {
                        counts[2] += 1;
                    }
                }
            }
        }
    }

    fn agrees(&self, model: &Model) -> bool {
        let seen = self.counts.iter().filter(|counts| counts[0] > 0).count();
        let pairs = model.pairs();
        seen == pairs.len()
            && pairs.iter().all(|p| {
                let counts = self.counts[p.a.index() * self.labels + p.b.index()];
                counts == [p.cooccurrences, p.contradictions, p.overlaps]
            })
    }
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns a random tree of nested intervals over `segments` of the labels.
fn random_trace(state: &mut u64, segments: usize, labels: usize) -> SegmentedTrace {
    let mut ids: Vec<u32> = (0..labels as u32).collect();
    for i in (1..labels).rev() {
        ids.swap(i, (next(state) % (i as u64 + 1)) as usize);
    }
    let origin_ns = 1_700_000_000_000_000_000 + (next(state) % 1_000_000_000_000) as i64;
    let mut intervals: Vec<(i64, i64)> = vec![(origin_ns, origin_ns + 100_000_000)];
    for _ in 1..segments {
        let (from_ns, to_ns) = intervals[(next(state) % intervals.len() as u64) as usize];
        let length_ns = (to_ns - from_ns).max(2) as u64;
        let start_ns = from_ns + (next(state) % (length_ns / 2 + 1)) as i64;
        let rest_ns = (to_ns - start_ns).max(2) as u64;
        intervals.push((start_ns, start_ns + 1 + (next(state) % rest_ns) as i64));
    }
    let segment = |(id, (start_ns, end_ns)): (&u32, (i64, i64))| {
        Segment::new(SegmentId(*id), start_ns, end_ns)
    };
    let segments = ids.iter().zip(intervals).map(segment).collect();
    SegmentedTrace::new(TraceId(1), None, i64::MAX, i64::MIN, segments)
}
