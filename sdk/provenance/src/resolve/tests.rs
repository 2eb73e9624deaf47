use alloc::collections::{BTreeMap, BTreeSet};
use core::cell::Cell;

use proptest::prelude::*;

use super::sweep::{Sweep, sweep_keeping};
use super::*;
use crate::limits::Limits;
use crate::log::MergeLog;
use crate::log::tests::{programs, run};
use crate::source::Labels;

fn swept(bytes_max: usize, log: &MergeLog, labels: &[Label]) -> BTreeMap<Label, BTreeSet<u32>> {
    let mut found = BTreeMap::new();
    sweep_keeping(
        bytes_max,
        &Cell::new(u64::MAX),
        log,
        labels,
        |label, inputs| {
            let inputs = inputs.ranges().flatten().collect();
            assert_eq!(found.insert(label, inputs), None, "{label:?} twice");
        },
    );
    found
}

#[test]
fn unknown_nodes_contain_all_inputs() {
    let mut log = MergeLog::default();
    log.source(1, 0, 5);
    let unknown = Label::node(9);
    assert_eq!(inputs_of(&log, unknown).len(), 5);
    assert_eq!(swept(0, &log, &[unknown])[&unknown].len(), 5);
    assert!(Reach::new(&log, InputSet::new()).contains(unknown));
    let merged = log.merge(unknown, Label::input(1));
    assert_eq!(inputs_of(&log, merged).len(), 5);
}

#[test]
fn a_deep_chain_keeps_one_set() {
    let mut log = MergeLog::default();
    let end = if cfg!(miri) { 3_000 } else { 300_000 };
    let Labels::Inputs(_) = log.source(1, 0, end as usize) else {
        panic!("the log is full");
    };
    let mut sum = Label::NULL;
    for input in (0..end).step_by(3) {
        sum = log.merge(sum, Label::input(input));
    }
    let found = swept(1 << 20, &log, &[sum]);
    assert!(found[&sum].iter().copied().eq((0..end).step_by(3)));
}

/// Returns the maximum bytes of the sets that a sweep keeps at a time.
fn kept_max(bytes_max: usize, log: &MergeLog, labels: &[Label]) -> usize {
    let mut sweep = Sweep::new(bytes_max, log, labels);
    let kept = (0..log.nodes()).map(|index| {
        sweep.step(log, index, &mut |_, _| {});
        sweep.sets.iter().map(|(set, _)| set.bytes()).sum()
    });
    kept.max().unwrap_or(0)
}

/// Labels whose sets all wait for merges at the end of the log, and have many pages each.
#[test]
fn sets_that_wait_take_bounded_memory() {
    let (count, step) = if cfg!(miri) {
        (20, 1 << 9)
    } else {
        (100, 1 << 14)
    };
    let mut log = MergeLog::default();
    log.source(1, 0, count * step);
    let mut large = Label::NULL;
    for at in 0..count as u32 {
        let range = log.range(at * step as u32, (at + 1) * step as u32 - 2);
        large = log.merge(large, range);
    }
    let gaps = (1..=count as u32).map(|at| Label::input(at * step as u32 - 1));
    let waiting: Vec<Label> = gaps.map(|gap| log.merge(large, gap)).collect();
    let mut all = Label::NULL;
    for label in waiting.iter().rev() {
        all = log.merge(all, *label);
    }
    let one = inputs_of(&log, waiting[0]).bytes();
    let bounded = kept_max(4 * one, &log, &[all]);
    assert!((2 * one..=4 * one).contains(&bounded), "{bounded} of {one}");
    assert!(kept_max(usize::MAX, &log, &[all]) > 10 * one);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]
    #[test]
    fn a_sweep_resolves_as_brute_force(
        steps in programs(), picks in prop::collection::vec(0..300_usize, 0..40),
        steps_left in 0..300_u64,
    ) {
        let mut visited = 0;
        let mut log = MergeLog::new(Limits::default());
        let made = run(&mut log, &steps);
        let wanted: BTreeMap<_, _> = picks.iter().map(|at| made[at % made.len()].clone()).collect();
        let labels: Vec<Label> = picks.iter().map(|at| made[at % made.len()].0).collect();
        // Without room for sets, each use computes its set again.
        for bytes_max in [0, 300, usize::MAX] {
            prop_assert_eq!(&swept(bytes_max, &log, &labels), &wanted);
        }
        // With too few steps, only whole sets are visited.
        let steps = Cell::new(steps_left);
        sweep_within(&steps, &log, &labels, |label, inputs| {
            assert!(inputs.ranges().flatten().eq(wanted[&label].iter().copied()));
            visited += 1;
        });
        prop_assert!(visited == wanted.len() || steps.get() == 0);
        let mut resolver = Resolver::default();
        for (label, reference) in &wanted {
            let found: BTreeSet<u32> = resolver.inputs(&log, *label).ranges().flatten().collect();
            prop_assert_eq!(&found, reference);
        }
    }

    #[test]
    fn inputs_reach_the_labels_that_contain_them(
        steps in programs(), first in 0..200_u32, length in 0..20_u32, other in 0..300_u32,
    ) {
        let mut log = MergeLog::new(Limits::default());
        let made = run(&mut log, &steps);
        let mut inputs = InputSet::new();
        inputs.insert(first, first + length);
        inputs.insert(other, other);
        let reach = Reach::new(&log, inputs.clone());
        for (label, reference) in made {
            let expected = reference.iter().any(|input| inputs.contains(*input));
            prop_assert_eq!(reach.contains(label), expected, "{:?}", label);
        }
    }
}
