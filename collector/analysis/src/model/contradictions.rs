//! General counting algorithm: computes one trace's answers for all pairs of its segments, usually
//! by two sweeps over time.
//!
//! An instance of A that ends at `e` contradicts A→B for every label B with an instance that starts
//! before `e`. If the instances are taken in order of `e`, this set of labels only grows. It is
//! kept as one running bitset, which is ORed into row A word by word. Likewise, the set of labels
//! that are active when an instance of B starts is kept as a running bitset and ORed into row B. A
//! trace of k segments therefore costs one sort and, in each sweep, k rows, each with a word for
//! every block of 64 labels that contains one of the trace's labels. Only repeated labels and
//! segments without length need work for single pairs.

use super::counts::{Counts, PerKind};
use super::uncertain::{PAIRWISE_MAX, compare_pairs, shrunk};
use crate::label::SegmentId;
use crate::segment::{Segment, SegmentedTrace, ThreadStep, interval_ns};

const NONE: u32 = u32::MAX;
/// Number of a trace's segments from which the orders of threads are found by groups of segments
/// with equal times. An event log in whole seconds may have 100,000 segments in one instant.
const GROUPED_FROM: usize = 4_096;

/// Row, word and bit of an instance's label in this trace's bitsets.
#[derive(Clone, Copy)]
struct BitPosition {
    row: u32,
    word: u32,
    bit: u64,
}

/// A label that occurs in this trace.
#[derive(Clone, Copy)]
struct Row {
    id: SegmentId,
    place: BitPosition,
    instances: u32,
    /// Number of instances active at the sweep's present instant.
    active: u32,
}

/// Scratch memory of the sweep, kept between traces.
#[derive(Clone, Default)]
pub(super) struct Sweep {
    /// Row of each label in this trace; `NONE` if the label does not occur.
    row_of: Vec<u32>,
    /// Position of each word of 64 labels in the rows of this trace; `NONE` if none of its labels
    /// occurs.
    word_of: Vec<u32>,
    rows: Vec<Row>,
    words: Vec<u32>,
    places: Vec<BitPosition>,
    ends: Vec<u64>,
    order: Vec<u32>,
    running: Vec<u64>,
    present: Vec<u64>,
    contradicted: Vec<u64>,
    overlapped: Vec<u64>,
    /// Instances that end after their start, in order of start.
    timed: Vec<u32>,
    /// Labels of the instances that temporarily do not count as active.
    hidden: Vec<BitPosition>,
}

/// Segments of one label in one thread, among those with equal times.
struct StepRange {
    place: BitPosition,
    first: ThreadStep,
    last: ThreadStep,
}

impl Sweep {
    /// Counts one trace. The segments must be sorted by (start, end), with ids below `labels`.
    /// Calls `seen` with each label and its number of instances. A segment may end before it
    /// starts, if the tolerance was subtracted from its end.
    pub(super) fn count(
        &mut self,
        segments: &[Segment],
        labels: usize,
        counts: &mut Counts,
        seen: impl FnMut(SegmentId, u64),
    ) {
        self.place(segments, labels);
        self.sweep(segments);
        self.finish(segments.len(), counts, seen);
    }

    /// Counts like [`count`](Self::count), but takes an order as certain only if the precision of
    /// the trace's clocks allows it.
    pub(super) fn count_uncertain(
        &mut self,
        trace: &SegmentedTrace,
        segments: &[Segment],
        labels: usize,
        counts: &mut Counts,
        seen: impl FnMut(SegmentId, u64),
    ) {
        self.place(segments, labels);
        // A moved timestamp is less certain than the recorded one, so use the recorded ones.
        let recorded: Vec<Segment>;
        let segments = if trace.moved.is_empty() {
            segments
        } else {
            recorded = segments
                .iter()
                .map(|segment| trace.as_recorded(segment))
                .collect();
            &recorded
        };
        if segments.len() <= PAIRWISE_MAX {
            self.compare_pairs(trace, segments);
        } else {
            let places = std::mem::take(&mut self.places);
            for island in shrunk(trace, segments) {
                self.places.clear();
                self.places
                    .extend(island.iter().map(|(_, index)| places[*index as usize]));
                let segments: Vec<Segment> =
                    island.into_iter().map(|(segment, _)| segment).collect();
                self.sweep(&segments);
            }
        }
        self.finish(segments.len(), counts, seen);
    }

