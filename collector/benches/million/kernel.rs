//! Compares the inference kernel alone with the naive double loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{PointEvent, SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::{SegmentedTrace, Segmenter};

use stroboscope_fixtures::workload::{self, Request};

const REQUESTS: u64 = 20_000;
const ROUNDS: usize = 5;

/// Prints how many requests per second one core observes, with the kernel and with the double loop.
/// The results of both must agree.
pub(crate) fn compare(seed: u64) {
    let mut model = Model::new();
    let mut segmenter = Segmenter::default();
    let mut names = HashMap::new();
    let traces: Vec<SegmentedTrace> = (0..REQUESTS)
        .map(|number| {
            let records = records(&workload::request(seed, number), &mut names);
            segmenter.segment(&records, model.labels_mut()).0
        })
        .collect();
    let segments = traces
        .iter()
        .map(|trace| trace.segments.len())
        .sum::<usize>() as f64
        / REQUESTS as f64;
    let labels = model.labels().clone();
    let fresh = || {
        let mut model = Model::new();
        *model.labels_mut() = labels.clone();
        model
    };
    let mut counted = fresh();
    let kernel = fastest(|| {
        counted = fresh();
        traces.iter().for_each(|trace| counted.observe(trace));
    });
    let mut naive = Naive::new(labels.len());
    let double_loop = fastest(|| {
        naive = Naive::new(labels.len());
        traces.iter().for_each(|trace| naive.observe(trace));
    });
    assert!(
        naive.agrees(&counted, &traces),
        "the kernel and the double loop disagree"
    );
    println!(
        "kernel, one core, {segments:.1} segments of {} labels: {:.0} requests/s with counts, naive double loop {:.0}: {:.1} \
         times as fast",
        labels.len(),
        REQUESTS as f64 / kernel,
        REQUESTS as f64 / double_loop,
        double_loop / kernel
    );
}

fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}

fn records(request: &Request, names: &mut HashMap<String, Arc<str>>) -> TraceRecords {
    let mut text = |text: &str| {
        names
            .entry(text.to_owned())
            .or_insert_with(|| text.into())
            .clone()
    };
    let spans = request.spans.iter().map(|span| {
        let (service, name, host, process) = workload::texts(span);
        let event = |(event, time_ns): (usize, u64)| PointEvent {
            time_ns: time_ns as i64,
            name: workload::event_name(event).into(),
            element: None,
        };
        SpanRecord {
            span_id: span.span_id,
            parent_id: span.parent_id,
            service: text(service),
            name: text(name),
            host: text(&host),
            process,
            start_ns: span.start_ns as i64,
            end_ns: span.end_ns as i64,
            flags: SpanFlags(span.flags),
            events: span.event.map(event).into_iter().collect(),
        }
    });
    TraceRecords {
        id: TraceId(request.trace_id),
        spans: spans.collect(),
        ..TraceRecords::default()
    }
}

/// Naive counting, with one counter per pair and kind.
struct Naive {
    labels: usize,
    counts: Vec<[u64; 3]>,
}

impl Naive {
    fn new(labels: usize) -> Self {
        Self {
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

    /// Reports whether both counts agree for labels that never repeat within a trace. For others,
    /// the double loop counts instances, and the model counts traces.
    fn agrees(&self, model: &Model, traces: &[SegmentedTrace]) -> bool {
        let mut repeats = vec![false; self.labels];
        for trace in traces {
            let mut seen = vec![false; self.labels];
            for segment in &trace.segments {
                repeats[segment.id.index()] |=
                    std::mem::replace(&mut seen[segment.id.index()], true);
            }
        }
        let pairs = model.pairs();
        let alone = pairs
            .iter()
            .filter(|pair| !repeats[pair.a.index()] && !repeats[pair.b.index()]);
        let mut compared = 0;
        let agree = alone.inspect(|_| compared += 1).all(|pair| {
            let counts = self.counts[pair.a.index() * self.labels + pair.b.index()];
            counts == [pair.cooccurrences, pair.contradictions, pair.overlaps]
        });
        agree && compared > 0
    }
}
