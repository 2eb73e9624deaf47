//! Finds the predecessors of each segment of one trace.
//!
//! A predecessor of a segment B ended by the start of B. If segments are visited in order of start,
//! the set of labels whose instance has ended only grows. A bit set holds these labels. Its
//! intersection with B's row of relations, word by word, contains B's predecessors. Many of them
//! can be skipped: if P is a predecessor of B and took time, the predecessors of P add nothing
//! about B. They are removed in whole words (the transitive reduction of The Mystery Machine,
//! §4.4.1). [`RepeatedLabels`] holds the labels that occur several times in the trace.

use super::repeated::{EndedInstances, HandedValues, LargestOf, RepeatedLabels};
use crate::model::Relations;
use crate::segment::{ElementId, Segment, SegmentedTrace};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

const NONE: u32 = u32::MAX;
/// Number of repeated labels related to a segment above which [`Predecessors::stand_in`] looks
/// back, and the maximum number of segments that it then examines.
const LOOK_BACK: usize = 32;

/// Predecessors of a segment.
enum PredecessorSet {
    /// A single segment.
    One(usize),
    /// Instances of a repeated label, by its number, that ended by the start of the segment.
    Repeated(usize),
}

/// Rank of a segment's predecessor. The segment waited last for the predecessor of the greatest
/// rank.
///
/// Among predecessors with the same end, the one with a nonzero duration that started last ranks
/// highest. Otherwise a span that runs concurrently with a call, and ends with the call's response,
/// would hide the call's predecessors. Predecessors without duration rank below all others with the
/// same end. Of several, the first in the trace ranks highest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    end_ns: i64,
    timed: Option<usize>,
    instant: Reverse<usize>,
}

impl Rank {
    fn of(segments: &[Segment], index: usize) -> Rank {
        let segment = &segments[index];
        Rank {
            end_ns: segment.end_ns,
            timed: (segment.start_ns < segment.end_ns).then_some(index),
            instant: Reverse(index),
        }
    }

    fn segment(self) -> usize {
        self.instant.0
    }
}

/// The predecessors of each segment of one trace.
pub(crate) struct Predecessors<'a> {
    trace: &'a SegmentedTrace,
    relations: &'a Relations,
    /// Segments in order of end. Of several that end at the same time, the last in the trace comes
    /// first.
    by_end: Vec<u32>,
    /// For each segment, the number of segments of `by_end` that ended by its start. Includes the
    /// segment itself and later ones if they have no length.
    ended: Vec<u32>,
    /// Indices of the 64-bit words that contain a label that occurs once, in order.
    words: Vec<u32>,
    /// Segment of each label that occurs once, by its bit in `words`.
    segment_of: Vec<u32>,
    /// For each segment, the bits of its predecessors whose labels occur once, except for those
    /// that only a pipeline makes predecessors.
    rows: Vec<u64>,
    repeated: RepeatedLabels,
    /// Segments by the element on which they work, in order. Empty if the model has no pipelines.
    of_element: FxHashMap<ElementId, Vec<u32>>,
}