    fn finish(
        &mut self,
        segments: usize,
        counts: &mut Counts,
        mut seen: impl FnMut(SegmentId, u64),
    ) {
        if self.rows.len() < segments {
            self.settle_repeats();
        }
        self.add_to(counts);
        for row in &self.rows {
            seen(row.id, u64::from(row.instances));
            self.row_of[row.id.index()] = NONE;
        }
        for word in &self.words {
            self.word_of[*word as usize] = NONE;
        }
    }

    /// Assigns a row to each label of the trace, and a position in the rows to each word of 64
    /// labels.
    fn place(&mut self, segments: &[Segment], labels: usize) {
        if self.row_of.len() < labels {
            self.row_of.resize(labels, NONE);
            self.word_of.resize(labels.div_ceil(64), NONE);
        }
        self.rows.clear();
        self.words.clear();
        self.places.clear();
        for segment in segments {
            let row = &mut self.row_of[segment.id.index()];
            if *row == NONE {
                *row = self.rows.len() as u32;
                let word = &mut self.word_of[segment.id.index() / 64];
                if *word == NONE {
                    *word = self.words.len() as u32;
                    self.words.push(segment.id.0 / 64);
                }
                let place = BitPosition {
                    row: *row,
                    word: *word,
                    bit: 1 << (segment.id.0 % 64),
                };
                self.rows.push(Row {
                    id: segment.id,
                    place,
                    instances: 0,
                    active: 0,
                });
            }
            let row = &mut self.rows[*row as usize];
            row.instances += 1;
            self.places.push(row.place);
        }
        let cells = self.rows.len() * self.words.len();
        for matrix in [&mut self.contradicted, &mut self.overlapped] {
            matrix.clear();
            matrix.resize(cells, 0);
        }
        for bits in [&mut self.running, &mut self.present] {
            bits.clear();
            bits.resize(self.words.len(), 0);
        }
        for row in &self.rows {
            self.present[row.place.word as usize] |= row.place.bit;
        }
    }

    fn sweep(&mut self, segments: &[Segment]) {
        self.sort_by_end(segments);
        self.sweep_contradictions(segments);
        self.sweep_overlaps(segments);
        self.order_threads(segments);
    }

    fn compare_pairs(&mut self, trace: &SegmentedTrace, segments: &[Segment]) {
        let width = self.words.len();
        compare_pairs(trace, segments, |i, j, overlaps| {
            let (row, place) = (self.places[i].row as usize * width, self.places[j]);
            self.contradicted[row + place.word as usize] |= place.bit;
            // One side of each pair suffices; `settle_repeats` handles labels that repeat.
            let counted = u64::from(overlaps && i > j).wrapping_neg();
            self.overlapped[row + place.word as usize] |= place.bit & counted;
        });
    }

    /// Fills `order` with the instances in order of end. Ends before the first start may count as
    /// equal.
    fn sort_by_end(&mut self, segments: &[Segment]) {
        self.order.clear();
        let Some(first) = segments.first() else {
            return;
        };
        let index_bits = usize::BITS - segments.len().leading_zeros();
        let span_ns = segments
            .iter()
            .map(|s| interval_ns(first.start_ns, s.end_ns))
            .max()
            .unwrap_or(0);
        if span_ns.leading_zeros() >= index_bits {
            // If time and index fit into one word, sorting words is several times faster than
            // sorting pairs.
            self.ends.clear();
            let key = |(i, s): (usize, &Segment)| {
                (interval_ns(first.start_ns, s.end_ns) << index_bits) | i as u64
            };
            self.ends.extend(segments.iter().enumerate().map(key));
            self.ends.sort_unstable();
            let index_mask = (1u64 << index_bits) - 1;
            self.order
                .extend(self.ends.iter().map(|key| (key & index_mask) as u32));
        } else {
            self.order.extend(0..segments.len() as u32);
            self.order
                .sort_unstable_by_key(|i| (segments[*i as usize].end_ns, *i));
        }
    }

