//! Compares critical path and slack with the enumeration of every path, and with a replay of the
//! request.

use crate::generator::{Random, Structure, any_trace, labels};
use proptest::prelude::*;
use stroboscope_analysis::critical_path::{TracePath, analyse};
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::record::{EventRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::{Segment, SegmentedTrace, segment};

fn learn(traces: &[SegmentedTrace], label_count: usize, tolerance: f64) -> Relations {
    let mut model = Model::new();
    *model.labels_mut() = labels(label_count);
    traces.iter().for_each(|trace| model.observe(trace));
    model.relations(tolerance)
}

/// Returns the predecessors of each segment, by the definition.
fn graph(trace: &SegmentedTrace, relations: &Relations) -> Vec<Vec<usize>> {
    let precedes = |i: usize, j: usize| {
        let (a, b) = (&trace.segments[i], &trace.segments[j]);
        let related = relations.happens_before(a.id, b.id)
            || relations.mutual_exclusion(a.id, b.id)
            || relations.pipelined(a, b);
        i < j && related && a.end_ns <= b.start_ns
    };
    (0..trace.segments.len())
        .map(|j| {
            (0..trace.segments.len())
                .filter(|i| precedes(*i, j))
                .collect()
        })
        .collect()
}

/// Returns the end of the last segment that `counts`, relative to the request's start, if segment
/// `grown` takes `by` longer. The wait of each segment starts after its predecessors.
fn replay(
    (trace, path, graph): (&SegmentedTrace, &TracePath, &[Vec<usize>]),
    (grown, by): (usize, u64),
    counts: impl Fn(usize) -> bool,
) -> u64 {
    let mut ends: Vec<u64> = Vec::new();
    for (index, predecessors) in graph.iter().enumerate() {
        let ready = predecessors.iter().map(|i| ends[*i]).max().unwrap_or(0);
        let segment = &trace.segments[index];
        let duration =
            (segment.end_ns - segment.start_ns) as u64 + if index == grown { by } else { 0 };
        ends.push(ready + path.segments[index].wait_ns + duration);
    }
    (0..ends.len())
        .filter(|index| counts(*index))
        .map(|index| ends[index])
        .max()
        .unwrap_or(0)
}

/// Returns the length of the longest path that ends with `at`, by enumerating all paths.
fn longest_path(path: &TracePath, graph: &[Vec<usize>], at: usize) -> u64 {
    let weight = path.segments[at].duration_ns() + path.segments[at].wait_ns;
    weight
        + graph[at]
            .iter()
            .map(|i| longest_path(path, graph, *i))
            .max()
            .unwrap_or(0)
}

fn check_invariants(trace: &SegmentedTrace, relations: &Relations) -> (TracePath, Vec<Vec<usize>>) {
    let path = analyse(trace, relations);
    let graph = graph(trace, relations);
    assert_eq!(path.latency_ns, (trace.answer_ns - trace.start_ns) as u64);
    assert_eq!(path.critical_path_ns, path.latency_ns);
    let critical: Vec<usize> = path.critical().collect();
    let weights: u64 = critical.iter().map(|i| path.segments[*i].weight_ns()).sum();
    assert_eq!(weights + path.tail_wait_ns, path.latency_ns);
    for pair in critical.windows(2) {
        assert_eq!(path.segments[pair[1]].predecessor, Some(pair[0]));
    }
    let is_late = |index: usize| trace.segments[index].end_ns > trace.answer_ns;
    for (index, timing) in path.segments.iter().enumerate() {
        assert_eq!(timing.after_answer, is_late(index));
        assert!(
            !timing.critical || (timing.slack_ns == 0 && !is_late(index)),
            "a critical segment has slack"
        );
        let latest = graph[index].iter().map(|i| trace.segments[*i].end_ns).max();
        assert_eq!(
            timing.wait_ns,
            (timing.start_ns - latest.unwrap_or(trace.start_ns)) as u64
        );
        let ended_last = graph[index]
            .iter()
            .filter(|i| Some(trace.segments[**i].end_ns) == latest);
        let (timed, instant): (Vec<usize>, Vec<usize>) = ended_last
            .copied()
            .partition(|i| trace.segments[*i].start_ns < trace.segments[*i].end_ns);
        let expected = timed.iter().max().or_else(|| instant.iter().min());
        assert_eq!(timing.predecessor.as_ref(), expected);
        // A segment that ends by the answer may delay the answer; a later one may delay only the
        // last event.
        let all_ns = |grown| match is_late(index) {
            false => replay((trace, &path, &graph), grown, |i| !is_late(i)) + path.tail_wait_ns,
            true => {
                let tail_ns = path
                    .after_answer
                    .as_ref()
                    .map_or(0, |after| after.tail_wait_ns);
                replay((trace, &path, &graph), grown, |_| true) + tail_ns
            }
        };
        let end_ns = if is_late(index) {
            trace.end_ns
        } else {
            trace.answer_ns
        };
        let so_far_ns = (end_ns - trace.start_ns) as u64;
        assert_eq!(all_ns((index, timing.slack_ns)), so_far_ns);
        assert_eq!(all_ns((index, timing.slack_ns + 1)), so_far_ns + 1);
        assert_eq!(all_ns((index, timing.slack_ns + 1000)), so_far_ns + 1000);
    }
    check_after_answer(trace, &path);
    (path, graph)
}

/// Checks that work after the answer has a path of exactly its length, on which each step follows
/// its predecessor.
fn check_after_answer(trace: &SegmentedTrace, path: &TracePath) {
    let Some(after) = &path.after_answer else {
        assert_eq!(trace.answer_ns, trace.end_ns);
        assert!(path.segments.iter().all(|timing| !timing.after_answer));
        return;
    };
    assert_eq!(after.duration_ns, (trace.end_ns - trace.answer_ns) as u64);
    let steps: u64 = after
        .path
        .iter()
        .map(|step| step.wait_ns + step.duration_ns)
        .sum();
    assert_eq!(steps + after.tail_wait_ns, after.duration_ns);
    let mut ready_ns = trace.answer_ns;
    for (at, step) in after.path.iter().enumerate() {
        let timing = &path.segments[step.index];
        assert!(timing.after_answer && timing.slack_ns == 0);
        assert_eq!(step.wait_ns, (timing.start_ns - ready_ns).max(0) as u64);
        assert_eq!(
            step.duration_ns,
            (timing.end_ns - timing.start_ns.max(trace.answer_ns)) as u64
        );
        let before = timing
            .predecessor
            .filter(|before| path.segments[*before].after_answer);
        assert_eq!(
            before,
            at.checked_sub(1).map(|before| after.path[before].index)
        );
        ready_ns = timing.end_ns;
    }
    let last_ns = path
        .segments
        .iter()
        .filter(|timing| timing.after_answer)
        .map(|timing| timing.end_ns)
        .max();
    assert_eq!(
        after
            .path
            .last()
            .map(|step| path.segments[step.index].end_ns),
        last_ns
    );
}

/// Returns the trace with an answer at this fraction between its first event and its last.
fn answered(trace: SegmentedTrace, part: f64) -> SegmentedTrace {
    let answer_ns = trace.start_ns + ((trace.end_ns - trace.start_ns) as f64 * part).round() as i64;
    trace.answered_at(answer_ns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn requests_that_go_on_after_their_answer(
        traces in proptest::collection::vec((any_trace(8, 10), 0.0f64..1.0), 1..6), tolerance in prop_oneof![Just(0.0), 0.0..1.0],
    ) {
        let traces: Vec<_> = traces.into_iter().map(|(trace, part)| answered(trace, part)).collect();
        let relations = learn(&traces, 8, tolerance);
        for trace in &traces {
            let (path, graph) = check_invariants(trace, &relations);
            // The part up to the answer equals a request without work after the answer.
            let by_answer = |segment: &&Segment| segment.end_ns <= trace.answer_ns;
            let segments: Vec<Segment> = trace.segments.iter().filter(by_answer).copied().collect();
            let alone = SegmentedTrace::new(TraceId(1), None, trace.start_ns, trace.answer_ns, segments);
            let alone = analyse(&alone, &relations);
            let in_time = || path.segments.iter().filter(|timing| !timing.after_answer);
            prop_assert!(in_time().map(|t| (t.segment, t.start_ns, t.wait_ns, t.critical, t.slack_ns)).eq(
                alone.segments.iter().map(|t| (t.segment, t.start_ns, t.wait_ns, t.critical, t.slack_ns))
            ));
            let in_time = (0..graph.len()).filter(|at| !path.segments[*at].after_answer);
            let longest = in_time.map(|at| longest_path(&path, &graph, at)).max().unwrap_or(0);
            prop_assert_eq!(longest + path.tail_wait_ns, path.critical_path_ns);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn paths_and_slack_equal_their_twins(
        traces in proptest::collection::vec(any_trace(8, 10), 1..6), tolerance in prop_oneof![Just(0.0), 0.0..1.0],
    ) {
        let relations = learn(&traces, 8, tolerance);
        for trace in &traces {
            let (path, graph) = check_invariants(trace, &relations);
            let longest = (0..graph.len()).map(|at| longest_path(&path, &graph, at)).max().unwrap_or(0);
            prop_assert_eq!(longest + path.tail_wait_ns, path.critical_path_ns);
        }
    }

    /// A trace that the model has not observed may contradict it in any way.
    #[test]
    fn invariants_hold_for_traces_the_model_never_saw(
        seen in any_trace(8, 10), unseen in any_trace(10, 14),
    ) {
        check_invariants(&unseen, &learn(&[seen], 8, 0.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]
    #[test]
    fn invariants_hold_for_requests_with_locks_and_branches(seed in any::<u64>()) {
        let mut random = Random(seed);
        let leaves = 1 + random.below(40);
        let structure = Structure::random(&mut random, 0, leaves);
        let traces: Vec<_> = (0..60).map(|_| structure.run(&mut random)).collect();
        let relations = learn(&traces, leaves, 0.0);
        for trace in &traces {
            check_invariants(trace, &relations);
        }
    }
}

/// Checks the path of a request with the segments `(label, start, end)`. The expected text lists
/// `label:wait/slack` for each segment, with `*` if it is critical.
#[track_caller]
fn check(
    request: (i64, i64),
    segments: &[(u32, i64, i64)],
    others: &[&[(u32, i64, i64)]],
    expected: &str,
) {
    let trace = |request: (i64, i64), segments: &[(u32, i64, i64)]| {
        let segments = segments
            .iter()
            .map(|&(id, start_ns, end_ns)| Segment::new(SegmentId(id), start_ns, end_ns));
        SegmentedTrace::new(TraceId(1), None, request.0, request.1, segments.collect())
    };
    let mut traces = vec![trace(request, segments)];
    traces.extend(others.iter().map(|segments| trace((0, 0), segments)));
    let relations = learn(&traces, 8, 0.0);
    let (path, _) = check_invariants(&traces[0], &relations);
    let shown: Vec<String> = path
        .segments
        .iter()
        .map(|s| {
            format!(
                "{}:{}/{}{}",
                s.segment.0,
                s.wait_ns,
                s.slack_ns,
                if s.critical { "*" } else { "" }
            )
        })
        .collect();
    assert_eq!(shown.join(" "), expected);
}

#[test]
fn golden_paths() {
    check((0, 0), &[], &[], "");
    check((0, 50), &[], &[], ""); // a request without segments is all tail
    check((0, 10), &[(0, 0, 10)], &[], "0:0/0*");
    check((0, 30), &[(0, 2, 10), (1, 15, 30)], &[], "0:2/0* 1:5/0*"); // waits before and between
    check((0, 40), &[(0, 0, 10), (1, 10, 30)], &[], "0:0/0* 1:0/0*"); // a tail
    // Figure 2 of the paper: S1, then S2 and N1 in parallel, then N2 after S2 and C1 after N1, then
    // C2 after all others.
    let order = [
        (0, 0, 10),
        (1, 10, 40),
        (2, 10, 15),
        (3, 40, 50),
        (4, 15, 25),
        (5, 50, 60),
    ];
    let other: &[(u32, i64, i64)] = &[
        (0, 0, 10),
        (1, 10, 12),
        (2, 10, 30),
        (3, 12, 35),
        (4, 30, 50),
        (5, 50, 60),
    ];
    // Segments are shown in order of start, then end.
    check(
        (0, 60),
        &order,
        &[other],
        "0:0/0* 2:0/25 1:0/0* 4:0/25 3:0/0* 5:0/0*",
    );
    // A lock: the later segment waited for the earlier one.
    check(
        (0, 20),
        &[(0, 0, 10), (1, 10, 20)],
        &[&[(1, 0, 10), (0, 10, 20)]],
        "0:0/0* 1:0/0*",
    );
    // No relation, because the segments overlap in the other request: the one that ends first has
    // slack.
    check(
        (0, 20),
        &[(0, 0, 10), (1, 10, 20)],
        &[&[(0, 0, 10), (1, 5, 20)]],
        "0:0/10 1:10/0*",
    );
    // Several instances of one segment that never overlap follow each other.
    check(
        (0, 30),
        &[(0, 0, 10), (0, 10, 20), (0, 20, 30)],
        &[],
        "0:0/0* 0:0/0* 0:0/0*",
    );
    // A tie: of the segments that end last, the first is critical.
    check((0, 10), &[(0, 0, 10), (1, 0, 10)], &[], "0:0/0* 1:0/0");
}

/// Returns the number of critical segments of a loop of a hundred thousand events at these times.
/// This would take minutes if the analysis compared every pair of the loop's instances.
fn critical_of_loop(time_ns: impl Fn(u32) -> i64) -> usize {
    let event = |seq: u32| EventRecord {
        host: "h".into(),
        ts_ns: time_ns(seq),
        seq,
        event: ["read", "write", "flush"][seq as usize % 3].into(),
        task: "loop".into(),
    };
    let records = TraceRecords {
        events: (0..100_000).map(event).collect(),
        ..TraceRecords::default()
    };
    let mut model = Model::new();
    let (trace, _) = segment(&records, model.labels_mut());
    model.observe(&trace);
    let path = analyse(&trace, &model.relations(0.0));
    assert_eq!(path.segments.len(), 99_999);
    assert_eq!(path.critical_path_ns, time_ns(99_999) as u64);
    path.critical().count()
}

#[test]
fn a_loop_of_a_hundred_thousand_events_ends_in_good_time() {
    assert_eq!(critical_of_loop(|seq| i64::from(seq) * 7), 99_999);
}

/// The times are whole seconds, as in many logs. Only one segment takes time.
#[test]
fn a_loop_of_a_hundred_thousand_events_in_two_instants_ends_in_good_time() {
    let critical = critical_of_loop(|seq| i64::from(seq / 50_000) * 1_000_000_000);
    assert!(critical >= 1, "{critical}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Many labels repeat, mostly in sequence, so that few predecessors represent many.
    #[test]
    fn invariants_hold_where_many_labels_repeat(seed in any::<u64>(), labels in 35..90u32, disorder in 1..12usize) {
        let mut random = Random(seed);
        let mut segments = Vec::new();
        let mut at_ns = 0;
        for turn in 0..3 * labels {
            // Some segments are out of turn, start at the same instant, have no length, or overlap
            // the next ones.
            let label = if random.below(disorder) == 0 { random.below(labels as usize) as u32 } else { turn % labels };
            at_ns += random.below(4) as i64;
            let length_ns = if random.below(8) == 0 { random.below(40) } else { random.below(4) };
            segments.push(Segment::new(SegmentId(label), at_ns, at_ns + length_ns as i64));
        }
        let trace = SegmentedTrace::new(TraceId(1), None, 0, at_ns + 50, segments);
        let relations = learn(std::slice::from_ref(&trace), labels as usize, 0.0);
        check_invariants(&trace, &relations);
        // A looser model contains relations that this trace contradicts.
        let path = analyse(&trace, &learn(std::slice::from_ref(&trace), labels as usize, 1.0));
        prop_assert_eq!(path.critical_path_ns, path.latency_ns);
    }
}
