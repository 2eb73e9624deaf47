//! Compares the causal model with the double loop, and with requests of known structure.

use crate::generator::{Random, Structure, any_trace, intern, labels};
use crate::naive;
use proptest::prelude::*;
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Changes, Model, ModelParts, ModelPartsError, PairCounts};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::{ClockBounds, ClockId, Segment, SegmentedTrace, ThreadStep};

fn model_of(traces: &[SegmentedTrace], labels: Labels) -> Model {
    let mut model = Model::new();
    *model.labels_mut() = labels;
    traces.iter().for_each(|trace| model.observe(trace));
    model
}

/// Returns a trace of segments, given as (label, start, end).
fn trace(segments: &[(u32, i64, i64)]) -> SegmentedTrace {
    let segments = segments
        .iter()
        .map(|&(id, start_ns, end_ns)| Segment::new(SegmentId(id), start_ns, end_ns))
        .collect();
    SegmentedTrace::new(TraceId(7), None, i64::MAX, i64::MIN, segments)
}

fn check_against_naive(traces: &[SegmentedTrace], label_count: usize) {
    let model = model_of(traces, labels(label_count));
    let expected = naive::pairs(traces, label_count);
    assert_eq!(model.pairs(), expected);
    assert_eq!(model.pair_count(), expected.len());
    assert_eq!(model.traces(), traces.len() as u64);
    for (id, _) in model.labels().iter() {
        let instances = |t: &SegmentedTrace| t.segments.iter().filter(|s| s.id == id).count();
        let counts = model.segment_counts(id);
        assert_eq!(
            counts.occurrences,
            traces.iter().map(instances).sum::<usize>() as u64
        );
        assert_eq!(
            counts.traces,
            traces.iter().filter(|t| instances(t) > 0).count() as u64
        );
    }
    check_relations(&model, &expected);
}

