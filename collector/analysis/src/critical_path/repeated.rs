//! Handles labels that occur several times in one trace.
//!
//! If a label precedes a segment B, each instance of the label that ended by the start of B is a
//! predecessor of B. These are the first instances in order of end, and never fewer for a later B.
//! A running aggregate over the instances, such as the latest end, therefore answers a query
//! without visiting them one by one. A trace of k segments and l labels takes at most k·l queries,
//! however often the labels repeat.

use crate::segment::{Segment, SegmentedTrace};

const NONE: u32 = u32::MAX;

/// The repeated labels of one trace, numbered in order of label.
#[derive(Default)]
pub(super) struct RepeatedLabels {
    words: Vec<Word>,
    /// Instances of each label, in order of end. Instances that end at the same time are in the
    /// order of the trace.
    instances: Vec<Vec<u32>>,
    /// Number of each segment's repeated label, and the segment's index among the label's
    /// instances. Empty if no label repeats.
    place_of: Vec<(u32, u32)>,
}

/// A word of 64 labels, at least one of which is repeated.
struct Word {
    word: usize,
    repeated: u64,
    /// Number of the word's first repeated label.
    first: usize,
}

impl RepeatedLabels {
    /// Collects the labels from pairs of a label and an instance, sorted by label.
    pub(super) fn of(trace: &SegmentedTrace, pairs: &[(usize, u32)]) -> RepeatedLabels {
        let mut repeated = RepeatedLabels::default();
        if pairs.is_empty() {
            return repeated;
        }
        repeated.place_of = vec![(NONE, 0); trace.segments.len()];
        for same in pairs.chunk_by(|a, b| a.0 == b.0) {
            let (label, number) = (same[0].0, repeated.instances.len());
            let bit = 1 << (label % 64);
            match repeated.words.last_mut() {
                Some(last) if last.word == label / 64 => last.repeated |= bit,
                _ => repeated.words.push(Word {
                    word: label / 64,
                    repeated: bit,
                    first: number,
                }),
            }
            let mut instances: Vec<u32> = same.iter().map(|(_, instance)| *instance).collect();
            instances.sort_by_key(|i| (trace.segments[*i as usize].end_ns, *i));
            for (at, instance) in instances.iter().enumerate() {
                repeated.place_of[*instance as usize] = (number as u32, at as u32);
            }
            repeated.instances.push(instances);
        }
        repeated
    }

    /// Returns the number of repeated labels among these labels.
    pub(super) fn count(&self, labels: &[u64]) -> u32 {
        let among = |word: &Word| (labels[word.word] & word.repeated).count_ones();
        self.words.iter().map(among).sum()
    }

    /// Calls `visit` with each repeated label that is among `labels` and not among `but`.
    pub(super) fn for_each(
        &self,
        labels: &[u64],
        but: Option<&[u64]>,
        mut visit: impl FnMut(usize),
    ) {
        for word in &self.words {
            let but = but.map_or(0, |but| but[word.word]);
            let mut left = labels[word.word] & word.repeated & !but;
            while left != 0 {
                let below = (1u64 << left.trailing_zeros()) - 1;
                visit(word.first + (word.repeated & below).count_ones() as usize);
                left &= left - 1;
            }
        }
    }

    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let &(number, at) = self.place_of.get(index)?;
        (number != NONE).then_some((number as usize, at as usize))
    }
}

/// Reports whether an instance ended by the start of the segment of this index, and comes before it
/// in the trace. This holds for a prefix of a label's instances.
fn is_before(segments: &[Segment], instance: u32, index: usize) -> bool {
    (instance as usize) < index && segments[instance as usize].end_ns <= segments[index].start_ns
}

/// Running aggregate of the ended instances of each repeated label. Segments must be queried in
/// order.
pub(super) struct EndedInstances<'a, T> {
    repeated: &'a RepeatedLabels,
    /// Number of ended instances of each label, and their aggregate.
    so_far: Vec<(usize, T)>,
}

