//! Analyses requests that continued after their caller had its answer.
//!
//! A predecessor ends by the start of its successor. A segment that ended after the answer is
//! therefore not a predecessor of one that ended by the answer. So the two parts can be analysed
//! separately, and the work after the answer does not affect the critical path of the request.

use super::{SlackUse, TracePath, analyse_whole, first_max};
use crate::model::Relations;
use crate::segment::{SegmentedTrace, interval_ns};

/// Work after a request's answer, and the chain of segments that determines its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterAnswer {
    /// Time from the answer to the last event.
    pub duration_ns: u64,
    /// The chain of segments that determines the duration, in order of time. Their waits and
    /// durations plus the tail add up to exactly `duration_ns`.
    pub path: Vec<LateStep>,
    /// Time from the last segment's end to the last event; `duration_ns` if no segment ended after
    /// the answer.
    pub tail_wait_ns: u64,
}

/// A segment on the path from the answer to the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateStep {
    /// Index of the segment in [`TracePath::segments`].
    pub index: usize,
    /// Part of the segment's wait that lies after the answer.
    pub wait_ns: u64,
    /// Part of the segment's duration that lies after the answer.
    pub duration_ns: u64,
}

/// Like [`analyse_for`](super::analyse_for), for a request that continued after its answer.
pub(super) fn analyse(trace: &SegmentedTrace, relations: &Relations, slack: SlackUse) -> TracePath {
    let is_late = |index: usize| trace.segments[index].end_ns > trace.answer_ns;
    let all = 0..trace.segments.len();
    let places: Vec<usize> = all.filter(|index| !is_late(*index)).collect();
    let request = SegmentedTrace {
        segments: places.iter().map(|index| trace.segments[*index]).collect(),
        end_ns: trace.answer_ns,
        name: None,
        clocks: trace.clocks.clone(),
        moved: trace.moved.clone(),
        ..*trace
    };
    let mut path = analyse_whole(&request, relations, slack);
    let whole = analyse_whole(trace, relations, slack);
    let mut segments = whole.segments;
    for (place, timing) in places.iter().zip(&path.segments) {
        let predecessor = timing.predecessor.map(|index| places[index]);
        debug_assert_eq!(
            segments[*place].predecessor, predecessor,
            "what is late came before what is not"
        );
        segments[*place] = super::SegmentTiming {
            predecessor,
            ..*timing
        };
    }
    let numbered = segments.iter_mut().enumerate();
    for (_, timing) in numbered.filter(|(index, _)| is_late(*index)) {
        timing.critical = false;
        timing.after_answer = true;
    }
    let last = first_max(trace.segments.iter().map(|segment| segment.end_ns));
    let last = last.filter(|last| is_late(*last));
    let (mut steps, mut at) = (Vec::new(), last);
    while let Some(index) = at {
        let timing = &segments[index];
        let ready_ns = timing.start_ns.saturating_sub_unsigned(timing.wait_ns);
        steps.push(LateStep {
            index,
            wait_ns: interval_ns(ready_ns.max(trace.answer_ns), timing.start_ns),
            duration_ns: interval_ns(timing.start_ns.max(trace.answer_ns), timing.end_ns),
        });
        at = timing.predecessor.filter(|before| is_late(*before));
    }
    steps.reverse();
    let last_end_ns = last.map_or(trace.answer_ns, |last| segments[last].end_ns);
    path.after_answer = Some(Box::new(AfterAnswer {
        duration_ns: trace.after_answer_ns(),
        path: steps,
        tail_wait_ns: interval_ns(last_end_ns, trace.end_ns),
    }));
    TracePath { segments, ..path }
}