    fn sweep_contradictions(&mut self, segments: &[Segment]) {
        let width = self.words.len();
        let mut started = segments.iter().zip(&self.places).peekable();
        for &ending in &self.order {
            let end_ns = segments[ending as usize].end_ns;
            while let Some((_, place)) = started.next_if(|(segment, _)| segment.start_ns < end_ns) {
                self.running[place.word as usize] |= place.bit;
            }
            let row = self.places[ending as usize].row as usize * width;
            for (row, running) in self.contradicted[row..row + width]
                .iter_mut()
                .zip(&self.running)
            {
                *row |= running;
            }
        }
        self.running.fill(0);
    }

    fn sweep_overlaps(&mut self, segments: &[Segment]) {
        let width = self.words.len();
        let mut ended = 0;
        self.running.fill(0);
        self.rows.iter_mut().for_each(|row| row.active = 0);
        self.timed.clear();
        for (index, (segment, place)) in segments.iter().zip(&self.places).enumerate() {
            while let Some(ending) = self.order.get(ended).map(|i| *i as usize) {
                let over = &segments[ending];
                if over.end_ns > segment.start_ns {
                    break;
                }
                let place = self.places[ending];
                let row = &mut self.rows[place.row as usize];
                // A segment that does not end after its start is never active.
                row.active = row
                    .active
                    .saturating_sub(u32::from(over.end_ns > over.start_ns));
                let idle = u64::from(row.active == 0).wrapping_neg();
                self.running[place.word as usize] &= !(place.bit & idle);
                ended += 1;
            }
            let at = place.row as usize * width;
            let active = segment.end_ns > segment.start_ns;
            if !active {
                self.hidden.clear();
                // Active segments that did not certainly start before this segment's end do not
                // certainly overlap it.
                let before = self.timed.iter().rev().map(|other| *other as usize);
                for other in before.take_while(|other| segments[*other].start_ns >= segment.end_ns)
                {
                    if segments[other].end_ns > segment.start_ns {
                        let place = self.places[other];
                        let row = &mut self.rows[place.row as usize];
                        row.active -= 1;
                        let idle = u64::from(row.active == 0).wrapping_neg();
                        self.running[place.word as usize] &= !(place.bit & idle);
                        self.hidden.push(place);
                    }
                }
            } else {
                self.timed.push(index as u32);
            }
            for (row, running) in self.overlapped[at..at + width]
                .iter_mut()
                .zip(&self.running)
            {
                *row |= running;
            }
            if !active {
                for place in self.hidden.drain(..) {
                    self.rows[place.row as usize].active += 1;
                    self.running[place.word as usize] |= place.bit;
                }
            }
            self.rows[place.row as usize].active += u32::from(active);
            self.running[place.word as usize] |= place.bit & u64::from(active).wrapping_neg();
        }
    }

    /// Records the order of segments of one thread where their times do not show it. The segments
    /// of a thread follow each other by construction.
    fn order_threads(&mut self, segments: &[Segment]) {
        if segments.len() < GROUPED_FROM {
            self.order_pairs(segments);
        } else {
            self.order_groups(segments);
        }
    }

    /// Compares each segment without length with the segments that started from its end on.
    fn order_pairs(&mut self, segments: &[Segment]) {
        let width = self.words.len();
        for (index, segment) in segments
            .iter()
            .enumerate()
            .filter(|(_, s)| s.end_ns <= s.start_ns)
        {
            for other in (0..index).rev() {
                if segments[other].start_ns < segment.end_ns {
                    break;
                }
                let (earlier, later) = match segments[other].step {
                    step if step.is_before(segment.step) => (other, index),
                    step if segment.step.is_before(step) => (index, other),
                    _ => continue,
                };
                let (earlier, later) = (self.places[earlier], self.places[later]);
                self.contradicted[later.row as usize * width + earlier.word as usize] |=
                    earlier.bit;
            }
        }
    }

