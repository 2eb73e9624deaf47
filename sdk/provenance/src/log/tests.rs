use alloc::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::node::Parents;
use crate::resolve::inputs_of;

type Reference = BTreeSet<u32>;

fn paper() -> Limits {
    Limits {
        reduction: Reduction::Repeated,
        ..Limits::default()
    }
}

/// Labels of single inputs with gaps, so that no range joins two of them.
fn apart(log: &mut MergeLog, count: usize) -> Vec<Label> {
    let Labels::Inputs(first) = log.source(1, 0, 2 * count) else {
        panic!("the log is full");
    };
    let step = |at| Label::input(first.span().unwrap().0 + 2 * at);
    (0..count as u32).map(step).collect()
}

fn inputs(log: &MergeLog, label: Label) -> Reference {
    inputs_of(log, label).ranges().flatten().collect()
}

#[test]
fn trivial_and_repeated_merges_make_no_node() {
    for limits in [paper(), Limits::default()] {
        let mut log = MergeLog::new(limits);
        let of = apart(&mut log, 2);
        assert_eq!(log.merge(Label::NULL, Label::NULL), Label::NULL);
        assert_eq!(log.merge(of[0], Label::NULL), of[0]);
        assert_eq!(log.merge(Label::NULL, of[0]), of[0]);
        assert_eq!(log.merge(of[0], of[0]), of[0]);
        assert_eq!(log.nodes(), 0);
        let both = log.merge(of[0], of[1]);
        assert_eq!((both, log.nodes()), (Label::node(0), 1));
        assert_eq!(log.merge(of[1], of[0]), both);
        assert_eq!((log.merge(of[0], of[1]), log.nodes()), (both, 1));
        assert_eq!(
            log.node(0).map(|node| node.parents()),
            Some(Parents::Union(of[0], of[1]))
        );
    }
}

#[test]
fn a_contiguous_range_is_one_node() {
    let mut log = MergeLog::default();
    assert_eq!(log.range(0, 0), Label::NULL);
    let Labels::Inputs(_) = log.source(1, 0, 1000) else {
        panic!("the log is full");
    };
    let label = log.range(10, 509);
    assert_eq!((label, log.nodes()), (Label::node(0), 1));
    assert_eq!(log.range(10, 509), label);
    assert_eq!(log.range(7, 7), Label::input(7));
    assert_eq!(log.range(8, 7), Label::NULL);
    // Contained inputs and ranges make no node; an adjacent or overlapping one makes one.
    assert_eq!(log.merge(label, Label::input(300)), label);
    let inner = log.range(20, 30);
    assert_eq!((log.merge(inner, label), log.nodes()), (label, 2));
    let longer = log.merge(label, Label::input(510));
    assert_eq!(
        log.node(2).map(|node| node.parents()),
        Some(Parents::Range(10, 510))
    );
    assert_eq!(log.merge(longer, inner), longer);
    assert_eq!(inputs(&log, longer), (10..=510).collect());
}

#[test]
fn contained_labels_are_absorbed_within_the_bound() {
    let mut log = MergeLog::default();
    let of = apart(&mut log, 20);
    let mut sums = vec![of[0]];
    for label in &of[1..] {
        let sum = log.merge(sums[sums.len() - 1], *label);
        sums.push(sum);
    }
    let (last, nodes) = (sums[19], log.nodes());
    for within in [of[19], of[17], sums[18], sums[16]] {
        assert_eq!(
            (log.merge(last, within), log.nodes()),
            (last, nodes),
            "{within:?}"
        );
    }
    // A range that is newer than the union around it.
    log.source(2, 0, 200);
    let wide = log.range(100, 120);
    let union = log.merge(wide, of[0]);
    let inner = log.range(105, 110);
    assert!(inner > union);
    assert_eq!(log.merge(union, inner), union);
    // Labels too deep for the walk cost a node, but the set stays the same.
    let nodes = log.nodes();
    let deep = log.merge(last, of[3]);
    assert_eq!(log.nodes(), nodes + 1);
    assert_eq!(inputs(&log, deep), inputs(&log, last));
}

