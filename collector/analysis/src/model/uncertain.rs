//! Computes the answers for a trace whose timestamps have error bounds. An order within these
//! bounds contradicts no hypothesis.
//!
//! Two timestamps of one coarse clock may have been taken in either order if they are equal or
//! neighbouring multiples of its resolution. Timestamps of two clocks may also be off by the errors
//! of both. Between islands, which nothing ties together, no order is known. The tolerance may
//! therefore differ from pair to pair. A running set cannot represent this, so all pairs of
//! instances are compared, in traces of at most `PAIRWISE_MAX` segments. Two orders are certain
//! without clocks: a segment starts before it ends, and the segments of a thread follow each other.

use crate::segment::{ClockBounds, Segment, SegmentedTrace};
use std::collections::BTreeSet;

/// Maximum number of segments of a trace whose pairs are all compared. For more segments, this
/// takes too long.
pub(super) const PAIRWISE_MAX: usize = 2048;

/// Reports whether `x` certainly starts before `y` ends.
pub(super) fn starts_before_end(trace: &SegmentedTrace, x: &Segment, y: &Segment) -> bool {
    if x.step.is_with(y.step) {
        return x.step.is_before(y.step);
    }
    let before = |(x_ns, x_clock): (i64, _), (y_ns, y_clock): (i64, _)| {
        x_ns.saturating_add_unsigned(trace.tolerance_ns(x_clock, y_clock)) < y_ns
    };
    let (x_start, x_end) = ((x.start_ns, x.start_clock), (x.end_ns, x.end_clock));
    let (y_start, y_end) = ((y.start_ns, y.start_clock), (y.end_ns, y.end_clock));
    before(x_start, y_end)
        || before(x_end, y_end)
        || before(x_start, y_start)
        || before(x_end, y_start)
}

/// Calls `answer` for each ordered pair of instances (a, b) in which b certainly starts before a
/// ends. The third argument of `answer` is `true` if a also certainly starts before b ends, so that
/// the two overlap.
pub(super) fn compare_pairs(
    trace: &SegmentedTrace,
    segments: &[Segment],
    mut answer: impl FnMut(usize, usize, bool),
) {
    for (i, a) in segments.iter().enumerate() {
        for (j, b) in segments.iter().enumerate().skip(i + 1) {
            // Starts are in order unless some were moved, so this test settles most pairs.
            let may_be_first =
                b.start_ns < a.end_ns || b.step.is_with(a.step) || !trace.moved.is_empty();
            let b_first = may_be_first && starts_before_end(trace, b, a);
            let a_first = starts_before_end(trace, a, b);
            if b_first {
                answer(i, j, a_first);
            }
            if a_first {
                answer(j, i, b_first);
            }
        }
    }
}

/// Returns the segments of each island at their shortest possible length, in order of start, each
/// with its index. A contradiction or an overlap that these segments show is certain. This is more
/// cautious than necessary: it treats the errors of one clock's timestamps as independent, and it
/// leaves out segments between islands. A segment that may have had no length does not end after
/// its start.
pub(super) fn shrunk(trace: &SegmentedTrace, segments: &[Segment]) -> Vec<Vec<(Segment, u32)>> {
    let bounds = |s: &Segment| {
        (
            trace.clock_bounds(s.start_clock),
            trace.clock_bounds(s.end_clock),
        )
    };
    let tick_ns = trace
        .clocks
        .iter()
        .map(|clock| clock.tick_ns)
        .max()
        .unwrap_or(0);
    let islands: BTreeSet<u32> = segments.iter().map(|s| bounds(s).0.island).collect();
    let shrunk_on = |island: u32| {
        let of_island = segments.iter().zip(0u32..).filter(|(s, _)| {
            let (start, end): (ClockBounds, ClockBounds) = bounds(s);
            start.island == island && end.island == island
        });
        let shrink = |(s, index): (&Segment, u32)| {
            let (start, end) = bounds(s);
            let start_ns = s.start_ns.saturating_add_unsigned(start.error_ns);
            let end_ns = s
                .end_ns
                .saturating_sub_unsigned(end.error_ns.saturating_add(tick_ns));
            (
                Segment {
                    start_ns,
                    end_ns,
                    ..*s
                },
                index,
            )
        };
        let mut shrunk: Vec<(Segment, u32)> = of_island.map(shrink).collect();
        shrunk.sort_unstable_by_key(|(s, index)| (s.start_ns, s.end_ns, s.id, *index));
        shrunk
    };
    islands.into_iter().map(shrunk_on).collect()
}

/// Returns the segments with ends that are `tolerance_ns` earlier; `shrunk` is the buffer for them.
/// Timestamps at most `tolerance_ns` apart have no known order, so a segment that starts before one
/// of these earlier ends certainly started before the real end.
pub(super) fn shrink_ends<'a>(
    segments: &'a [Segment],
    tolerance_ns: u64,
    shrunk: &'a mut Vec<Segment>,
) -> &'a [Segment] {
    if tolerance_ns == 0 {
        return segments;
    }
    shrunk.clear();
    let shorter = |s: &Segment| Segment {
        end_ns: s.end_ns.saturating_sub_unsigned(tolerance_ns),
        ..*s
    };
    shrunk.extend(segments.iter().map(shorter));
    shrunk
}
