//! Columns of time, all with the same width, which grows to bound their number. The order of
//! observations does not matter.

use std::collections::BTreeMap;

/// Maximum number of columns. When there are more, pairs are merged.
pub(super) const COLUMNS_MAX: i64 = 128;
/// Width of the narrowest column: 2 to this power ns, about a millisecond.
pub(super) const SHIFT_MIN: u32 = 20;

/// Content of a column, which can be merged with that of another one.
pub(super) trait OfColumn: Default {
    fn take_in(&mut self, other: Self);
}

impl OfColumn for u64 {
    fn take_in(&mut self, other: Self) {
        *self += other;
    }
}

impl<K: Ord, V: OfColumn> OfColumn for BTreeMap<K, V> {
    fn take_in(&mut self, other: Self) {
        for (key, value) in other {
            self.entry(key).or_default().take_in(value);
        }
    }
}

/// Bound on the number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Number of columns from the first to the last, including empty ones, as in a picture.
    Span(i64),
    /// Number of columns with something in them. Long pauses do not widen columns.
    Occupied(usize),
}

/// Observations by columns counted from the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeColumns<T> {
    /// Binary logarithm of the width in ns.
    pub(super) shift: u32,
    pub(super) columns: BTreeMap<i64, T>,
    limit: Limit,
}

impl<T> Default for TimeColumns<T> {
    fn default() -> Self {
        Self::within(Limit::Span(COLUMNS_MAX))
    }
}

impl<T> TimeColumns<T> {
    /// Returns no columns yet.
    pub(super) fn within(limit: Limit) -> Self {
        Self {
            shift: SHIFT_MIN,
            columns: BTreeMap::new(),
            limit,
        }
    }
}

impl<T: OfColumn> TimeColumns<T> {
    /// Returns the column of an instant.
    pub(super) fn at(&mut self, at_ns: i64) -> &mut T {
        self.fit(Some(at_ns));
        self.columns.entry(at_ns >> self.shift).or_default()
    }

    /// Returns the numbers of the first and the last column.
    pub(super) fn ends(&self) -> Option<(i64, i64)> {
        let (first, _) = self.columns.first_key_value()?;
        let (last, _) = self.columns.last_key_value()?;
        Some((*first, *last))
    }

    /// Adds the observations of another set of columns.
    pub(super) fn merge(&mut self, mut other: Self) {
        let shift = self.shift.max(other.shift);
        self.widen_to(shift);
        other.widen_to(shift);
        self.columns.take_in(other.columns);
        self.fit(None);
    }

    /// Widens columns until they are few enough together with that of one more instant, but no
    /// further than the observations require.
    fn fit(&mut self, at_ns: Option<i64>) {
        while let Some((first, last)) = self.ends() {
            let column = at_ns.map_or(first, |at_ns| at_ns >> self.shift);
            let fits = match self.limit {
                Limit::Span(max) => last.max(column) - first.min(column) < max,
                Limit::Occupied(max) => {
                    let is_new = !self.columns.contains_key(&column);
                    self.columns.len() + usize::from(is_new) <= max
                }
            };
            if fits {
                return;
            }
            self.widen_to(self.shift + 1);
        }
    }

    /// Makes columns at least 2 to this power ns wide.
    pub(super) fn widen_to(&mut self, shift: u32) {
        let by = shift - self.shift;
        self.shift = shift;
        if by == 0 {
            return;
        }
        for (column, seen) in std::mem::take(&mut self.columns) {
            self.columns.entry(column >> by).or_default().take_in(seen);
        }
    }
}