#[test]
fn repeated_merges_are_found_after_many_others() {
    // With the maximum number of nodes, slots of the memo have one bit of the hash.
    for limits in [Limits::default(), Limits::with_nodes(NODES_MAX)] {
        let mut log = MergeLog::new(limits);
        let of = apart(&mut log, if cfg!(miri) { 40 } else { 300 });
        let mut merged = Vec::new();
        for (at, a) in of.iter().enumerate() {
            for b in &of[..at] {
                merged.push((*a, *b, log.merge(*a, *b)));
            }
            // One chunk of nodes has room, and recent merges take at most 64 KiB.
            assert!(log.bytes() <= log.nodes() as usize * 16 + (97 << 10));
        }
        let nodes = log.nodes();
        assert_eq!(nodes as usize, merged.len());
        for (a, b, label) in merged {
            assert_eq!(log.merge(b, a), label);
        }
        assert_eq!(log.nodes(), nodes);
        let per_node = log.bytes() as f64 / f64::from(nodes);
        assert!(cfg!(miri) || per_node <= 16.0, "{per_node}");
        assert!(log.losses().is_none());
    }
}

#[test]
fn a_full_log_returns_blocks() {
    let mut log = MergeLog::new(Limits::with_nodes(1));
    let of = apart(&mut log, 500);
    let node = log.merge(of[0], of[2]);
    assert!(log.losses().is_none());
    // Inputs 200 and 210 are in the block from 192 to 255.
    let block = log.merge(of[100], of[105]);
    assert_eq!(inputs(&log, block), (192..=255).collect());
    assert_eq!(log.merge(block, of[100]), block);
    let wider = log.merge(block, node);
    assert_eq!(inputs(&log, wider), (0..=255).collect());
    // A query leaves out the inputs of a block that the log has not assigned.
    let end = log.merge(of[499], of[498]);
    assert_eq!(inputs(&log, end), (960..=999).collect());
    assert_eq!(log.losses().coarse_merges, 3);
    assert_eq!(log.merge(of[2], of[0]), node);
    assert_eq!(log.range(0, 10), Label::block(0, 10));
}

#[test]
fn limits_stay_within_the_labels() {
    let log = MergeLog::new(Limits {
        inputs: 0,
        nodes: u32::MAX,
        ..Limits::default()
    });
    assert_eq!((log.limits().inputs, log.limits().nodes), (1, NODES_MAX));
}

#[test]
fn bytes_beyond_the_inputs_share_the_last_one() {
    let mut log = MergeLog::new(Limits {
        inputs: 10,
        ..Limits::default()
    });
    assert_eq!(log.source(1, 0, 6), Labels::Inputs(Label::input(0)));
    assert_eq!(log.source(2, 5, 3), Labels::Inputs(Label::input(6)));
    assert!(log.losses().is_none());
    assert_eq!(log.source(3, 0, 4), Labels::Shared(Label::input(9)));
    assert_eq!(log.source(3, 4, 1), Labels::Shared(Label::input(9)));
    assert_eq!(log.losses().shared_inputs, 5);
    assert_eq!(log.source_of(9), None);
    let second = Source {
        id: 2,
        offset: 5,
        first: 6,
        count: 3,
    };
    assert_eq!(log.source_of(8), Some(second));
    assert_eq!(log.source_of(5).map(|source| source.id), Some(1));
}

#[test]
fn counts_of_losses_do_not_overflow() {
    let mut log = MergeLog::new(Limits {
        outputs: 0,
        ..Limits::default()
    });
    for _ in 0..2 {
        log.source(1, 0, usize::MAX);
        log.output(1, 0, u64::MAX, Labels::NULL);
    }
    let losses = log.losses();
    assert_eq!(losses.shared_inputs, (usize::MAX as u64).saturating_mul(2));
    assert_eq!(losses.dropped_outputs, u64::MAX);
}

#[test]
fn successive_bytes_of_a_source_are_one_record() {
    let mut log = MergeLog::new(Limits {
        sources: 2,
        ..Limits::default()
    });
    for offset in 0..100 {
        log.source(1, offset, 1);
    }
    log.source(1, 200, 5);
    assert_eq!(log.sources().len(), 2);
    assert_eq!(log.sources()[0].count, 100);
    assert!(matches!(log.source(2, 0, 1), Labels::Shared(_)));
    assert_eq!(log.losses().shared_inputs, 1);
}

#[test]
fn the_end_of_bytes_is_an_offset() {
    let mut log = MergeLog::default();
    let labels = log.source(1, u64::MAX, 3);
    log.output(2, u64::MAX - 1, 3, labels);
    let offsets = (log.sources()[0].offset, log.outputs()[0].offset);
    assert_eq!(offsets, (u64::MAX - 3, u64::MAX - 3));
    assert!(log.losses().is_none());
}

