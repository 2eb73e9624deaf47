//! Set of bytes of an item, as disjoint ranges of offsets.

use std::collections::BTreeMap;
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
    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // The last range that starts at or before the end, as long as it touches.
        while let Some((&first, &last)) = self.ends.range(..=end).next_back()
            && last >= start
        {
            start = start.min(first);
            end = end.max(last);
            self.ends.remove(&first);
        }
        self.ends.insert(start, end);
    }

    /// Returns the parts of a range that are not in the set.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut start = range.start;
        let mut missing = Vec::new();
        let before = self.ends.range(..=start).next_back();
        let inside = self
            .ends
            .range(range.start.saturating_add(1)..range.end.max(range.start + 1));
        for (&first, &end) in before.into_iter().chain(inside) {
            if first > start {
                missing.push(start..first.min(range.end));
            }
            start = start.max(end);
        }
        if start < range.end {
            missing.push(start..range.end);
        }
        missing
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
            let missing: Vec<u64> = ranges.missing(from..from + count).into_iter().flatten().collect();
            let expected: Vec<u64> = (from..from + count).filter(|byte| !bytes.contains(byte)).collect();
            prop_assert_eq!(missing, expected);
        }
    }
}
