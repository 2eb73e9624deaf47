//! Answers for a trace whose timestamps have error bounds: an order within the bounds contradicts nothing.
//!
//! Timestamps of one clock are exact among themselves; those of two clocks may each be off by their clocks' errors. So
//! the tolerance differs from pair to pair, which no running set can follow, and all pairs of instances are compared.

use crate::segment::{ClockId, Segment};

/// Past so many segments, comparing all pairs would take too long.
pub(super) const PAIRWISE_MAX: usize = 2048;

/// One end of a segment, as it compares with the ends of others.
#[derive(Clone, Copy)]
struct Instant {
    exact_ns: i64,
    /// The latest (of a start) or earliest (of an end) that it can have been.
    cautious_ns: i64,
    clock: ClockId,
}

impl Instant {
    /// Whether this start surely comes before that end.
    fn is_before(self, end: Instant) -> bool {
        let same_clock = self.clock == end.clock;
        (same_clock & (self.exact_ns < end.exact_ns)) | (!same_clock & (self.cautious_ns < end.cautious_ns))
    }
}

fn error_ns(clock: ClockId, errors_ns: &[u64]) -> u64 {
    errors_ns.get(usize::from(clock.0)).copied().unwrap_or(0)
}

/// Calls `answer` with each ordered pair of instances (a, b) of which b surely starts before a ends; and with
/// whether, on top of that, a surely starts before b ends.
pub(super) fn compare_pairs(
    segments: &[Segment],
    errors_ns: &[u64],
    mut answer: impl FnMut(usize, usize, bool),
) {
    let start = |s: &Segment| Instant {
        exact_ns: s.start_ns,
        cautious_ns: s.start_ns.saturating_add_unsigned(error_ns(s.start_clock, errors_ns)),
        clock: s.start_clock,
    };
    let end = |s: &Segment| Instant {
        exact_ns: s.end_ns,
        cautious_ns: s.end_ns.saturating_sub_unsigned(error_ns(s.end_clock, errors_ns)),
        clock: s.end_clock,
    };
    let instants: Vec<(Instant, Instant)> = segments.iter().map(|s| (start(s), end(s))).collect();
    for (i, (a_start, a_end)) in instants.iter().enumerate() {
        for (j, (b_start, b_end)) in instants.iter().enumerate() {
            // Starts are in order: from here on none is early enough.
            if b_start.exact_ns >= a_end.exact_ns {
                break;
            }
            if i != j && b_start.is_before(*a_end) {
                answer(i, j, a_start.is_before(*b_end));
            }
        }
    }
}

/// The segments as short as they can have been, in order of start: what is in a wrong order, or overlaps, among
/// these did so in truth. More cautious than need be, as it takes timestamps of one clock for inexact as well. Of a
/// segment that may have had no length, the end comes before the start.
pub(super) fn shrunk(segments: &[Segment], errors_ns: &[u64]) -> Vec<Segment> {
    let mut shrunk: Vec<Segment> = segments
        .iter()
        .map(|s| Segment {
            start_ns: s.start_ns.saturating_add_unsigned(error_ns(s.start_clock, errors_ns)),
            end_ns: s.end_ns.saturating_sub_unsigned(error_ns(s.end_clock, errors_ns)),
            ..*s
        })
        .collect();
    shrunk.sort_unstable_by_key(|s| (s.start_ns, s.end_ns, s.id));
    shrunk
}
