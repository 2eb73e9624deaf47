//! Critical path and slack of one request (The Mystery Machine, §4.4.1 and §4.4.2).
//!
//! The vertices are the request's segments. A segment A is a predecessor of a segment B if A ended
//! by the start of B in this request, and if the model relates the two. The relation may be that A
//! happens before B, that they exclude each other, or that they work on one data element in a
//! pipeline of their tasks. The weight of a segment is its duration plus its *wait*. The wait
//! begins at the latest end among the predecessors, or at the first event if there are none, and
//! ends at the segment's start. No predecessor explains that time. If the request continues after
//! its last segment, that *tail* is a wait as well.
//!
//! Two facts follow. First, the longest path to a segment's end is exactly the time from the first
//! event to that end. The proof is by induction, as a segment's weight is measured from the latest
//! end of its predecessors. The critical path is therefore exactly as long as the request. Second,
//! slack is never negative, and is zero on the critical path.
//!
//! **After the answer.** The request is over when its caller has the answer
//! ([`SegmentedTrace::answer_ns`]). Only segments that ended by then are on its critical path, and
//! have slack with respect to it. A segment that ended later did not delay the answer, even if it
//! began before. All segments that produced the answer had ended by then, and none of them waited
//! for a segment that ended later. Later segments have a path of their own, from the answer to the
//! last event ([`AfterAnswer`]), and slack with respect to its end.

mod across;
mod after_answer;
mod predecessors;
mod repeated;
mod settle;

pub use across::{Entry, LEGS_MAX, Leg, LinkedRequests, PathAcross, path_across};
pub use after_answer::{AfterAnswer, LateStep};
pub(crate) use predecessors::Predecessors;
pub use settle::{drop_unsure_slack, settle};

use crate::label::SegmentId;
use crate::model::Relations;
use crate::segment::{SegmentedTrace, interval_ns};

/// Timing of one segment of a request, and its contribution to the request's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTiming {
    /// The segment's number.
    pub segment: SegmentId,
    /// Start of the segment, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End of the segment, in nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Time from the latest end among the segment's predecessors, or from the first event if it has
    /// none, to the segment's start.
    pub wait_ns: u64,
    /// True if the segment lies on the critical path.
    pub critical: bool,
    /// True if the segment ended after the answer, so the caller did not wait for it.
    pub after_answer: bool,
    /// Time by which the segment alone may grow before the request takes longer or, if the segment
    /// ended after the answer, before the work after the answer does. May be 0 instead: see
    /// [`SlackUse::Ignored`] and [`drop_unsure_slack`].
    pub slack_ns: u64,
    /// The predecessor that ended last, as an index into [`TracePath::segments`]; `None` if the
    /// segment has no predecessor.
    pub predecessor: Option<usize>,
}

impl SegmentTiming {
    /// Returns the duration of the segment.
    pub fn duration_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.end_ns)
    }

    /// Returns the segment's contribution to a path: its duration plus its wait.
    pub fn weight_ns(&self) -> u64 {
        self.duration_ns() + self.wait_ns
    }
}

/// The critical path and slack of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePath {
    /// Time from the first event to the answer.
    pub latency_ns: u64,
    /// Sum of the critical segments' weights and the tail. Always equal to `latency_ns`.
    pub critical_path_ns: u64,
    /// Tail: time from the end of the last critical segment, or from the first event if there is
    /// none, to the answer. Part of the critical path.
    pub tail_wait_ns: u64,
    /// Timings in the order of [`SegmentedTrace::segments`].
    pub segments: Vec<SegmentTiming>,
    /// Work that continued after the answer, if any.
    pub after_answer: Option<Box<AfterAnswer>>,
}

impl TracePath {
    /// Iterates over the critical path, from the request's start to its answer, as indices into
    /// `segments`.
    pub fn critical(&self) -> impl Iterator<Item = usize> {
        // Segments are sorted by time, and a predecessor comes before its successor.
        let numbered = self.segments.iter().enumerate();
        let critical = numbered.filter(|(_, timing)| timing.critical);
        critical.map(|(index, _)| index)
    }
}

