//! Set of sequence numbers, stored as a bounded number of runs.

use std::collections::BTreeMap;

/// Sequence numbers of stored batches. They usually form one run, and each gap between them adds a
/// run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// First and last number of each run (inclusive, so that `u64::MAX` fits).
    runs: BTreeMap<u64, u64>,
    /// Number below which the set no longer tracks numbers, to stay within the bound on runs.
    given_up_below: u64,
}

impl Ranges {
    /// Restores a set from stored parts; see [`Ranges::runs`] and [`Ranges::given_up_below`].
    #[must_use]
    pub fn from_parts(runs: &[(u64, u64)], given_up_below: u64) -> Self {
        let valid = runs.iter().copied().filter(|(first, last)| first <= last);
        Self {
            runs: valid.collect(),
            given_up_below,
        }
    }

    /// Reports whether `number` is in the set.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.runs
            .range(..=number)
            .next_back()
            .is_some_and(|(_, &last)| last >= number)
    }

    /// Adds `number`, unless it is so low that it is no longer tracked. Keeps at most `runs_max`
    /// runs, but at least one: drops the lowest runs, and no longer tracks numbers below the
    /// remaining ones.
    pub fn insert(&mut self, number: u64, runs_max: usize) {
        if self.contains(number) || number < self.given_up_below {
            return;
        }
        let mut first = number;
        let mut last = number;
        if let Some((&before, &before_last)) = self.runs.range(..number).next_back()
            && before_last.checked_add(1) == Some(number)
        {
            first = before;
        }
        let after = number.checked_add(1);
        if let Some(after_last) = after.and_then(|after| self.runs.remove(&after)) {
            last = after_last;
        }
        self.runs.insert(first, last);
        while self.runs.len() > runs_max.max(1) {
            self.runs.pop_first();
            self.given_up_below = self.runs.first_key_value().map_or(0, |(&first, _)| first);
        }
    }

    /// Counts the tracked numbers that the set lacks below its highest number.
    #[must_use]
    pub fn holes(&self) -> u64 {
        let mut expected = self.given_up_below;
        let mut holes = 0u64;
        for (&first, &last) in &self.runs {
            holes = holes.saturating_add(first.saturating_sub(expected));
            expected = last.saturating_add(1);
        }
        holes
    }

    /// Returns the number below which the set no longer tracks numbers.
    #[must_use]
    pub fn given_up_below(&self) -> u64 {
        self.given_up_below
    }

    /// Returns the first and last number of each run.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(&first, &last)| (first, last))
    }
}
