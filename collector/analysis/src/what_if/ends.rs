//! Orders segments by their ends, and records in which orders they end.

use super::sample::WaitingSample;
use crate::segment::{ClockBounds, ClockId, ElementId, Segment, SegmentedTrace, interval_ns};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Maximum number of segments, counted back from an instant, whose ends are considered.
const LOOK_BACK: usize = 64;

/// Set of labels, one bit per label.
pub(super) type LabelSet = Vec<u64>;

pub(super) fn has(set: &[u64], label: usize) -> bool {
    set.get(label / 64)
        .is_some_and(|word| (word >> (label % 64)) & 1 == 1)
}

pub(super) fn put(set: &mut [u64], label: usize) {
    if let Some(word) = set.get_mut(label / 64) {
        *word |= 1 << (label % 64);
    }
}

/// Returns the indices of segments, sorted by end, so that every segment comes after the segments
/// that its end may depend on. Of segments that end at the same instant, those that began later
/// come first, since they lie inside the others. Segments of length zero come last, since they
/// follow the others.
pub(super) fn by_end(segments: &[Segment]) -> Vec<u32> {
    let mut by_end: Vec<u32> = (0..segments.len() as u32).collect();
    by_end.sort_unstable_by_key(|index| {
        let segment = &segments[*index as usize];
        let is_empty = segment.start_ns == segment.end_ns;
        (
            segment.end_ns,
            is_empty,
            Reverse(if is_empty { 0 } else { segment.start_ns }),
            *index,
        )
    });
    by_end
}

/// Calls `visit` with segments that ended in an interval, the latest first, until it returns
/// `false`. The interval excludes its first instant and includes its second. `visit` also gets the
/// time from the first instant to the segment's end. Skips segment `index`, segments of length
/// zero, and segments with another element, if both have one. Only the last `LOOK_BACK` segments
/// are considered. At `index`'s own end, only segments before it in the order of ends count.
pub(super) fn for_each_end(
    trace: &SegmentedTrace,
    by_end: &[u32],
    (from_ns, until_ns): (i64, i64),
    index: usize,
    mut visit: impl FnMut(usize, u64) -> bool,
) {
    let segments = &trace.segments;
    let waiting = &segments[index];
    let upto = by_end.partition_point(|at| segments[*at as usize].end_ns <= until_ns);
    let mut upto = &by_end[..upto];
    if waiting.end_ns == until_ns {
        // Segments that end at the same instant are candidates only if they come before this
        // segment.
        let own = upto.iter().rposition(|at| *at as usize == index);
        upto = own.map_or(upto, |own| &upto[..own]);
    }
    for at in upto.iter().rev().take(LOOK_BACK).map(|at| *at as usize) {
        let other = &segments[at];
        if other.end_ns <= from_ns {
            return;
        }
        let other_element = waiting.element != other.element
            && ElementId::NONE != waiting.element
            && ElementId::NONE != other.element;
        if other.start_ns == other.end_ns || other_element || at == index {
            continue;
        }
        if !visit(at, interval_ns(from_ns, other.end_ns)) {
            return;
        }
    }
}

/// Labels that certainly ended after each label's end in some request, and labels that ended after
/// each label's start in some request. An end does not count as later than another end if the two
/// segments work on different data elements.
pub(super) struct Orders {
    pub(super) ends_after_end: Vec<LabelSet>,
    pub(super) ends_after_start: Vec<LabelSet>,
}

impl Orders {
    pub(super) fn of(sample: &WaitingSample, labels: usize) -> Orders {
        let none = vec![vec![0u64; labels.div_ceil(64)]; labels];
        let mut orders = Orders {
            ends_after_end: none.clone(),
            ends_after_start: none,
        };
        for trace in sample.spread() {
            let mut by_end: Vec<&Segment> = trace
                .segments
                .iter()
                .filter(|s| s.id.index() < labels)
                .collect();
            by_end.sort_unstable_by_key(|segment| Reverse(segment.end_ns));
            orders.note_ends(&by_end, trace);
            orders.note_starts(&by_end);
        }
        orders
    }