impl<'a> Predecessors<'a> {
    pub(crate) fn of(trace: &'a SegmentedTrace, relations: &'a Relations) -> Predecessors<'a> {
        let segments = &trace.segments;
        let mut by_end: Vec<u32> = (0..segments.len() as u32).collect();
        by_end.sort_unstable_by_key(|i| (segments[*i as usize].end_ns, Reverse(*i)));
        let mut predecessors = Predecessors {
            trace,
            relations,
            by_end,
            ended: Vec::with_capacity(segments.len()),
            words: Vec::new(),
            segment_of: Vec::new(),
            rows: Vec::new(),
            repeated: RepeatedLabels::default(),
            of_element: FxHashMap::default(),
        };
        if !relations.all_pipelines().is_empty() {
            let numbered = (0..).zip(segments);
            for (index, segment) in numbered.filter(|(_, s)| s.element != ElementId::NONE) {
                let of_element = predecessors.of_element.entry(segment.element);
                of_element.or_default().push(index);
            }
        }
        let place_of = predecessors.place_labels();
        predecessors.fill_rows(&place_of);
        predecessors
    }

    /// Assigns a bit to each label that occurs once. Returns each segment's bit, if it has one.
    fn place_labels(&mut self) -> Vec<u32> {
        let segments = &self.trace.segments;
        // A label that the model does not know has no predecessors and no successors.
        let label = |i: &u32| {
            Some(segments[*i as usize].id.index()).filter(|id| *id < self.relations.labels())
        };
        let mut count_of = vec![0u32; self.relations.labels()];
        for label in self.by_end.iter().filter_map(label) {
            count_of[label] += 1;
        }
        let occurs_once = |label: &usize| count_of[*label] == 1;
        let mut word_of = vec![NONE; self.relations.labels().div_ceil(64)];
        for label in self.by_end.iter().filter_map(label).filter(occurs_once) {
            word_of[label / 64] = 0;
        }
        for (word, place) in (0..).zip(&mut word_of).filter(|(_, place)| **place != NONE) {
            *place = self.words.len() as u32;
            self.words.push(word);
        }
        self.segment_of = vec![NONE; self.words.len() * 64];
        let mut place_of = vec![NONE; segments.len()];
        let mut repeated: Vec<(usize, u32)> = Vec::new();
        for i in &self.by_end {
            match label(i) {
                Some(label) if count_of[label] == 1 => {
                    let place = word_of[label / 64] * 64 + (label % 64) as u32;
                    place_of[*i as usize] = place;
                    self.segment_of[place as usize] = *i;
                }
                Some(label) => repeated.push((label, *i)),
                None => {}
            }
        }
        repeated.sort_by_key(|(label, _)| *label);
        self.repeated = RepeatedLabels::of(self.trace, &repeated);
        place_of
    }

    fn fill_rows(&mut self, place_of: &[u32]) {
        let (segments, width) = (&self.trace.segments, self.words.len());
        let mut now = vec![0u64; width];
        let mut upto = 0;
        self.rows = vec![0; segments.len() * width];
        let mark_ended = |now: &mut [u64], index: usize| {
            let place = place_of[index];
            if place != NONE {
                now[place as usize / 64] |= 1 << (place % 64);
            }
        };
        let takes_time = |segment: &Segment| segment.start_ns < segment.end_ns;
        for (index, segment) in segments.iter().enumerate() {
            let ended = |i: &&u32| segments[**i as usize].end_ns <= segment.start_ns;
            while let Some(i) = self.by_end.get(upto).filter(ended) {
                let i = *i as usize;
                if takes_time(&segments[i]) {
                    mark_ended(&mut now, i);
                }
                upto += 1;
            }
            self.ended.push(upto as u32);
            let related = self.relations.ordered_before(segment.id);
            if !related.is_empty() {
                let row = &mut self.rows[index * width..(index + 1) * width];
                for ((row, now), word) in row.iter_mut().zip(&now).zip(&self.words) {
                    *row = now & related[*word as usize];
                }
            }
            // A segment without length is a predecessor only of later segments.
            if !takes_time(segment) {
                mark_ended(&mut now, index);
            }
        }
    }

    /// Calls `visit` with predecessors of a segment. May skip a predecessor that is also a
    /// predecessor of another visited one that took time.
    #[inline]
    fn for_each(&self, index: usize, left: &mut Vec<u64>, mut visit: impl FnMut(PredecessorSet)) {
        let (segments, width) = (&self.trace.segments, self.words.len());
        left.clear();
        left.extend_from_slice(&self.rows[index * width..(index + 1) * width]);
        // Labels are mostly numbered in the order in which they first occur, so the highest remove
        // the most.
        for word in (0..width).rev() {
            while left[word] != 0 {
                let bit = 63 - left[word].leading_zeros() as usize;
                left[word] &= !(1 << bit);
                let earlier = self.segment_of[word * 64 + bit] as usize;
                visit(PredecessorSet::One(earlier));
                if segments[earlier].end_ns > segments[earlier].start_ns {
                    let before_it = &self.rows[earlier * width..(earlier + 1) * width];
                    left.iter_mut()
                        .zip(before_it)
                        .for_each(|(left, before)| *left &= !before);
                }
            }
        }
        let segment = &segments[index];
        let related = self.relations.ordered_before(segment.id);
        if !related.is_empty() {
            let many = self.repeated.count(related) as usize > LOOK_BACK;
            let stand_in = match many {
                true => self.stand_in(index, &mut visit),
                false => None,
            };
            let but = stand_in.map(|stand_in| self.relations.ordered_before(segments[stand_in].id));
            self.repeated
                .for_each(related, but, |label| visit(PredecessorSet::Repeated(label)));
        }
        if let Some(of_element) = self.of_element.get(&segment.element) {
            let earlier = of_element.iter().map(|i| *i as usize);
            let earlier = earlier.take_while(|i| *i < index);
            for i in earlier.filter(|i| segments[*i].end_ns <= segment.start_ns) {
                if self.relations.pipelined(&segments[i], segment) {
                    visit(PredecessorSet::One(i));
                }
            }
        }
    }

    /// Visits a segment's predecessors among the [`LOOK_BACK`] segments that ended last by its
    /// start. The latest of them that took any time, P, makes P's own predecessors redundant.
    /// Returns P once the search reaches a segment that ended by P's start, because it has then
    /// visited every predecessor that ended later. Returns `None` if the search ends before that.
    fn stand_in(&self, index: usize, visit: &mut impl FnMut(PredecessorSet)) -> Option<usize> {
        let segments = &self.trace.segments;
        let mut stand_in: Option<usize> = None;
        let ended = &self.by_end[..self.ended[index] as usize];
        for earlier in ended.iter().rev().take(LOOK_BACK) {
            let earlier = *earlier as usize;
            let found = &segments[earlier];
            if stand_in.is_some_and(|latest| found.end_ns <= segments[latest].start_ns) {
                return stand_in;
            }
            let relations = self.relations;
            if earlier < index && relations.is_ordered_before(found.id, segments[index].id) {
                visit(PredecessorSet::One(earlier));
                let takes_time = found.start_ns < found.end_ns;
                stand_in = stand_in.or(Some(earlier).filter(|_| takes_time));
            }
        }
        None
    }

    /// Calls `found` with each segment, in order, and its predecessor of the greatest [`Rank`].
    pub(crate) fn for_each_latest(&self, mut found: impl FnMut(usize, Option<usize>)) {
        let segments = &self.trace.segments;
        let rank = |earlier: usize| Some(Rank::of(segments, earlier));
        let mut ended = EndedInstances::new(&self.repeated, None);
        let mut left = Vec::new();
        for index in 0..segments.len() {
            let mut latest: Option<Rank> = None;
            self.for_each(index, &mut left, |earlier| {
                latest = latest.max(match earlier {
                    PredecessorSet::One(earlier) => rank(earlier),
                    PredecessorSet::Repeated(label) => {
                        ended.upto(segments, label, index, |latest, one| latest.max(rank(one)))
                    }
                });
            });
            found(index, latest.map(Rank::segment));
        }
    }

    /// Computes a result for each segment: the largest `of(successor, result of the successor)`
    /// over its successors, and at least `least`. `of` must not return less than the result that it
    /// is given.
    pub(crate) fn fold_successors(&self, least: u64, of: impl Fn(usize, u64) -> u64) -> Vec<u64> {
        let segments = &self.trace.segments;
        let mut results = vec![least; segments.len()];
        let mut handed = HandedValues::new(&self.repeated);
        let mut left = Vec::new();
        // Backwards, so that a segment's result is known before its predecessors need it.
        for index in (0..results.len()).rev() {
            results[index] = results[index].max(handed.to(index));
            let value = of(index, results[index]);
            self.for_each(index, &mut left, |earlier| match earlier {
                PredecessorSet::One(earlier) => results[earlier] = results[earlier].max(value),
                PredecessorSet::Repeated(label) => {
                    handed.hand(segments, (label, index), value, &mut results);
                }
            });
        }
        results
    }

    /// Computes a result for each segment: `of(segment, (latest end, largest result), all results
    /// so far)`. The tuple covers the segment's predecessors; without any, it is the trace's start
    /// and 0. `order` determines the order of evaluation: predecessors of a segment must come
    /// before it. `of` must not return less than the results that it is given.
    pub(crate) fn fold_in_order(
        &self,
        order: &[u32],
        of: impl Fn(usize, (i64, u64), &[u64]) -> u64,
    ) -> Vec<u64> {
        let segments = &self.trace.segments;
        let mut results = vec![0; segments.len()];
        let mut largest_of = LargestOf::new(&self.repeated);
        let mut left = Vec::new();
        for index in order.iter().map(|index| *index as usize) {
            let mut ready = (self.trace.start_ns, 0);
            self.for_each(index, &mut left, |earlier| {
                let (end_ns, result) = match earlier {
                    PredecessorSet::One(earlier) => (segments[earlier].end_ns, results[earlier]),
                    PredecessorSet::Repeated(label) => largest_of
                        .upto(segments, label, index, &results)
                        .unwrap_or(ready),
                };
                ready = (ready.0.max(end_ns), ready.1.max(result));
            });
            results[index] = of(index, ready, &results);
        }
        results
    }
}
