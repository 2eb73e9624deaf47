//! Compares replays with the recorded request, and with a simulator that changes the lengths of
//! segments one at a time.

use crate::generator::{Random, Structure, any_trace, labels};
use proptest::prelude::*;
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::Weight;
use stroboscope_analysis::segment::SegmentedTrace;
use stroboscope_analysis::what_if::{
    Change, LatencyChange, ReplaySample, ReplayedLatency, WaitModel, WhatIf, replay,
};

fn learn(traces: &[SegmentedTrace], label_count: usize) -> (Model, Relations) {
    let mut model = Model::new();
    *model.labels_mut() = labels(label_count);
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    (model, relations)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn nothing_changed_is_exactly_the_request(
        traces in proptest::collection::vec((any_trace(9, 14), 0i64..60), 1..6),
    ) {
        // Some requests continue after their answer.
        let traces: Vec<_> =
            traces.into_iter().map(|(trace, late_ns)| { let at = trace.end_ns - late_ns; trace.answered_at(at) }).collect();
        // The first one may contradict the model in any way.
        let (model, relations) = learn(&traces[1..], 9);
        for trace in &traces {
            let path = analyse(trace, &relations);
            let unchanged = replay(trace, &path, &relations, |index| path.segments[index].duration_ns());
            prop_assert_eq!(unchanged, path.latency_ns);
            let waiting = WaitModel::unknown(&relations);
            for change in [Change::Scale(1.0), Change::CapNs(u64::MAX), Change::AddNs(0)] {
                let mut what_if = WhatIf::new(&waiting, |_, _| Some(change));
                prop_assert_eq!(what_if.replay(trace, &path, model.labels()).latency_ns, path.latency_ns);
            }
            let mut nothing = WhatIf::new(&waiting, |_, _| None);
            prop_assert_eq!(nothing.replay(trace, &path, model.labels()).latency_ns, path.latency_ns);
        }
    }

    #[test]
    fn replays_equal_the_obvious_schedule(
        traces in proptest::collection::vec(any_trace(9, 14), 1..6), factors in proptest::collection::vec(0.0f64..3.0, 9),
    ) {
        let (model, relations) = learn(&traces, 9);
        let waiting = WaitModel::unknown(&relations);
        let mut what_if = WhatIf::new(&waiting, |id: SegmentId, _: &_| Some(Change::Scale(factors[id.index()])));
        for trace in &traces {
            let path = analyse(trace, &relations);
            let mut ends: Vec<u64> = Vec::new();
            for (j, b) in trace.segments.iter().enumerate() {
                let before = |i: &usize| {
                    let a = &trace.segments[*i];
                    a.end_ns <= b.start_ns
                        && (relations.happens_before(a.id, b.id) || relations.mutual_exclusion(a.id, b.id))
                };
                let ready = (0..j).filter(before).map(|i| ends[i]).max().unwrap_or(0);
                let duration = (path.segments[j].duration_ns() as f64 * factors[b.id.index()]).round() as u64;
                ends.push(ready + path.segments[j].wait_ns + duration);
            }
            let expected = ends.into_iter().max().unwrap_or(0) + path.tail_wait_ns;
            prop_assert_eq!(what_if.replay(trace, &path, model.labels()).latency_ns, expected);
        }
    }
}

/// Simulates a request without randomness: parts in series or in parallel, each leaf with a given
/// duration.
fn simulate(structure: &Structure, durations: &[u64], at: u64) -> u64 {
    match structure {
        Structure::Leaf { segment, .. } => at + durations[*segment],
        Structure::Series(parts) => parts
            .iter()
            .fold(at, |at, part| simulate(part, durations, at)),
        Structure::Parallel(parts) => parts
            .iter()
            .map(|part| simulate(part, durations, at))
            .max()
            .unwrap_or(at),
    }
}

