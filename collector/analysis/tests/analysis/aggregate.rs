//! Critical paths over many traces.

use crate::generator::{Random, Structure, labels};
use proptest::prelude::*;
use stroboscope_analysis::aggregate::{PathAggregate, ShareSum};
use stroboscope_analysis::critical_path::{TracePath, analyse};
use stroboscope_analysis::distribution::{Distribution, LONGEST_NS};
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::sampling::Weight;

fn paths(seed: u64, leaves: usize, traces: usize) -> Vec<TracePath> {
    let mut random = Random(seed);
    let structure = Structure::random(&mut random, 0, leaves);
    let mut trace = |number: usize| {
        let trace = structure.run(&mut random);
        // Some requests continue after their answer.
        let late_ns = (trace.end_ns - trace.start_ns) / 4 * i64::from(number.is_multiple_of(3));
        let answer_ns = trace.end_ns - late_ns;
        trace.answered_at(answer_ns)
    };
    let traces: Vec<_> = (0..traces).map(&mut trace).collect();
    let mut model = Model::new();
    *model.labels_mut() = labels(leaves);
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    traces
        .iter()
        .map(|trace| analyse(trace, &relations))
        .collect()
}

fn aggregate(paths: &[TracePath]) -> PathAggregate {
    let mut aggregate = PathAggregate::new();
    paths
        .iter()
        .for_each(|path| aggregate.observe(path, Weight::ONE));
    aggregate
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn parts_in_any_order_merge_to_the_whole(seed in any::<u64>(), cut in 0usize..40) {
        let mut paths = paths(seed, 12, 40);
        // A trace without length has no shares, and lowers no mean.
        let empty = TracePath { latency_ns: 0, critical_path_ns: 0, tail_wait_ns: 0, ..paths[0].clone() };
        paths.extend([empty.clone(), empty]);
        let whole = aggregate(&paths);
        Random(seed).shuffle(&mut paths);
        let mut merged = aggregate(&paths[cut..]);
        merged.merge(&aggregate(&paths[..cut]));
        prop_assert_eq!(&merged, &whole);

        let total: ShareSum = whole.segments().map(|(_, s)| s.shares()).chain([whole.tail_wait().1]).sum();
        paths.retain(|path| path.latency_ns > 0);
        prop_assert_eq!((whole.traces().rounded(), whole.without_length().rounded()), (paths.len() as u64, 42 - paths.len() as u64));
        prop_assert!((total.mean(whole.traces()) - 1.0).abs() < 1e-9 || paths.is_empty());
        let critical_ns: u128 = whole.segments().map(|(_, s)| s.critical_duration_ns + s.critical_wait_ns).sum();
        prop_assert_eq!(critical_ns + whole.tail_wait().0, whole.latency().sum_ns());
        let after = paths.iter().filter_map(|path| path.after_answer.as_ref()).map(|after| after.duration_ns);
        prop_assert_eq!(whole.after_answer().sum_ns(), after.map(u128::from).sum::<u128>());
        for (id, statistics) in whole.segments() {
            let instances = || paths.iter().flat_map(|p| &p.segments).filter(|s| s.segment == id);
            let slacks = instances().filter(|s| !s.after_answer).map(|s| s.slack_ns);
            prop_assert_eq!(statistics.slack.sum_ns(), slacks.map(u128::from).sum::<u128>());
            let late = instances().filter(|s| s.after_answer).map(|s| u128::from(s.duration_ns()));
            prop_assert_eq!(statistics.after_answer_ns, late.sum::<u128>());
            let critical = |p: &&TracePath| p.segments.iter().any(|s| s.segment == id && s.critical);
            prop_assert_eq!(statistics.critical_traces.rounded(), paths.iter().filter(critical).count() as u64);
        }
    }
}

#[test]
fn operations_have_exactly_their_segments_shares() {
    let mut labels = Labels::default();
    for task in [
        "w:home",
        "w:home > s:read#1",
        "w:home > s:read#2",
        "w:other > s:read#*",
    ] {
        labels.intern(&task.into(), &"start".into(), &"end".into());
    }
    let aggregate = aggregate(&paths(3, 4, 50));
    let operations = aggregate.by_operation(&labels);
    let names: Vec<&str> = operations.iter().map(|o| o.operation.as_str()).collect();
    assert_eq!(names, ["s:read", "w:home"]);
    assert_eq!(operations[0].segments, [1, 2, 3].map(SegmentId));
    let members = || (1..4).filter_map(|id| aggregate.segment(SegmentId(id)));
    assert_eq!(
        operations[0].duration_shares,
        members().map(|s| s.duration_shares).sum()
    );
    assert_eq!(
        operations[0].wait_shares,
        members().map(|s| s.wait_shares).sum()
    );
    assert_eq!(operations[0].occurrences.rounded(), 150);
    assert_eq!(
        operations[0].critical_duration_ns,
        members().map(|s| s.critical_duration_ns).sum()
    );
    // The distributions of duration and slack include all instances.
    let [mut duration, mut slack] = [Distribution::default(), Distribution::default()];
    for member in members() {
        duration.merge(&member.duration);
        slack.merge(&member.slack);
    }
    assert_eq!(duration.count(), 150);
    assert_eq!(
        (&operations[0].duration, &operations[0].slack),
        (&duration, &slack)
    );
}

#[test]
fn percentiles_are_within_a_thousandth() {
    let mut distribution = Distribution::default();
    assert_eq!(
        (
            distribution.count(),
            distribution.quantile_ns(0.5),
            distribution.mean_ns()
        ),
        (0, 0, 0.0)
    );
    (1..=100_000u64).for_each(|i| distribution.record(i * 1000));
    let percentiles = distribution.percentiles();
    for (found, exact) in [
        (percentiles.p50_ns, 50e6),
        (percentiles.p95_ns, 95e6),
        (percentiles.p99_ns, 99e6),
    ] {
        assert!(
            (found as f64 / exact - 1.0).abs() < 1e-3,
            "{found} instead of {exact}"
        );
    }
    assert_eq!(
        (distribution.mean_ns(), distribution.max_ns()),
        (50_000_500.0, 100_000_000)
    );
    (0..2).for_each(|_| distribution.record(u64::MAX));
    assert_eq!(
        (distribution.count(), distribution.max_ns()),
        (100_002, u64::MAX)
    );
    assert!(distribution.quantile_ns(1.0) >= LONGEST_NS);
}