impl<'a, T: Copy> EndedInstances<'a, T> {
    pub(super) fn new(repeated: &'a RepeatedLabels, none: T) -> EndedInstances<'a, T> {
        EndedInstances {
            repeated,
            so_far: vec![(0, none); repeated.instances.len()],
        }
    }

    /// Returns the aggregate of the instances that ended by the start of this segment. `add` adds
    /// one instance to the aggregate of those before it.
    pub(super) fn upto(
        &mut self,
        segments: &[Segment],
        label: usize,
        index: usize,
        mut add: impl FnMut(T, usize) -> T,
    ) -> T {
        let (ended, sum) = &mut self.so_far[label];
        let instances = &self.repeated.instances[label];
        let is_ended = |i: &&u32| is_before(segments, **i, index);
        while let Some(instance) = instances.get(*ended).filter(is_ended) {
            *sum = add(*sum, *instance as usize);
            *ended += 1;
        }
        *sum
    }
}

/// The latest end and the largest result of the ended instances of each repeated label.
/// Predecessors of a segment must be evaluated before it; otherwise the order is free.
pub(super) struct LargestOf<'a> {
    repeated: &'a RepeatedLabels,
    /// Prefix aggregates of each label's instances: of the first one, the first two, and so on.
    so_far: Vec<Vec<(i64, u64)>>,
}

impl<'a> LargestOf<'a> {
    pub(super) fn new(repeated: &'a RepeatedLabels) -> LargestOf<'a> {
        LargestOf {
            repeated,
            so_far: vec![Vec::new(); repeated.instances.len()],
        }
    }

    /// Returns the latest end and the largest result of the instances that ended by the start of
    /// this segment. Their results must be known. Returns `None` if no instance ended.
    pub(super) fn upto(
        &mut self,
        segments: &[Segment],
        label: usize,
        index: usize,
        results: &[u64],
    ) -> Option<(i64, u64)> {
        let instances = &self.repeated.instances[label];
        let ended = instances.partition_point(|instance| is_before(segments, *instance, index));
        let so_far = &mut self.so_far[label];
        for instance in instances.get(so_far.len()..ended).into_iter().flatten() {
            let instance = *instance as usize;
            let (end_ns, result) = (segments[instance].end_ns, results[instance]);
            let (latest_ns, largest) = so_far.last().copied().unwrap_or((end_ns, result));
            so_far.push((latest_ns.max(end_ns), largest.max(result)));
        }
        so_far.get(ended.checked_sub(1)?).copied()
    }
}

/// Hands values to all ended instances of a label. Segments must come in reverse order.
pub(super) struct HandedValues<'a> {
    repeated: &'a RepeatedLabels,
    /// For each label, the number of instances that still receive values, and the largest so far.
    so_far: Vec<(usize, u64)>,
}

impl<'a> HandedValues<'a> {
    pub(super) fn new(repeated: &'a RepeatedLabels) -> HandedValues<'a> {
        let instances = repeated.instances.iter();
        HandedValues {
            repeated,
            so_far: instances.map(|instances| (instances.len(), 0)).collect(),
        }
    }

    /// Hands `value` to all instances of a label that ended by the start of this segment.
    pub(super) fn hand(
        &mut self,
        segments: &[Segment],
        (label, index): (usize, usize),
        value: u64,
        results: &mut [u64],
    ) {
        let (upto, largest) = &mut self.so_far[label];
        let instances = &self.repeated.instances[label];
        let is_late = |i: &&u32| !is_before(segments, **i, index);
        while let Some(instance) = instances[..*upto].last().filter(is_late) {
            // This instance receives no further values. The results of segments from `index` on are
            // already complete.
            if let Some(result) = results[..index].get_mut(*instance as usize) {
                *result = (*result).max(*largest);
            }
            *upto -= 1;
        }
        *largest = value.max(*largest);
    }

    /// Returns the value that was handed to a segment but is not yet in its result, or 0.
    pub(super) fn to(&self, index: usize) -> u64 {
        let outstanding = |(label, at): (usize, usize)| {
            let (upto, largest) = self.so_far[label];
            if at < upto { largest } else { 0 }
        };
        self.repeated.place(index).map_or(0, outstanding)
    }
}
