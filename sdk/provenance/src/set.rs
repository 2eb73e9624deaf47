//! Sets of inputs.

mod pages;

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use pages::Pages;

/// Maximum number of ranges of a set without bitmaps. Miri needs small sets.
const RANGES_MAX: usize = if cfg!(miri) { 8 } else { 32 };

/// Set of inputs. A clone shares the memory of large parts with its original.
#[derive(Clone)]
pub struct InputSet(Form);

#[derive(Clone)]
enum Form {
    /// Ascending ranges, both ends included, with gaps between them.
    Ranges(Vec<(u32, u32)>),
    Pages(Pages),
}

impl InputSet {
    /// Creates an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(Form::Ranges(Vec::new()))
    }

    pub(crate) fn from_range(first: u32, last: u32) -> Self {
        let mut set = Self::new();
        set.insert(first, last);
        set
    }

    /// Adds the inputs from `first` to `last`, both included. Leaves out `u32::MAX`, which is no
    /// input.
    pub fn insert(&mut self, first: u32, last: u32) {
        let last = last.min(u32::MAX - 1);
        if first > last {
            return;
        }
        let ranges = match &mut self.0 {
            Form::Pages(pages) => return pages.insert(first, last),
            Form::Ranges(ranges) => ranges,
        };
        // Ranges that overlap or touch the new one.
        let from = ranges.partition_point(|range| range.1.saturating_add(1) < first);
        let to = ranges.partition_point(|range| range.0 <= last.saturating_add(1));
        if from == to {
            ranges.insert(from, (first, last));
            if ranges.len() > RANGES_MAX {
                self.make_pages();
            }
        } else {
            ranges[from] = (first.min(ranges[from].0), last.max(ranges[to - 1].1));
            ranges.drain(from + 1..to);
        }
    }

    fn make_pages(&mut self) {
        if let Form::Ranges(ranges) = &self.0 {
            let mut pages = Pages::default();
            for (first, last) in ranges {
                pages.insert(*first, *last);
            }
            self.0 = Form::Pages(pages);
        }
    }

    /// Adds the inputs of another set.
    pub fn union_with(&mut self, other: &Self) {
        if let (Form::Ranges(ranges), Form::Pages(pages)) = (&self.0, &other.0) {
            let mut pages = pages.clone();
            for (first, last) in ranges {
                pages.insert(*first, *last);
            }
            self.0 = Form::Pages(pages);
            return;
        }
        match (&mut self.0, &other.0) {
            (Form::Pages(own), Form::Pages(others)) => own.union_with(others),
            (_, Form::Ranges(ranges)) => {
                for (first, last) in ranges {
                    self.insert(*first, *last);
                }
            }
            (Form::Ranges(_), Form::Pages(_)) => {}
        }
    }

    /// Returns the number of inputs.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Form::Ranges(ranges) => ranges
                .iter()
                .map(|(first, last)| u64::from(last - first) + 1)
                .sum(),
            Form::Pages(pages) => pages.len(),
        }
    }

    /// Reports whether the set contains no input.
    pub fn is_empty(&self) -> bool {
        self.ranges().next().is_none()
    }

    /// Reports whether the set contains an input.
    pub fn contains(&self, input: u32) -> bool {
        match &self.0 {
            Form::Ranges(_) => self.intersects(input, input),
            Form::Pages(pages) => pages.contains(input),
        }
    }

    /// Reports whether the set contains an input from `first` to `last`, both included.
    pub fn intersects(&self, first: u32, last: u32) -> bool {
        self.range_from(first).is_some_and(|range| range.0 <= last)
    }

    /// Returns the range that contains `from`, cut to begin at `from`, or else the next range.
    fn range_from(&self, from: u32) -> Option<(u32, u32)> {
        match &self.0 {
            Form::Ranges(ranges) => {
                let at = ranges.partition_point(|range| range.1 < from);
                ranges.get(at).map(|range| (range.0.max(from), range.1))
            }
            Form::Pages(pages) => pages.range_from(from),
        }
    }

    /// Returns the maximal ranges of successive inputs, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u32>> + '_ {
        self.ranges_within(0, u32::MAX)
    }

    /// Returns the ranges of the set's inputs from `first` to `last`, both included.
    pub fn ranges_within(
        &self,
        first: u32,
        last: u32,
    ) -> impl Iterator<Item = RangeInclusive<u32>> + '_ {
        let mut from = Some(first);
        core::iter::from_fn(move || {
            let (first, end) = self.range_from(from?).filter(|range| range.0 <= last)?;
            from = end.checked_add(1);
            Some(first..=end.min(last))
        })
    }

    /// Returns the bytes that the set takes, with its share of pages that other sets have, too.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Form::Ranges(ranges) => ranges.capacity() * size_of::<(u32, u32)>(),
            Form::Pages(pages) => pages.bytes(),
        }
    }

    /// Returns the number of ranges or pages of which the set consists.
    pub(crate) fn parts(&self) -> usize {
        match &self.0 {
            Form::Ranges(ranges) => ranges.len(),
            Form::Pages(pages) => pages.count(),
        }
    }

    /// Returns the weight by which a sweep chooses which of two sets it adds to the other.
    pub(crate) fn weight(&self) -> usize {
        match &self.0 {
            Form::Ranges(ranges) => ranges.len(),
            Form::Pages(_) => usize::MAX,
        }
    }
}

