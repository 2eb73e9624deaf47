//! Critical path and slack of one request (The Mystery Machine, §4.4.1 and §4.4.2).
//!
//! The vertices are the request's segments. A is a predecessor of B when the model holds A→B, or holds them for mutually
//! exclusive, or their tasks for a pipeline and both work on one data element; always, A ended before B started in this
//! request. A segment weighs its duration
//! and its *wait*: the time from the latest end among its predecessors (from the first event, if it has none) to its
//! start, which nobody logged. Where the request goes on after its last segment, that *tail* is waited for as well.
//!
//! Two facts follow, and are asserted. The longest path to a segment's end is the time from the first event to that end:
//! by induction, as its weight is measured from the latest of its predecessors' ends. So the critical path is
//! exactly as long as the request. And slack is never negative, and zero on the critical path.

use crate::label::SegmentId;
use crate::model::{Relations, bit};
use crate::segment::{Segment, SegmentedTrace, interval_ns};

/// One segment of a request, and its part in the request's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTiming {
    /// Which segment.
    pub segment: SegmentId,
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Time between the latest end among its predecessors (the first event, if it has none) and its start.
    pub wait_ns: u64,
    /// Whether it lies on the critical path.
    pub critical: bool,
    /// By how much it may grow, all else staying the same, before the request takes longer.
    pub slack_ns: u64,
    /// The predecessor that ended last, as an index into [`TracePath::segments`].
    pub predecessor: Option<usize>,
}

impl SegmentTiming {
    /// How long the segment took.
    pub fn duration_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.end_ns)
    }

    /// Duration and wait: what the segment adds to a path.
    pub fn weight_ns(&self) -> u64 {
        self.duration_ns() + self.wait_ns
    }
}

/// The critical path and slack of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePath {
    /// From the first event to the last.
    pub latency_ns: u64,
    /// The sum of the critical segments' weights, and the tail. Always equal to `latency_ns`.
    pub critical_path_ns: u64,
    /// Time after the last segment in which the request went on and nothing was logged. Part of the critical path.
    pub tail_wait_ns: u64,
    /// In the order of [`SegmentedTrace::segments`].
    pub segments: Vec<SegmentTiming>,
}

impl TracePath {
    /// The critical path, from the request's start to its end, as indices into `segments`.
    pub fn critical(&self) -> impl Iterator<Item = usize> {
        // Segments are sorted by time, and a predecessor comes before its successor.
        self.segments.iter().enumerate().filter(|(_, timing)| timing.critical).map(|(index, _)| index)
    }
}

/// Finds the critical path and every segment's slack. The trace's segment ids must be of the model the relations are
/// of; a segment the model does not know has no predecessors and no successors.
///
/// Ties go to the first in the order of the trace: of several segments that end last, and of several predecessors that
/// end last. Takes time quadratic in the number of segments, at one bit test a pair.
pub fn analyse(trace: &SegmentedTrace, relations: &Relations) -> TracePath {
    debug_assert!(
        trace.segments.is_sorted_by_key(|s| (s.start_ns, s.end_ns, s.id)),
        "see SegmentedTrace::new"
    );
    let latency_ns = trace.latency_ns();
    let mut segments = timings(trace, relations);
    let last = first_max(trace.segments.iter().map(|s| s.end_ns));
    let last_end_ns = last.map_or(trace.start_ns, |last| trace.segments[last].end_ns);
    let tail_wait_ns = interval_ns(last_end_ns, trace.end_ns);
    let mut critical_path_ns = tail_wait_ns;
    let mut at = last;
    while let Some(index) = at {
        segments[index].critical = true;
        critical_path_ns += segments[index].weight_ns();
        at = segments[index].predecessor;
    }
    debug_assert_eq!(critical_path_ns, latency_ns, "the critical path is not as long as the request");
    let tails = longest_tails(&trace.segments, &segments, relations, tail_wait_ns);
    for (timing, tail_ns) in segments.iter_mut().zip(tails) {
        // CPstart + weight, by the first of the two facts.
        let head_ns = interval_ns(trace.start_ns, timing.end_ns);
        timing.slack_ns = critical_path_ns.saturating_sub(head_ns).saturating_sub(tail_ns);
    }
    TracePath { latency_ns, critical_path_ns, tail_wait_ns, segments }
}

/// Whether `a`, which is before `b` in the order of the trace, is a predecessor of `b`. `row` is `b`'s
/// [`Relations::ordered_before`].
fn precedes(a: &Segment, b: &Segment, row: &[u64], relations: &Relations) -> bool {
    a.end_ns <= b.start_ns && (bit(row, a.id.index()) || relations.pipelined(a, b))
}

/// Waits and latest predecessors; criticality and slack are still to be found.
fn timings(trace: &SegmentedTrace, relations: &Relations) -> Vec<SegmentTiming> {
    let mut timings = Vec::with_capacity(trace.segments.len());
    // The segments seen so far, in order of end and, among equals, from the last to the first of the trace's order:
    // read backwards, the first predecessor found is the one wanted.
    let mut by_end: Vec<usize> = Vec::with_capacity(trace.segments.len());
    for (index, segment) in trace.segments.iter().enumerate() {
        let row = relations.ordered_before(segment.id);
        let ended = by_end.partition_point(|i| trace.segments[*i].end_ns <= segment.start_ns);
        let latest = by_end[..ended]
            .iter()
            .rev()
            .copied()
            .find(|i| precedes(&trace.segments[*i], segment, row, relations));
        let ready_ns = latest.map_or(trace.start_ns, |i| trace.segments[i].end_ns);
        timings.push(SegmentTiming {
            segment: segment.id,
            start_ns: segment.start_ns,
            end_ns: segment.end_ns,
            wait_ns: interval_ns(ready_ns, segment.start_ns),
            critical: false,
            slack_ns: 0,
            predecessor: latest,
        });
        let place = by_end.partition_point(|i| trace.segments[*i].end_ns < segment.end_ns);
        by_end.insert(place, index);
    }
    timings
}

/// CPend of every segment: the longest path from its end to the last event.
fn longest_tails(
    segments: &[Segment],
    timings: &[SegmentTiming],
    relations: &Relations,
    tail_wait_ns: u64,
) -> Vec<u64> {
    let mut tails = vec![tail_wait_ns; segments.len()];
    // Backwards, so that a segment's own tail is known before it is handed to its predecessors.
    for (index, segment) in segments.iter().enumerate().rev() {
        let row = relations.ordered_before(segment.id);
        let through_ns = timings[index].weight_ns() + tails[index];
        for (earlier, tail_ns) in segments[..index].iter().zip(&mut tails) {
            if precedes(earlier, segment, row, relations) {
                *tail_ns = (*tail_ns).max(through_ns);
            }
        }
    }
    tails
}

/// The index of the largest; of several, the first.
fn first_max(values: impl Iterator<Item = i64>) -> Option<usize> {
    let largest = values.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    largest.map(|(index, _)| index)
}