fn record(
    structure: &Structure,
    durations: &[u64],
    at: u64,
    trace: &mut Vec<(usize, u64, u64)>,
) -> u64 {
    match structure {
        Structure::Leaf { segment, .. } => {
            trace.push((*segment, at, at + durations[*segment]));
            at + durations[*segment]
        }
        Structure::Series(parts) => parts
            .iter()
            .fold(at, |at, part| record(part, durations, at, trace)),
        Structure::Parallel(parts) => parts
            .iter()
            .map(|part| record(part, durations, at, trace))
            .max()
            .unwrap_or(at),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Compares slack and replays with the system itself, in which one segment at a time takes
    /// longer or shorter.
    #[test]
    fn the_simulator_agrees(seed in any::<u64>(), leaves in 2usize..9) {
        let mut random = Random(seed);
        let structure = Structure::random(&mut random, 0, leaves);
        let run = |durations: &[u64]| {
            let mut parts = Vec::new();
            record(&structure, durations, 0, &mut parts);
            let segments = parts.into_iter().map(|(id, start, end)| {
                stroboscope_analysis::segment::Segment::new(SegmentId(id as u32), start as i64, end as i64)
            });
            SegmentedTrace::new(stroboscope_analysis::record::TraceId(1), None, 0, 0, segments.collect())
        };
        let durations = |random: &mut Random| -> Vec<u64> {
            (0..leaves).map(|_| 1 + (random.below(20) << (random.next() % 4 * 3)) as u64).collect()
        };
        let all: Vec<Vec<u64>> = (0..1500).map(|_| durations(&mut random)).collect();
        let traces: Vec<SegmentedTrace> = all.iter().map(|durations| run(durations)).collect();
        let (_, relations) = learn(&traces, leaves);
        // With enough requests, only true relations remain, so the model equals the system.
        let mut true_relations = structure.truth().0;
        true_relations.sort_unstable();
        let believed: Vec<_> =
            relations.all_happens_before().iter().map(|r| (r.first.index(), r.second.index())).collect();
        prop_assume!(believed == true_relations && relations.all_mutual_exclusion().is_empty());
        for (durations, trace) in all.iter().zip(&traces).take(20) {
            let path = analyse(trace, &relations);
            for (index, timing) in path.segments.iter().enumerate() {
                let leaf = timing.segment.index();
                let really = |duration: u64| {
                    let mut changed = durations.clone();
                    changed[leaf] = duration;
                    simulate(&structure, &changed, 0)
                };
                prop_assert_eq!(really(durations[leaf] + timing.slack_ns), path.latency_ns);
                prop_assert_eq!(really(durations[leaf] + timing.slack_ns + 1), path.latency_ns + 1);
                for duration in [0, durations[leaf] / 2, durations[leaf] * 3] {
                    let replayed = replay(trace, &path, &relations, |at| {
                        if at == index { duration } else { path.segments[at].duration_ns() }
                    });
                    prop_assert_eq!(replayed, really(duration));
                }
            }
        }
    }
}

#[test]
fn changes_of_durations() {
    #[track_caller]
    fn check(change: Change, duration_ns: u64, expected: u64) {
        assert_eq!(change.of(duration_ns), expected);
    }
    check(Change::Scale(0.5), 9, 5);
    check(Change::Scale(1.0), u64::MAX - 1, u64::MAX - 1);
    check(Change::Scale(2.0), u64::MAX - 1, u64::MAX);
    check(Change::Scale(-1.0), 9, 0);
    check(Change::Scale(f64::NAN), 9, 0);
    check(Change::CapNs(5), 9, 5);
    check(Change::CapNs(50), 9, 9);
    check(Change::AddNs(u64::MAX), 9, u64::MAX);
}

/// Every second request has weight 4 and becomes faster by twice as much.
#[test]
fn ranges_are_weighted() {
    let (mut change, mut sample) = (LatencyChange::default(), ReplaySample::default());
    for number in 0..400_u64 {
        let (before_ns, weight) = match number % 2 {
            0 => (1_000_000, Weight::ONE),
            _ => (2_000_000, Weight::of_threshold(3 << 54)),
        };
        let latency_ns = before_ns / 2;
        let replayed = ReplayedLatency {
            latency_ns,
            longest_ns: latency_ns,
            least_ns: latency_ns,
            most_ns: latency_ns,
        };
        let request = (
            TraceId(u128::from(number)),
            number as i64 * 1_000_000,
            weight,
        );
        change.observe(before_ns, latency_ns, weight);
        sample.observe(request, before_ns, replayed);
    }
    assert_eq!(change.faster.rounded(), 1000);
    let mean = sample.expected(&change.before, &change.after)[0];
    // (1 × 0.5 ms + 4 × 1 ms) / 5; without weights, 0.75 ms.
    let (low, high) = mean.change_ns;
    assert!(
        low <= -900_000.0 && (-900_000.0..-800_000.0).contains(&high),
        "{mean:?}"
    );
}

#[test]
fn latencies_before_and_after() {
    let mut change = LatencyChange::default();
    (1..=100).for_each(|i| change.observe(i * 1000, i * 500, Weight::ONE));
    let mut other = LatencyChange::default();
    other.observe(7, 9, Weight::of_threshold(3 << 54));
    change.merge(&other);
    assert_eq!(
        (
            change.faster.rounded(),
            change.slower.rounded(),
            change.before.weighted_count().rounded()
        ),
        (100, 4, 104)
    );
    assert!(
        (change.change_ns(0.5) + 24_000).abs() < 100
            && change.change_ns(0.99) < change.change_ns(0.5)
    );
}
