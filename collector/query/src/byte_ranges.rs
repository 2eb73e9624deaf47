//! Set of bytes of an item, as disjoint ranges of offsets.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Set of bytes. Adjacent and overlapping ranges are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteRanges {
    /// End of each range by its start.
    ends: BTreeMap<u64, u64>,
}

impl ByteRanges {
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Merges the last range that starts at or before the end, until none touches.
        while let Some((&first, &last)) = self.ends.range(..=end).next_back()
            && last >= start
        {
            start = start.min(first);
            end = end.max(last);
            self.ends.remove(&first);
        }
        self.ends.insert(start, end);
    }

    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Cuts the last range that starts before the end, until none overlaps.
        while let Some((&first, &last)) = self.ends.range(..range.end).next_back()
            && last > range.start
        {
            self.ends.remove(&first);
            if last > range.end {
                self.ends.insert(range.end, last);
            }
            if first < range.start {
                self.ends.insert(first, range.start);
            }
        }
    }

    /// Returns the parts of the set that are in a range, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ends.range(..=range.start).next_back();
        let from = first.map_or(range.start, |(&first, _)| first);
        let parts = self.ends.range(from..from.max(range.end));
        parts
            .map(move |(&first, &end)| first.max(range.start)..end.min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// Reports whether the set has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }
}

impl FromIterator<Range<u64>> for ByteRanges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.insert(range));
        all
    }
}

/// Shows ranges as `0..5, 8..10`.
impl fmt::Display for ByteRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, range) in self.iter().enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            write!(f, "{separator}{range:?}")?;
        }
        Ok(())
    }
}

/// Serializes as a list of pairs: the first offset, and the offset after the last one.
impl Serialize for ByteRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.ends)
    }
}

impl JsonSchema for ByteRanges {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        Vec::<[u64; 2]>::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Vec::<[u64; 2]>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compares with a set of single bytes.
        #[test]
        fn ranges_are_sets_of_bytes(
            inserted in prop::collection::vec((0..40_u64, 0..9_u64), 0..12),
            (from, count) in (0..40_u64, 0..12_u64),
        ) {
            let mut ranges = ByteRanges::default();
            let mut bytes = BTreeSet::new();
            for (start, count) in inserted {
                ranges.insert(start..start + count);
                bytes.extend(start..start + count);
            }
            let of_ranges: Vec<u64> = ranges.iter().flatten().collect();
            prop_assert_eq!(of_ranges, bytes.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.bytes(), bytes.len() as u64);
            let all: Vec<Range<u64>> = ranges.iter().collect();
            prop_assert!(all.windows(2).all(|two| two[0].end < two[1].start));
            let within: Vec<u64> = ranges.within(from..from + count).flatten().collect();
            let is_within = |byte: &u64| (from..from + count).contains(byte);
            let expected: Vec<u64> = bytes.iter().copied().filter(is_within).collect();
            prop_assert_eq!(within, expected);
            ranges.remove(from..from + count);
            bytes.retain(|byte| !is_within(byte));
            prop_assert_eq!(ranges.iter().flatten().collect::<Vec<u64>>(), bytes.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.is_empty(), bytes.is_empty());
        }
    }
}
