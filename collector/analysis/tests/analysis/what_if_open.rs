//! Compares replays of services whose requests wait for each other with the services, simulated
//! again with one operation changed.

use crate::generator::Random;
use crate::open_services::{self, Service};
use crate::simulator::{Law, run_open};
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::sampling::Weight;
use stroboscope_analysis::segment::Segmenter;
use stroboscope_analysis::what_if::{
    Change, LatencyChange, ReplaySample, WaitModel, WaitingSample, WhatIf,
};

/// Returns requests that arrive at random, with this mean interval in microseconds.
fn arrivals(requests: usize, mean_us: u64) -> Vec<(u64, u64)> {
    let mut random = Random(17);
    let mut at_ns = 0;
    (0..requests as u64)
        .map(|seed| {
            let part = (random.below(1 << 20) as f64 + 0.5) / f64::from(1 << 20);
            at_ns += (-part.ln() * mean_us as f64 * 1e3) as u64;
            (seed, at_ns)
        })
        .collect()
}

fn statistics(mut all: Vec<u64>) -> [f64; 4] {
    all.sort_unstable();
    let at = |q: f64| all[((all.len() as f64 * q).ceil() as usize).max(1) - 1] as f64;
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    [mean, at(0.5), at(0.95), at(0.99)]
}

/// A service, the mean interval between its requests, and the operation that is changed.
struct Case {
    name: &'static str,
    service: fn() -> Service,
    mean_us: u64,
    operation: &'static str,
}

/// Comparison of the prediction with a second run of the service.
struct Tried {
    queues: usize,
    /// Errors of the mean and of quantiles, in percent.
    off: [f64; 4],
    /// For each, true if the real change is in the predicted range, and the width of the range in
    /// percent of the latency after the change.
    ranges: [(bool, f64); 4],
}

impl Case {
    /// Records requests, predicts the change, and simulates the same requests with the changed
    /// operation.
    fn try_with(&self, requests: usize, law: Law, factor: f64) -> Tried {
        let arrivals = arrivals(requests, self.mean_us);
        let recorded = run_open(&arrivals, law, None, (self.service)());
        let change = Change::Scale(factor);
        let changed = Some((self.operation, change));
        let again = run_open(&arrivals, law, changed, (self.service)());
        let (mut model, mut segmenter) = (Model::new(), Segmenter::default());
        let traces: Vec<_> = recorded
            .iter()
            .map(|(records, _)| segmenter.segment(records, model.labels_mut()).0)
            .collect();
        traces.iter().for_each(|trace| model.observe(trace));
        let (relations, labels) = (model.relations(0.0), model.labels());
        let paths: Vec<_> = traces
            .iter()
            .map(|trace| analyse(trace, &relations))
            .collect();
        let mut sample = WaitingSample::default();
        for ((records, _), (trace, path)) in recorded.iter().zip(traces.iter().zip(&paths)) {
            let seen = TraceView {
                records,
                trace,
                labels,
                path,
            };
            Pass::observe(&mut sample, &seen);
        }
        let waiting = WaitModel::learn(&sample, &relations, labels);
        let chosen =
            |_, label: &SegmentLabel| (label.operation() == self.operation).then_some(change);
        let queues = waiting.changed_queues(labels, chosen);
        let mut what_if = WhatIf::new(&waiting, chosen).with_queues(&queues);
        let (mut latency, mut replays) = (LatencyChange::default(), ReplaySample::default());
        let mut after = Vec::new();
        for (trace, path) in traces.iter().zip(&paths) {
            let replayed = what_if.replay(trace, path, labels);
            let weight = Weight::ONE;
            latency.observe(path.latency_ns, replayed.latency_ns, weight);
            replays.observe(
                (trace.id, trace.start_ns, weight),
                path.latency_ns,
                replayed,
            );
            after.push(replayed.latency_ns);
        }
        let expected = replays.expected(&latency.before, &latency.after);
        let latencies = |all: &[(_, u64)]| statistics(all.iter().map(|(_, ns)| *ns).collect());
        let (before, truth) = (latencies(&recorded), latencies(&again));
        let found = statistics(after);
        let ranges = [0, 1, 2, 3].map(|at| {
            let ((low, high), really) = (expected[at].change_ns, truth[at] - before[at]);
            (
                low <= really && really <= high,
                (high - low) / truth[at] * 100.0,
            )
        });
        let tried = Tried {
            queues: waiting.shared_queues(),
            off: [0, 1, 2, 3].map(|at| (found[at] / truth[at] - 1.0) * 100.0),
            ranges,
        };
        let range =
            |(holds, wide): (bool, f64)| format!("{}{wide:.0}", if holds { "" } else { "!" });
        println!(
            "{:12} {:11} {:14} x{factor:<4} queues {} was {:6.2} truth {:6.2} wide {:22} off % {}",
            self.name,
            format!("{law:?}"),
            self.operation,
            tried.queues,
            before[0] / 1e6,
            truth[0] / 1e6,
            ranges.map(range).join(" "),
            tried.off.map(|off| format!("{off:+6.1}")).join(" "),
        );
        tried
    }
}

macro_rules! cases {
    ($($service:ident $mean_us:literal $operation:literal),+) => {
        [$(Case { name: stringify!($service), service: open_services::$service, mean_us: $mean_us, operation: $operation }),+]
    };
}

const CASES: [Case; 13] = cases![
    workers 1_600 "store:read", wait_inside 1_600 "store:read", commit_lock 1_600 "store:commit",
    commit_waits 1_600 "store:commit", connections 1_800 "store:read", mixed 1_700 "store:read",
    mixed 1_700 "store:write", fan_out 1_800 "store:read", fan_out 1_800 "users:load", stages 1_800 "job:plan",
    replicas 1_800 "store:read", late_lock 1_600 "store:read", unshared 1_800 "store:read"
];

#[test]
fn queues_between_requests_are_replayed() {
    for (case, factor) in CASES.iter().zip([0.5, 0.8, 1.2].into_iter().cycle()) {
        let tried = case.try_with(700, Law::Exponential, factor);
        let (name, operation) = (case.name, case.operation);
        let is_shared = name != "unshared";
        assert_eq!(tried.queues > 0, is_shared, "{name}: queues");
        assert!(
            tried.off[0].abs() <= 2.0,
            "{name} {operation}: off by {:?} %",
            tried.off
        );
        assert!(tried.ranges[0].0, "{name} {operation}: not in the range");
    }
}

#[test]
fn where_nothing_waits_the_range_is_narrow() {
    let tried = CASES[12].try_with(1_000, Law::Exponential, 0.5);
    assert!(tried.ranges[0].1 < 8.0, "{:?}", tried.ranges);
}

#[test]
#[ignore = "takes minutes, and prints a table"]
fn grid() {
    let (mut held, mut widths) = (0, Vec::new());
    for law in [Law::Exponential, Law::Lognormal, Law::Constant] {
        for factor in [0.5, 0.8, 0.0, 1.3] {
            for case in &CASES {
                let ranges = case.try_with(2_000, law, factor).ranges;
                held += ranges.iter().filter(|(holds, _)| *holds).count();
                widths.extend(ranges.map(|(_, wide)| wide));
            }
        }
    }
    let count = widths.len();
    widths.sort_unstable_by(f64::total_cmp);
    println!(
        "{held} of {count} in their range; median width {:.1} %",
        widths[count / 2]
    );
    assert!(held * 10 >= count * 9);
}