    fn note_ends(&mut self, by_end: &[&Segment], trace: &SegmentedTrace) {
        let mut of_clock: FxHashMap<ClockId, Vec<&Segment>> = FxHashMap::default();
        let mut of_bounds: FxHashMap<ClockBounds, Vec<&Segment>> = FxHashMap::default();
        for segment in by_end.iter().copied() {
            let bounds = trace.clock_bounds(segment.end_clock);
            of_clock.entry(segment.end_clock).or_default().push(segment);
            of_bounds.entry(bounds).or_default().push(segment);
        }
        for (clock, own) in &of_clock {
            let tolerance_ns = trace.tolerance_ns(*clock, *clock);
            self.note_ends_after(own, own, |_| tolerance_ns);
        }
        // Between two clocks, the tolerance is no smaller than on one, so this loop may also
        // compare segments of one clock. A trace may have a clock for each segment, but only a few
        // different bounds.
        for (bounds, own) in &of_bounds {
            self.note_ends_after(own, by_end, |other| {
                let other = trace.clock_bounds(other.end_clock);
                other.tolerance_ns(*bounds, false)
            });
        }
    }

    /// Adds, for each segment of `own`, those of `others` that end more than `tolerance_ns` later.
    /// `own` begins with the latest end.
    fn note_ends_after(
        &mut self,
        own: &[&Segment],
        others: &[&Segment],
        tolerance_ns: impl Fn(&Segment) -> u64,
    ) {
        let words = self.ends_after_end.first().map_or(0, Vec::len);
        let (mut all, mut of_no_element) = (vec![0u64; words], vec![0u64; words]);
        let earliest_ns =
            |other: &Segment| other.end_ns.saturating_sub_unsigned(tolerance_ns(other));
        let mut by_earliest = others.to_vec();
        by_earliest.sort_unstable_by_key(|other| Reverse(earliest_ns(other)));
        let mut at = 0;
        for segment in own {
            // Add the segments that certainly ended later than this one.
            while let Some(other) = by_earliest
                .get(at)
                .filter(|other| earliest_ns(other) > segment.end_ns)
            {
                put(&mut all, other.id.index());
                if other.element == ElementId::NONE {
                    put(&mut of_no_element, other.id.index());
                }
                at += 1;
            }
            let row = &mut self.ends_after_end[segment.id.index()];
            let later = if segment.element == ElementId::NONE {
                &all
            } else {
                &of_no_element
            };
            row.iter_mut()
                .zip(later)
                .for_each(|(word, later)| *word |= later);
            if segment.element != ElementId::NONE {
                for other in by_earliest[..at]
                    .iter()
                    .filter(|other| other.element == segment.element)
                {
                    put(row, other.id.index());
                }
            }
        }
    }

    fn note_starts(&mut self, by_end: &[&Segment]) {
        let words = self.ends_after_start.first().map_or(0, Vec::len);
        let mut by_start = by_end.to_vec();
        by_start.sort_unstable_by_key(|segment| Reverse(segment.start_ns));
        let mut later = vec![0u64; words];
        let mut at = 0;
        for segment in by_start {
            while let Some(other) = by_end
                .get(at)
                .filter(|other| other.end_ns > segment.start_ns)
            {
                put(&mut later, other.id.index());
                at += 1;
            }
            let row = &mut self.ends_after_start[segment.id.index()];
            row.iter_mut()
                .zip(&later)
                .for_each(|(word, later)| *word |= later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::SegmentId;
    use crate::record::TraceId;

    /// Checks which labels, as bits, certainly end after each label. The labels' segments are given
    /// by end and clock. Clock 0 is exact, and clock 1 errs by up to 50 ns.
    #[track_caller]
    fn check(ends: [(i64, u16); 3], expected: [u64; 3]) {
        let segment = |(label, (end_ns, clock))| Segment {
            end_clock: ClockId(clock),
            ..Segment::new(SegmentId(label), 0, end_ns)
        };
        let segments: Vec<Segment> = (0..).zip(ends).map(segment).collect();
        let mut trace = SegmentedTrace::new(TraceId(1), None, 0, 200, segments);
        trace.clocks = vec![ClockBounds::within(0), ClockBounds::within(50)];
        let mut orders = Orders {
            ends_after_end: vec![vec![0]; 3],
            ends_after_start: vec![vec![0]; 3],
        };
        let mut by_end: Vec<&Segment> = trace.segments.iter().collect();
        by_end.sort_unstable_by_key(|segment| Reverse(segment.end_ns));
        orders.note_ends(&by_end, &trace);
        assert_eq!(orders.ends_after_end.concat(), expected);
    }

    #[test]
    fn ends_on_different_clocks_differ_by_more_than_the_clocks_err() {
        check([(100, 0), (99, 0), (98, 0)], [0, 0b001, 0b011]);
        check([(100, 0), (99, 0), (98, 1)], [0, 0b001, 0]);
        check([(100, 0), (99, 0), (101, 1)], [0, 0b001, 0]);
        check([(100, 0), (99, 0), (49, 1)], [0, 0b001, 0b001]);
    }
}