/// Checks the relations against their definition, at several tolerances.
fn check_relations(model: &Model, pairs: &[PairCounts]) {
    for tolerance in [0.0, 0.1, 0.5] {
        let relations = model.relations(tolerance);
        let believed =
            |contradictions: u64, of: u64| contradictions as f64 <= tolerance * of as f64;
        let counts = |a, b| pairs.iter().find(|p| (p.a, p.b) == (a, b));
        let uncontradicted = |a, b| {
            a != b && counts(a, b).is_some_and(|p| believed(p.contradictions, p.cooccurrences))
        };
        // If neither order was contradicted, neither was observed.
        let before = |a, b| uncontradicted(a, b) && !uncontradicted(b, a);
        let order_was_seen = |a, b| {
            let contradictions = |a, b| counts(a, b).map_or(0, |p| p.contradictions);
            a == b || contradictions(a, b) + contradictions(b, a) > 0
        };
        let (mut happens_before, mut exclusive) = (Vec::new(), Vec::new());
        for pair in pairs {
            let (a, b) = (pair.a, pair.b);
            let is_before = before(a, b);
            let is_apart = believed(pair.overlaps, pair.cooccurrences) && order_was_seen(a, b);
            let is_exclusive = !is_before && !before(b, a) && is_apart;
            assert_eq!(relations.happens_before(a, b), is_before);
            assert_eq!(relations.mutual_exclusion(a, b), is_exclusive);
            if is_before {
                happens_before.push((a, b));
                assert_eq!(
                    relations.happens_before_support(a, b),
                    Some(model.happens_before_support(a, b))
                );
            }
            if is_exclusive && a < b {
                exclusive.push((a, b));
                assert_eq!(
                    relations.mutual_exclusion_support(b, a),
                    Some(model.mutual_exclusion_support(a, b))
                );
            }
        }
        let listed = |all: &[stroboscope_analysis::model::Relation]| {
            all.iter().map(|r| (r.first, r.second)).collect::<Vec<_>>()
        };
        assert_eq!(listed(relations.all_happens_before()), happens_before);
        assert_eq!(listed(relations.all_mutual_exclusion()), exclusive);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn counts_equal_the_double_loop(traces in proptest::collection::vec(any_trace(9, 12), 0..12)) {
        check_against_naive(&traces, 9);
    }
}

/// Assigns some of the segments to threads, each in the order of the trace.
fn put_in_threads(trace: &mut SegmentedTrace, threads: &[usize]) {
    for (step, (segment, thread)) in trace.segments.iter_mut().zip(threads).enumerate() {
        // The loop below takes a segment out of its thread if it overlaps an earlier one.
        let is_of_thread = *thread > 0;
        segment.step = if is_of_thread {
            ThreadStep::of_span(*thread, step)
        } else {
            ThreadStep::NONE
        };
    }
    for thread in 1..4 {
        let mut last_end_ns = i64::MIN;
        for segment in &mut trace.segments {
            if segment.step.is_with(ThreadStep::of_span(thread, 0)) {
                if segment.start_ns < last_end_ns {
                    segment.step = ThreadStep::NONE;
                } else {
                    last_end_ns = segment.end_ns;
                }
            }
        }
    }
}

/// Generates traces whose timestamps are from up to four clocks, one of them exact, with equal or
/// different resolutions.
fn any_inexact_trace(labels: u32, most: usize) -> impl Strategy<Value = SegmentedTrace> {
    let clocks = proptest::collection::vec((0u16..4, 0u16..4), most);
    let error_ns = prop_oneof![Just(0u64), 0u64..12, Just(u64::MAX)];
    let bounds = (error_ns, prop_oneof![Just(0u64), 2u64..6], 0u32..2);
    let bounds = proptest::collection::vec(bounds, 3);
    let threads = proptest::collection::vec(0usize..4, most);
    (any_trace(labels, most), clocks, bounds, threads).prop_map(
        |(mut trace, clocks, bounds, threads)| {
            for (segment, (start, end)) in trace.segments.iter_mut().zip(clocks) {
                (segment.start_clock, segment.end_clock) = (ClockId(start), ClockId(end));
            }
            put_in_threads(&mut trace, &threads);
            let bounds = bounds.into_iter();
            trace.clocks = bounds
                .map(|(error_ns, tick_ns, island)| ClockBounds {
                    error_ns,
                    tick_ns,
                    island,
                })
                .collect();
            trace
        },
    )
}

/// Generates traces of two clocks with the same resolution, and with threads.
fn any_coarse_trace(labels: u32, most: usize) -> impl Strategy<Value = SegmentedTrace> {
    let clocks = proptest::collection::vec((0u16..2, 0u16..2), most);
    let threads = proptest::collection::vec(0usize..4, most);
    (any_trace(labels, most), clocks, threads, 0u64..9).prop_map(
        |(mut trace, clocks, threads, tick_ns)| {
            for (segment, (start, end)) in trace.segments.iter_mut().zip(clocks) {
                (segment.start_clock, segment.end_clock) = (ClockId(start), ClockId(end));
            }
            put_in_threads(&mut trace, &threads);
            trace.clocks = vec![
                ClockBounds {
                    error_ns: 0,
                    tick_ns,
                    island: 0
                };
                2
            ];
            trace
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Tests the sweeps of traces whose clocks are alike. One set of labels may occur often enough
    /// for a group of its own.
    #[test]
    fn coarse_clocks_equal_the_double_loop(
        traces in proptest::collection::vec(any_coarse_trace(9, 12), 0..6), repeats in 1usize..14,
    ) {
        let repeated: Vec<_> = (0..repeats).flat_map(|_| traces.iter().cloned()).collect();
        check_against_naive(&repeated, 9);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn only_sure_orders_contradict(traces in proptest::collection::vec(any_inexact_trace(9, 12), 0..12)) {
        check_against_naive(&traces, 9);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]
    /// The sweep of a large trace is at least as cautious as the double loop.
    #[test]
    fn large_inexact_traces_contradict_nothing_that_is_unsure(seed in any::<u64>()) {
        let mut random = Random(seed);
        let mut segment = |_| {
            let (start_ns, length_ns) = (random.below(100_000) as i64, random.below(200) as i64);
            let clock = ClockId(random.below(3) as u16);
            let id = SegmentId(random.below(900) as u32);
            Segment { start_clock: clock, end_clock: clock, ..Segment::new(id, start_ns, start_ns + length_ns) }
        };
        let mut trace = SegmentedTrace::new(TraceId(1), None, 0, 0, (0..2100).map(&mut segment).collect());
        trace.clocks = vec![ClockBounds::within(40), ClockBounds::within(9)];
        let sure = naive::pairs(std::slice::from_ref(&trace), 900);
        let found = model_of(&[trace], labels(900)).pairs();
        prop_assert!(found.iter().map(|p| p.contradictions).sum::<u64>() > 0);
        prop_assert!(found.iter().map(|p| p.overlaps).sum::<u64>() > 0);
        for (found, sure) in found.iter().zip(&sure) {
            prop_assert_eq!((found.a, found.b, found.cooccurrences), (sure.a, sure.b, sure.cooccurrences));
            prop_assert!(found.contradictions <= sure.contradictions && found.overlaps <= sure.overlaps);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Tests more labels than one word has bits. Each trace uses few of them.
    #[test]
    fn counts_equal_the_double_loop_across_words(traces in proptest::collection::vec(any_trace(200, 30), 0..8)) {
        check_against_naive(&traces, 200);
    }

    #[test]
    fn true_relations_are_never_contradicted(seed in any::<u64>()) {
        let mut random = Random(seed);
        let leaves = 2 + random.below(20);
        let structure = Structure::random(&mut random, 0, leaves);
        let traces: Vec<_> = (0..100).map(|_| structure.run(&mut random)).collect();
        check_against_naive(&traces, leaves);
        let relations = model_of(&traces, labels(leaves)).relations(0.0);
        let (before, exclusive) = structure.truth();
        for (a, b) in before {
            prop_assert!(relations.happens_before(SegmentId(a as u32), SegmentId(b as u32)));
        }
        for (a, b) in exclusive {
            let (a, b) = (SegmentId(a as u32), SegmentId(b as u32));
            let kept_apart = relations.mutual_exclusion(a, b)
                || relations.happens_before(a, b)
                || relations.happens_before(b, a);
            prop_assert!(kept_apart);
        }
    }
}

#[test]
fn two_thousand_traces_of_forty_segments() {
    let mut random = Random(20);
    let structure = Structure::random(&mut random, 0, 40);
    let traces: Vec<_> = (0..2000).map(|_| structure.run(&mut random)).collect();
    let model = model_of(&traces, labels(40));
    assert_eq!(model.pairs(), naive::pairs(&traces, 40));
    let (before, _) = structure.truth();
    let found = model.relations(0.0).all_happens_before().len();
    assert!(
        found >= before.len(),
        "{found} relations were found, {} are true",
        before.len()
    );
}

#[test]
fn enough_traces_leave_only_what_is_true() {
    // a, then (b | c, d | e), then f; c and e share the lock.
    let leaf = |segment, locked| Structure::Leaf { segment, locked };
    let middle = Structure::Parallel(vec![
        leaf(1, false),
        Structure::Series(vec![leaf(2, true), leaf(3, false)]),
        leaf(4, true),
    ]);
    let structure = Structure::Series(vec![leaf(0, false), middle, leaf(5, false)]);
    let mut random = Random(5);
    let traces: Vec<_> = (0..3000).map(|_| structure.run(&mut random)).collect();
    let relations = model_of(&traces, labels(6)).relations(0.0);
    let (mut before, exclusive) = structure.truth();
    before.sort_unstable();
    let listed = |all: &[stroboscope_analysis::model::Relation]| {
        all.iter()
            .map(|r| (r.first.index(), r.second.index()))
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(relations.all_happens_before()), before);
    assert_eq!(listed(relations.all_mutual_exclusion()), exclusive);
}

/// Returns the parts of the model if the same traces come in another order, with other label
/// numbers, split over several models.
fn parts_of_shuffled(traces: &[SegmentedTrace], label_count: usize, seed: u64) -> ModelParts {
    let mut random = Random(seed);
    let mut traces = traces.to_vec();
    random.shuffle(&mut traces);
    let mut models: Vec<Model> = Vec::new();
    for part in traces.chunks(traces.len().div_ceil(3).max(1)) {
        let mut order: Vec<usize> = (0..label_count).collect();
        random.shuffle(&mut order);
        let mut model = Model::new();
        let given = intern(model.labels_mut(), order.iter().copied());
        let mut new_id = vec![SegmentId(0); label_count];
        order
            .iter()
            .zip(given)
            .for_each(|(number, id)| new_id[*number] = id);
        for trace in part {
            let renumbered = trace
                .segments
                .iter()
                .map(|s| Segment {
                    id: new_id[s.id.index()],
                    ..*s
                })
                .collect();
            model.observe(&SegmentedTrace::new(
                trace.id,
                None,
                trace.start_ns,
                trace.end_ns,
                renumbered,
            ));
        }
        models.push(model);
    }
    random.shuffle(&mut models);
    let mut whole = Model::new();
    intern(whole.labels_mut(), 0..label_count);
    models.iter().for_each(|part| whole.merge(part));
    whole.canonical().parts()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn order_numbering_and_parts_change_nothing(
        traces in proptest::collection::vec(any_trace(70, 20), 0..12), seed in any::<u64>(),
    ) {
        let whole = model_of(&traces, labels(70)).canonical().parts();
        prop_assert_eq!(&parts_of_shuffled(&traces, 70, seed), &whole);
        let restored = Model::from_parts(&whole).expect("parts of a model make a model");
        prop_assert_eq!(restored.relations(0.0), model_of(&traces, labels(70)).relations(0.0));
        prop_assert_eq!(restored.parts(), whole);
    }
}

#[track_caller]
fn check_support(segments: &[(u32, i64, i64)], a: u32, b: u32, expected: (u64, u64, u64)) {
    let model = model_of(&[trace(segments)], labels(4));
    let (a, b) = (SegmentId(a), SegmentId(b));
    let (before, apart) = (
        model.happens_before_support(a, b),
        model.mutual_exclusion_support(a, b),
    );
    assert_eq!(
        (
            before.cooccurrences,
            before.contradictions,
            apart.contradictions
        ),
        expected
    );
    assert_eq!(apart, model.mutual_exclusion_support(b, a));
}

#[test]
fn edges_of_the_definitions() {
    let (start, end) = (i64::MIN, i64::MAX);
    check_support(&[(0, 0, 5), (1, 5, 9)], 0, 1, (1, 0, 0)); // touching is in order
    check_support(&[(0, 0, 5), (1, 5, 9)], 1, 0, (1, 1, 0));
    check_support(&[(0, 0, 5), (1, 4, 9)], 0, 1, (1, 1, 1));
    check_support(&[(0, 3, 3), (1, 3, 3)], 0, 1, (1, 0, 0)); // instants at the same time contradict nothing
    check_support(&[(0, 3, 3), (1, 3, 3)], 1, 0, (1, 0, 0));
    check_support(&[(0, 3, 3), (1, 0, 9)], 0, 1, (1, 1, 1)); // an instant inside
    check_support(&[(0, 3, 3), (1, 3, 9)], 0, 1, (1, 0, 0)); // an instant at the start
    check_support(&[(0, 9, 9), (1, 3, 9)], 1, 0, (1, 0, 0)); // and at the end
    check_support(&[(0, 0, 1), (0, 8, 9), (1, 4, 5)], 0, 1, (1, 1, 0)); // one instance on either side
    check_support(&[(0, 0, 3), (0, 2, 9), (1, 4, 5)], 0, 0, (1, 0, 1)); // instances of one segment overlap
    check_support(&[(0, 0, 2), (0, 2, 9)], 0, 0, (1, 0, 0));
    check_support(&[(0, 0, 2), (1, 2, 9)], 0, 0, (0, 0, 0)); // one instance is not a pair
    check_support(
        &[(0, 0, 9), (0, 5, 20), (1, 2, 7), (1, 8, 30)],
        0,
        1,
        (1, 1, 1),
    ); // once a trace
    check_support(&[(0, start, 0), (1, 0, end)], 0, 1, (1, 0, 0)); // a time that no word holds
    check_support(&[(0, start, 1), (1, 0, end)], 0, 1, (1, 1, 1));
    // Times so far apart that time and index do not fit one word.
    let far = 1 << 61;
    check_support(
        &[(0, 0, 2 * far + 1), (1, 0, far), (2, far + 5, far + 6)],
        1,
        2,
        (1, 0, 0),
    );
}

#[test]
fn changes_show_convergence() {
    let mut model = model_of(&[], labels(4));
    let mut older = model.relations(0.0);
    let mut check = |segments: &[(u32, i64, i64)], expected: (usize, usize, usize, usize)| {
        model.observe(&trace(segments));
        let now = model.relations(0.0);
        let c = now.changes_since(&older);
        let before = (c.happens_before_added, c.happens_before_removed);
        let exclusive = (c.mutual_exclusion_added, c.mutual_exclusion_removed);
        assert_eq!((before.0, before.1, exclusive.0, exclusive.1), expected);
        assert_eq!(now.changes_since(&now), Changes::default());
        older = now;
    };
    check(&[(0, 0, 1), (1, 1, 2), (2, 2, 3)], (3, 0, 0, 0));
    check(&[(0, 0, 1), (1, 1, 2), (2, 2, 3)], (0, 0, 0, 0));
    check(&[(1, 0, 1), (0, 1, 2)], (0, 1, 1, 0)); // 0 and 1 turn out to exclude each other
    check(&[(1, 0, 2), (0, 1, 2)], (0, 0, 0, 1)); // and then not even that
    check(&[(3, 0, 2), (0, 2, 3), (2, 2, 3)], (2, 1, 0, 0));
}

#[test]
fn labels_without_room_are_counted() {
    let mut model = Model::with_max_labels(2);
    let (start, end) = ("start".into(), "end".into());
    let mut id = |task: &str| model.labels_mut().intern(&task.into(), &start, &end);
    assert_eq!(
        [id("a"), id("b"), id("c"), id("a")].map(|id| id.map(|id| id.0)),
        [Some(0), Some(1), None, Some(0)]
    );
    assert_eq!(model.labels().refused(), 1);
    model.observe(&trace(&[(0, 0, 1), (1, 1, 2), (2, 2, 3)]));
    assert_eq!((model.traces(), model.unknown_segments()), (1, 1));
    let mut small = Model::with_max_labels(1);
    small.merge(&model);
    assert_eq!(
        (
            small.traces(),
            small.labels().len(),
            small.labels().refused()
        ),
        (1, 1, 2)
    );
    assert!(small.pairs().is_empty());
}

#[test]
fn parts_that_make_no_model_are_refused() {
    let label = SegmentLabel::new("a", "start", "end");
    let parts = ModelParts {
        max_labels: 8,
        traces: 1,
        refused_labels: 0,
        unknown_segments: 0,
        segments: vec![(label.clone(), Default::default()); 2],
        pairs: Vec::new(),
        pipelines: Vec::new(),
    };
    assert_eq!(
        Model::from_parts(&parts).err(),
        Some(ModelPartsError::RepeatedLabel { label })
    );
    let too_many = ModelParts {
        max_labels: 0,
        ..parts.clone()
    };
    let refused = Model::from_parts(&too_many).err();
    assert_eq!(
        refused,
        Some(ModelPartsError::TooManyLabels {
            segments: 2,
            max_labels: 0
        })
    );
    let (a, b) = (SegmentId(0), SegmentId(1));
    let pair = PairCounts {
        a,
        b,
        cooccurrences: 1,
        contradictions: 0,
        overlaps: 0,
    };
    let unknown = ModelParts {
        segments: parts.segments[..1].to_vec(),
        pairs: vec![pair],
        ..parts
    };
    assert_eq!(
        Model::from_parts(&unknown).err(),
        Some(ModelPartsError::UnknownSegment { a, b })
    );
}
