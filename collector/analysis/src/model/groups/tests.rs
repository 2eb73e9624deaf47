//! Tests of `groups.rs`.

use super::*;
use crate::label::SegmentId;
use proptest::prelude::*;

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Makes a trace with one segment of each label, with random starts and lengths.
fn trace(labels: &[u32], state: &mut u64) -> Vec<Segment> {
    let mut segments: Vec<Segment> = labels
        .iter()
        .map(|label| {
            let start_ns = (next(state) % 20) as i64;
            Segment::new(
                SegmentId(*label),
                start_ns,
                start_ns + 1 + (next(state) % 9) as i64,
            )
        })
        .collect();
    segments.sort_by_key(|s| (s.start_ns, s.end_ns, s.id));
    segments
}

fn naive(traces: &[Vec<Segment>], a: u32, b: u32) -> PerKind {
    let mut numbers = PerKind::default();
    for trace in traces {
        let of = |label: u32| trace.iter().find(|s| s.id.0 == label);
        if let (Some(first), Some(second)) = (of(a), of(b)) {
            let contradicted = second.start_ns < first.end_ns;
            let overlap = contradicted && first.start_ns < second.end_ns;
            numbers[TOGETHER] += 1;
            numbers[CONTRADICTED] += u64::from(contradicted);
            numbers[OVERLAPPED] += u64::from(overlap && a < b);
        }
    }
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Checks that groups count like a double loop, however often they are read, emptied or
    /// rebuilt.
    #[test]
    fn groups_equal_the_double_loop(
        seed in any::<u64>(),
        sets in prop::collection::vec(prop::collection::btree_set(0u32..200, 1..12), 1..5),
        traces in 0usize..300,
    ) {
        let mut state = seed | 1;
        let (mut groups, mut counts) = (Groups::default(), Counts::default());
        let mut taken = Vec::new();
        for number in 0..traces {
            let labels: Vec<u32> = sets[number % sets.len()].iter().copied().collect();
            let trace = trace(&labels, &mut state);
            if groups.count(&trace, &mut counts) {
                taken.push(trace);
            }
            if number % 97 == 96 {
                groups.empty_into(&mut counts);
            }
        }
        let seen_enough = traces / sets.len() > usize::from(SIGHTINGS);
        prop_assert!(!seen_enough || !taken.is_empty());
        let resolved = ResolvedCounts::of(&counts, &groups);
        let labels: std::collections::BTreeSet<u32> = sets.iter().flatten().copied().collect();
        let mut together = 0;
        for (&a, &b) in labels.iter().flat_map(|a| labels.iter().map(move |b| (a, b))).filter(|(a, b)| a != b) {
            let expected = naive(&taken, a, b);
            together += usize::from(expected[TOGETHER] > 0);
            let (a, b) = (a as usize, b as usize);
            prop_assert_eq!(resolved.cell(a, b), expected);
            let (of_counts, of_groups) = (counts.cell(a, b), groups.cell(a, b));
            let sum: PerKind = std::array::from_fn(|kind| of_counts[kind] + of_groups[kind]);
            prop_assert_eq!(sum, expected);
        }
        let mut visited = 0;
        resolved.for_each_together(|a, b, numbers| {
            assert_eq!(numbers, naive(&taken, a as u32, b as u32));
            visited += 1;
        });
        prop_assert_eq!(visited, together);
    }

    #[test]
    fn counting_below_is_a_search(mut values in prop::collection::vec(-9i64..9, 0..40), bound in -10i64..10) {
        values.sort_unstable();
        prop_assert_eq!(count_below(&values, bound), values.iter().filter(|v| **v < bound).count());
    }
}

#[test]
fn a_full_group_is_emptied_without_loss() {
    let (mut groups, mut counts) = (Groups::default(), Counts::default());
    let mut state = 1;
    let mut taken = Vec::new();
    for _ in 0..2 * STAGED_MAX + 100 {
        let trace = trace(&[3, 70, 71], &mut state);
        if groups.count(&trace, &mut counts) {
            taken.push(trace);
        }
    }
    assert_eq!(
        taken.len() as u32,
        2 * STAGED_MAX + 100 - u32::from(SIGHTINGS) + 1
    );
    assert_eq!(
        ResolvedCounts::of(&counts, &groups).cell(3, 70),
        naive(&taken, 3, 70)
    );
    assert_eq!(
        ResolvedCounts::of(&counts, &groups).cell(71, 3),
        naive(&taken, 71, 3)
    );
}

#[test]
fn memory_is_bounded() {
    let (mut groups, mut counts) = (Groups::default(), Counts::default());
    let mut state = 1;
    let mut taken = 0;
    for set in 0..9u32 {
        // Each set has 1,023 labels in 16 words: four of them fill the groups.
        let labels: Vec<u32> = (0..1024).filter(|label| *label != set).collect();
        for _ in 0..10 {
            taken += u32::from(groups.count(&trace(&labels, &mut state), &mut counts));
            assert!(groups.words <= WORDS_MAX && groups.groups.len() <= 4);
        }
    }
    assert_eq!(taken, 9 * 3);
    assert_eq!(
        ResolvedCounts::of(&counts, &groups).cell(500, 501)[TOGETHER],
        27
    );
    let huge: Vec<u32> = (0..3000).collect();
    assert!((0..50).all(|_| !groups.count(&trace(&huge, &mut state), &mut counts)));
}

#[test]
fn a_small_group_takes_no_memory_of_a_large_one() {
    let (mut groups, mut counts) = (Groups::default(), Counts::default());
    let mut state = 1;
    let large: Vec<u32> = (0..640).collect();
    for _ in 0..100 {
        for labels in [&large[..], &[3, 70]] {
            groups.count(&trace(labels, &mut state), &mut counts);
        }
    }
    assert_eq!(groups.groups.len(), 2);
    for (sums, inputs) in groups.groups.iter().flat_map(|group| &group.levels) {
        assert!(inputs.capacity() <= sums.capacity());
    }
}
