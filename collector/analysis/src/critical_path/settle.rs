//! Corrects timestamps within their error bounds.
//!
//! With inexact timestamps, a segment A may seem to end after the start of a segment B that, by the
//! model, waited for A. As recorded, B would not have A as a predecessor, and A would have slack
//! that does not exist. If the overlap is within the bounds of the timestamps, this module moves
//! the end of A, the start of B or both so that A ends by the start of B. It moves neither if A
//! starts after the end of B.

use super::TracePath;
use crate::model::Relations;
use crate::segment::{Segment, SegmentedTrace};

/// Maximum number of segments examined for each segment, among those that end after its start.
const LOOK_MAX: usize = 256;

/// Moves ends that are recorded too late and starts that are recorded too early, so that the
/// relations hold in this trace where the bounds allow it. Examines at most 256 segments for
/// each segment. The request keeps its length.
pub fn settle(trace: &mut SegmentedTrace, relations: &Relations) {
    if trace.is_exact() {
        return;
    }
    let segments = &trace.segments;
    let mut by_end: Vec<u32> = (0..segments.len() as u32).collect();
    by_end.sort_unstable_by_key(|i| (segments[*i as usize].end_ns, *i));
    let mut times: Vec<(i64, i64)> = segments.iter().map(|s| (s.start_ns, s.end_ns)).collect();
    for (index, later) in segments.iter().enumerate() {
        let after = by_end.partition_point(|i| segments[*i as usize].end_ns <= later.start_ns);
        for &other in by_end[after..].iter().take(LOOK_MAX) {
            let (other, earlier) = (other as usize, &segments[other as usize]);
            let by_ns = earlier.end_ns.abs_diff(later.start_ns);
            let tolerance_ns = trace.tolerance_ns(earlier.end_clock, later.start_clock);
            // A tolerance of `u64::MAX` means that the clocks are on different islands; such
            // timestamps cannot be corrected.
            let is_within = by_ns <= tolerance_ns && tolerance_ns < u64::MAX;
            if other == index
                || !is_within
                || !comes_first(relations, (other, earlier), (index, later))
            {
                continue;
            }
            let (earlier_start_ns, earlier_end_ns) = times[other];
            let (later_start_ns, later_end_ns) = times[index];
            if earlier_start_ns <= later_start_ns {
                times[other].1 = earlier_end_ns.min(later_start_ns);
            } else if earlier_end_ns <= later_end_ns {
                times[index].0 = earlier_end_ns;
            } else if earlier_start_ns <= later_end_ns {
                times[other].1 = earlier_start_ns;
                times[index].0 = earlier_start_ns;
            }
        }
    }
    for (segment, (start_ns, end_ns)) in trace.segments.iter_mut().zip(times) {
        (segment.start_ns, segment.end_ns) = (start_ns, end_ns.max(start_ns));
    }
    trace.sort();
}

/// Sets the slack of each segment to 0 if it does not exceed the error bounds of the timestamps,
/// because such slack may not exist.
pub fn drop_unsure_slack(trace: &SegmentedTrace, path: &mut TracePath) {
    if trace.is_exact() {
        return;
    }
    let Some(last) = trace.segments.iter().max_by_key(|segment| segment.end_ns) else {
        return;
    };
    for (timing, segment) in path.segments.iter_mut().zip(&trace.segments) {
        if timing.slack_ns <= trace.tolerance_ns(segment.end_clock, last.end_clock) {
            timing.slack_ns = 0;
        }
    }
}

/// Reports whether, by the model, segment `b` waits for segment `a`. If they exclude each other or
/// form a pipeline, the first in the trace comes first.
fn comes_first(
    relations: &Relations,
    (at, a): (usize, &Segment),
    (later_at, b): (usize, &Segment),
) -> bool {
    let either_order =
        || at < later_at && (relations.mutual_exclusion(a.id, b.id) || relations.pipelined(a, b));
    relations.happens_before(a.id, b.id) || either_order()
}