    /// Finds the same orders as [`order_pairs`](Self::order_pairs). Of the segments with one label,
    /// thread and times, only the first and the last matter.
    fn order_groups(&mut self, segments: &[Segment]) {
        let width = self.words.len();
        let (mut ranges, mut steps): (Vec<StepRange>, Vec<(ThreadStep, BitPosition)>) =
            (Vec::new(), Vec::new());
        // Start of each group, and the number of ranges before the group.
        let mut groups: Vec<(i64, usize)> = Vec::new();
        let mut places = self.places.iter().copied();
        for alike in segments.chunk_by(|a, b| (a.start_ns, a.end_ns) == (b.start_ns, b.end_ns)) {
            steps.clear();
            let placed = alike.iter().map(|segment| segment.step).zip(&mut places);
            steps.extend(placed.filter(|(step, _)| *step != ThreadStep::NONE));
            steps.sort_unstable_by_key(|(step, place)| (place.row, *step));
            let first = ranges.len();
            groups.push((alike[0].start_ns, first));
            let of_one = |a: &(ThreadStep, BitPosition), b: &(ThreadStep, BitPosition)| {
                a.1.row == b.1.row && a.0.is_with(b.0)
            };
            ranges.extend(steps.chunk_by(of_one).map(|of| StepRange {
                place: of[0].1,
                first: of[0].0,
                last: of[of.len() - 1].0,
            }));
            if alike[0].end_ns > alike[0].start_ns {
                continue;
            }
            let from = groups.partition_point(|(start_ns, _)| *start_ns < alike[0].end_ns);
            for range in &ranges[first..] {
                for other in &ranges[groups[from].1..] {
                    for (earlier, later) in [(range, other), (other, range)] {
                        if earlier.first.is_before(later.last) {
                            let row = later.place.row as usize * width;
                            self.contradicted[row + earlier.place.word as usize] |=
                                earlier.place.bit;
                        }
                    }
                }
            }
        }
    }

    /// Removes double counts of overlaps. A label that occurs several times may overlap another
    /// label in both orders of start. The overlap is then found on both sides of the diagonal, and
    /// one side is removed.
    fn settle_repeats(&mut self) {
        let width = self.words.len();
        for repeated in self.rows.iter().filter(|row| row.instances > 1) {
            let own_row = repeated.place.row as usize * width;
            for other in self
                .rows
                .iter()
                .filter(|other| other.place.row != repeated.place.row)
            {
                let mirrored = self.overlapped
                    [other.place.row as usize * width + repeated.place.word as usize];
                if mirrored & repeated.place.bit != 0 {
                    self.overlapped[own_row + other.place.word as usize] &= !other.place.bit;
                }
            }
        }
    }

    fn add_to(&self, counts: &mut Counts) {
        let width = self.words.len();
        for row in &self.rows {
            let at = row.place.row as usize * width;
            // A label occurs together with itself only if it has several instances. A contradiction
            // between them means nothing.
            let alone = if row.instances == 1 { row.place.bit } else { 0 };
            for (word, label_word) in self.words.iter().enumerate() {
                let own = u64::from(row.place.word as usize == word).wrapping_neg();
                let bits: PerKind = [
                    self.present[word] & !(alone & own),
                    self.contradicted[at + word] & !(row.place.bit & own),
                    self.overlapped[at + word],
                ];
                counts.add_word(row.id.index(), *label_word as usize, bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few instants, labels and threads, so that many segments have equal times. With a
        /// tolerance, segments end before they start.
        #[test]
        fn groups_show_the_orders_of_pairs(
            found in proptest::collection::vec((0u32..9, 0i64..4, 0i64..3, 0usize..3, 0usize..20), 0..60),
            tolerance_ns in 0i64..3,
        ) {
            let mut segments: Vec<Segment> = found
                .into_iter()
                .map(|(label, start_ns, length_ns, task, step)| Segment {
                    // Task 2 stands for segments in no thread.
                    step: if task < 2 { ThreadStep::of_task(task, step) } else { ThreadStep::NONE },
                    ..Segment::new(SegmentId(label * 30), start_ns, start_ns + length_ns)
                })
                .collect();
            segments.sort_by_key(|segment| (segment.start_ns, segment.end_ns));
            segments.iter_mut().for_each(|segment| segment.end_ns -= tolerance_ns);
            let contradicted = |order: fn(&mut Sweep, &[Segment])| {
                let mut sweep = Sweep::default();
                sweep.place(&segments, 300);
                order(&mut sweep, &segments);
                sweep.contradicted
            };
            prop_assert_eq!(contradicted(Sweep::order_groups), contradicted(Sweep::order_pairs));
        }
    }
}
