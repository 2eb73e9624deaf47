//! Columns of time with a common width, which doubles when there are too many columns. The result
//! does not depend on the order of observations.

use std::collections::BTreeMap;

/// Default maximum number of columns from the first to the last.
pub(super) const COLUMNS_MAX: i64 = 128;
/// Binary logarithm of the initial width in ns, which is about a millisecond.
pub(super) const SHIFT_MIN: u32 = 20;

/// Content of a column, which can be merged with the content of another column.
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

/// Limit on the number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Maximum number of columns from the first to the last, including empty ones.
    Span(i64),
    /// Maximum number of columns with observations. Long pauses do not widen columns.
    Occupied(usize),
}

/// Observations by column. Columns are numbered from the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeColumns<T> {
    /// Binary logarithm of the width of a column in ns.
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
    pub(super) fn within(limit: Limit) -> Self {
        Self {
            shift: SHIFT_MIN,
            columns: BTreeMap::new(),
            limit,
        }
    }
}

impl<T: OfColumn> TimeColumns<T> {
    /// Returns the column of an instant, and creates it if needed. Widens columns to stay within
    /// the limit.
    pub(super) fn at(&mut self, at_ns: i64) -> &mut T {
        self.fit(Some(at_ns));
        self.columns.entry(at_ns >> self.shift).or_default()
    }

    /// Returns the numbers of the first and the last column; `None` if there are none.
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

    /// Widens columns until they are within the limit, including the column of `at_ns` if given.
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

    /// Merges columns to a width of 2^`shift` ns, which must not be less than the present width.
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