/// Finds the critical path and every segment's slack. The trace and the relations must use the
/// segment ids of one model. A segment that the model does not know has no predecessors and no
/// successors.
///
/// If several segments end last, the path ends with the first of them in the order of the trace. If
/// several predecessors end last, the segment waited for the one that took time and started last,
/// or, if none of them took time, for the first in the order of the trace.
///
/// The running time is at most proportional to the number of segments times the square of the
/// number of labels. In a pipeline, it is also quadratic in the number of segments of one element.
/// It is much shorter if many segments are ordered.
pub fn analyse(trace: &SegmentedTrace, relations: &Relations) -> TracePath {
    analyse_for(trace, relations, SlackUse::Needed)
}

/// Caller's need for the slack of a request's segments. Slack takes a second sweep over the
/// predecessors of all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlackUse {
    /// The caller needs each segment's slack.
    Needed,
    /// The caller needs only the critical path. The slack of each segment may be set to 0.
    Ignored,
}

/// Finds the critical path like [`analyse`], and every segment's slack if it is needed.
pub fn analyse_for(trace: &SegmentedTrace, relations: &Relations, slack: SlackUse) -> TracePath {
    debug_assert!(
        trace
            .segments
            .is_sorted_by_key(|s| (s.start_ns, s.end_ns, s.id)),
        "see SegmentedTrace::new"
    );
    match trace.after_answer_ns() {
        0 => analyse_whole(trace, relations, slack),
        _ => after_answer::analyse(trace, relations, slack),
    }
}

/// Analyses a whole trace, from its first event to its last.
fn analyse_whole(trace: &SegmentedTrace, relations: &Relations, slack: SlackUse) -> TracePath {
    let latency_ns = interval_ns(trace.start_ns, trace.end_ns);
    let predecessors = Predecessors::of(trace, relations);
    let mut segments = timings(trace, &predecessors);
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
    debug_assert_eq!(
        critical_path_ns, latency_ns,
        "the critical path is not as long as the request"
    );
    let tails = match slack {
        SlackUse::Ignored => Vec::new(),
        // The paper's CPend of every segment: the longest path from its end to the last event.
        SlackUse::Needed => predecessors.fold_successors(tail_wait_ns, |index, its_tail_ns| {
            segments[index].weight_ns() + its_tail_ns
        }),
    };
    for (timing, tail_ns) in segments.iter_mut().zip(tails) {
        // The paper's CPstart plus the weight, by the first fact of the module's documentation.
        let head_ns = interval_ns(trace.start_ns, timing.end_ns);
        let slack_ns = critical_path_ns.saturating_sub(head_ns);
        timing.slack_ns = slack_ns.saturating_sub(tail_ns);
    }
    TracePath {
        latency_ns,
        critical_path_ns,
        tail_wait_ns,
        segments,
        after_answer: None,
    }
}

/// Computes waits and latest predecessors. Criticality and slack are not set yet.
fn timings(trace: &SegmentedTrace, predecessors: &Predecessors<'_>) -> Vec<SegmentTiming> {
    let mut timings = Vec::with_capacity(trace.segments.len());
    predecessors.for_each_latest(|index, predecessor| {
        let segment = &trace.segments[index];
        let ready_ns = predecessor.map_or(trace.start_ns, |i| trace.segments[i].end_ns);
        timings.push(SegmentTiming {
            segment: segment.id,
            start_ns: segment.start_ns,
            end_ns: segment.end_ns,
            wait_ns: interval_ns(ready_ns, segment.start_ns),
            critical: false,
            after_answer: false,
            slack_ns: 0,
            predecessor,
        });
    });
    timings
}

/// Returns the index of the largest value; of several, the first.
fn first_max(values: impl Iterator<Item = i64>) -> Option<usize> {
    let numbered = values.enumerate();
    let largest = numbered.reduce(|best, next| if next.1 > best.1 { next } else { best });
    largest.map(|(index, _)| index)
}