impl Default for InputSet {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for InputSet {
    fn eq(&self, other: &Self) -> bool {
        self.ranges().eq(other.ranges())
    }
}

impl Eq for InputSet {}

impl fmt::Debug for InputSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.ranges()).finish()
    }
}

impl Extend<u32> for InputSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, inputs: I) {
        inputs
            .into_iter()
            .for_each(|input| self.insert(input, input));
    }
}

impl FromIterator<u32> for InputSet {
    fn from_iter<I: IntoIterator<Item = u32>>(inputs: I) -> Self {
        let mut set = Self::new();
        set.extend(inputs);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// Factor by which pages, and the tests' sets, are smaller under Miri.
    const SCALE: u32 = if cfg!(miri) { 32 } else { 1 };
    /// End of the inputs of most tests: within a few pages.
    const END: u32 = 20_000 / SCALE;

    /// Generates few, many and long ranges, within a few pages and at the end of all inputs.
    fn ranges() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let end = 0x7FFF_FFFF - 12_000 / SCALE..0x7FFF_FFFF_u32;
        let first = prop_oneof![0..300_u32, 0..END, end];
        let length = prop_oneof![0..3_u32, 0..200 / SCALE, 0..9_000 / SCALE];
        let range = (first, length).prop_map(|(first, length)| (first, first + length));
        prop_oneof![
            prop::collection::vec(range.clone(), 0..8),
            prop::collection::vec(range, RANGES_MAX - 2..5 * RANGES_MAX / 2),
        ]
    }

    fn build(ranges: &[(u32, u32)]) -> (InputSet, BTreeSet<u32>) {
        let (mut set, mut reference) = (InputSet::new(), BTreeSet::new());
        for (first, last) in ranges {
            set.insert(*first, *last);
            reference.extend(*first..=*last);
        }
        (set, reference)
    }

    fn check(set: &InputSet, reference: &BTreeSet<u32>) -> Result<(), TestCaseError> {
        let inputs: Vec<u32> = set.ranges().flatten().collect();
        prop_assert!(inputs.iter().eq(reference), "{:?}", set);
        prop_assert_eq!(set.len(), reference.len() as u64);
        prop_assert_eq!(set.is_empty(), reference.is_empty());
        let ranges: Vec<_> = set.ranges().collect();
        let has_gap = |pair: &[RangeInclusive<u32>]| pair[0].end() + 1 < *pair[1].start();
        prop_assert!(ranges.windows(2).all(has_gap), "{:?}", set);
        Ok(())
    }

    #[test]
    fn the_last_number_is_left_out() {
        // Miri would take hours for all pages.
        let first = if cfg!(miri) { u32::MAX - 1_000 } else { 5 };
        for gaps in [0, 2 * RANGES_MAX as u32] {
            let mut set: InputSet = (0..gaps).map(|at| u32::MAX - 1 - 2 * at).collect();
            set.insert(u32::MAX, u32::MAX);
            assert_eq!(set.len(), u64::from(gaps));
            set.insert(first, u32::MAX);
            assert!(set.ranges().eq([first..=u32::MAX - 1]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 32 }))]
        #[test]
        fn sets_agree_with_ordered_sets(
            a in ranges(), b in ranges(), at in 0..END, length in 0..500 / SCALE,
        ) {
            let (mut set, mut reference) = build(&a);
            check(&set, &reference)?;
            let (other, other_reference) = build(&b);
            let copy = set.clone();
            set.union_with(&other);
            let before = reference.clone();
            reference.extend(&other_reference);
            check(&set, &reference)?;
            // The union changed neither the other set nor the copy that shares its memory.
            check(&other, &other_reference)?;
            check(&copy, &before)?;
            prop_assert_eq!(set.contains(at), reference.contains(&at));
            let intersects = reference.range(at..=at + length).next().is_some();
            prop_assert_eq!(set.intersects(at, at + length), intersects);
            let within: Vec<u32> = set.ranges_within(at, at + length).flatten().collect();
            prop_assert!(within.iter().eq(reference.range(at..=at + length)), "{:?}", within);
            let rebuilt: InputSet = reference.iter().copied().collect();
            prop_assert_eq!(&set, &rebuilt);
        }
    }
}
