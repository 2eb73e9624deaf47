//! Columns of time, all as wide, and so wide that there are few of them, whatever the order in which they are seen.

use std::collections::BTreeMap;

/// Columns at most: of twice as many, two are one.
pub(super) const COLUMNS_MAX: i64 = 128;
/// The narrowest takes 2 to this power ns, about a millisecond.
pub(super) const SHIFT_MIN: u32 = 20;

/// What a column holds; two of them can be one.
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

/// How many columns there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// From the first to the last, empty ones included: a picture's.
    Span(i64),
    /// Columns with something in them: long pauses make none of them wider.
    Occupied(usize),
}

/// What was seen, by columns counted from the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeColumns<T> {
    /// Each takes 2 to this power ns.
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
    /// None yet.
    pub(super) fn within(limit: Limit) -> Self {
        Self {
            shift: SHIFT_MIN,
            columns: BTreeMap::new(),
            limit,
        }
    }
}

impl<T: OfColumn> TimeColumns<T> {
    /// The column of an instant.
    pub(super) fn at(&mut self, at_ns: i64) -> &mut T {
        self.fit(Some(at_ns));
        self.columns.entry(at_ns >> self.shift).or_default()
    }

    /// The first and the last.
    pub(super) fn ends(&self) -> Option<(i64, i64)> {
        let (first, _) = self.columns.first_key_value()?;
        let (last, _) = self.columns.last_key_value()?;
        Some((*first, *last))
    }

    /// As if all of the other's had been seen here.
    pub(super) fn merge(&mut self, mut other: Self) {
        let shift = self.shift.max(other.shift);
        self.widen_to(shift);
        other.widen_to(shift);
        self.columns.take_in(other.columns);
        self.fit(None);
    }

    /// Makes columns wider until they are few enough, with that of one more instant: no wider than all that was seen needs.
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