#[test]
fn many_unique_inputs() {
    let mut log = MergeLog::default();
    let count = 64_352_941; // of gzip in the paper
    let Labels::Inputs(first) = log.source(1, 0, count) else {
        panic!("the log is full");
    };
    let last = Label::input(first.span().unwrap().0 + count as u32 - 1);
    let all = log.range(0, count as u32 - 1);
    assert_eq!(inputs_of(&log, all).len(), count as u64);
    assert_eq!(log.merge(first, last), Label::node(1));
    assert_eq!(log.merge(all, last), all);
    assert!(log.bytes() < 16 << 20, "{}", log.bytes());
}

/// Operation of a random program. A merge counts its labels back from the newest one.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Source(usize),
    Merge(usize, usize),
    Range(u32, u32),
}

pub(crate) fn programs() -> impl Strategy<Value = Vec<Step>> {
    let recent = prop_oneof![0..8_usize, 0..400_usize];
    let step = prop_oneof![
        1 => (0..80_usize).prop_map(Step::Source),
        1 => (0..300_u32, 0..90_u32).prop_map(|(first, length)| Step::Range(first, first + length)),
        8 => (recent.clone(), recent).prop_map(|(a, b)| Step::Merge(a, b)),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 20 } else { 200 })
}

/// Runs a program on a log and on sets.
pub(crate) fn run(log: &mut MergeLog, steps: &[Step]) -> Vec<(Label, Reference)> {
    let mut made = vec![(Label::NULL, Reference::new())];
    for step in steps {
        match step {
            Step::Source(count) => {
                let before = log.inputs();
                match log.source(7, u64::from(before) * 3, *count) {
                    Labels::Inputs(first) => {
                        let first = first.raw() - 1;
                        let each = first..first + *count as u32;
                        made.extend(each.map(|input| (Label::input(input), [input].into())));
                    }
                    Labels::Shared(label) => made.push((label, [label.raw() - 1].into())),
                }
            }
            Step::Merge(a, b) => {
                let at = |back: &usize| &made[made.len() - 1 - back % made.len()];
                let (a, b) = (at(a).clone(), at(b).clone());
                made.push((log.merge(a.0, b.0), &a.1 | &b.1));
            }
            Step::Range(first, last) => {
                let assigned = (*first..=*last).filter(|input| *input < log.inputs());
                let reference = assigned.collect();
                made.push((log.range(*first, *last), reference));
            }
        }
    }
    made
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]
    #[test]
    fn labels_name_exactly_their_inputs(steps in programs(), absorbs in 0..8_u8) {
        let reductions = [Reduction::Repeated, Reduction::Contained { steps: absorbs }];
        for reduction in reductions {
            let mut log = MergeLog::new(Limits { reduction, ..Limits::default() });
            for (label, reference) in run(&mut log, &steps) {
                prop_assert_eq!(inputs(&log, label), reference);
            }
            prop_assert!(log.losses().is_none());
        }
    }

    #[test]
    fn labels_of_full_logs_contain_their_inputs(
        steps in programs(), nodes in 0..60_u32, inputs_max in 1..400_u32, sources in 0..9_u32,
    ) {
        let limits = Limits { nodes, inputs: inputs_max, sources, ..Limits::default() };
        let mut log = MergeLog::new(limits);
        let mut coarse = 0;
        for (label, reference) in run(&mut log, &steps) {
            let found = inputs(&log, label);
            prop_assert!(found.is_superset(&reference), "{:?} {:?}", found, reference);
            coarse += u64::from(found != reference);
        }
        prop_assert!(log.nodes() <= nodes && log.inputs() <= inputs_max);
        let losses = log.losses();
        prop_assert!(coarse == 0 || losses.coarse_merges > 0);
    }
}

#[test]
fn items_beyond_the_limit_are_counted() {
    let mut log = MergeLog::new(Limits {
        item_bytes: 200,
        ..Limits::default()
    });
    let item = |id, name: &str| Item {
        id,
        span: 0,
        name: name.into(),
        content: [1, 2, 3].into(),
    };
    log.describe(item(1, "one"));
    log.describe(item(2, &"long".repeat(50)));
    log.describe(item(3, "three"));
    assert_eq!(log.items(), [item(1, "one"), item(3, "three")]);
    assert_eq!(log.losses().dropped_items, 1);

    let mut all = MergeLog::default();
    all.absorb(&log);
    assert_eq!(all.items(), log.items());
}
