//! Identity of a tradeoff point in a trace, with its recorded load.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::baggage::TradeoffKind;

/// Upper half of [`PointIdentity::under_way`].
const GENERATION: u64 = u64::MAX << 32;

/// Declaration of a point, and its load.
#[derive(Debug)]
pub(super) struct PointIdentity {
    pub(super) name: &'static str,
    pub(super) kind: TradeoffKind,
    pub(super) features: &'static [&'static str],
    /// Number of requests that were decided about and still work at the point, in the lower half.
    /// The upper half is the [generation](crate::generation) that counts them, because a forked
    /// child does not count its parent's requests.
    under_way: AtomicU64,
    /// Arrival rate, as the bits of an `f64`.
    pub(super) requests_per_second: AtomicU64,
}

impl PointIdentity {
    pub(super) const fn new(
        name: &'static str,
        kind: TradeoffKind,
        features: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            kind,
            features,
            under_way: AtomicU64::new(0),
            requests_per_second: AtomicU64::new(0),
        }
    }

    /// Counts one more request as under way.
    #[inline]
    pub(super) fn begin(&self, generation: u32) {
        let own = u64::from(generation) << 32;
        if self.under_way.fetch_add(1, Relaxed) & GENERATION != own {
            self.begin_anew(own);
        }
    }

    /// Counts a request that may be the first one in a forked child.
    #[cold]
    fn begin_anew(&self, own: u64) {
        let counted = |word: u64| match word & GENERATION == own {
            true => Some(word + 1),
            false => Some(own | 1),
        };
        let _always_ok = self.under_way.fetch_update(Relaxed, Relaxed, counted);
    }

    /// Counts a request that [began](Self::begin) in generation `began` as done. Has no effect in
    /// another generation.
    pub(super) fn end(&self, began: u32, generation: u32) {
        if began == generation {
            self.under_way.fetch_sub(1, Relaxed);
        }
    }

    /// Returns the number of requests under way.
    pub(super) fn under_way(&self, generation: u32) -> u64 {
        let word = self.under_way.load(Relaxed);
        match word >> 32 == u64::from(generation) {
            true => word & !GENERATION,
            false => 0,
        }
    }

    /// Returns the requests that arrive per second, as last measured.
    pub(super) fn requests_per_second(&self) -> f64 {
        f64::from_bits(self.requests_per_second.load(Relaxed))
    }

    /// Returns the two parts of the name: the component, and the data that the point can give up.
    /// The component is empty if the name has no dot.
    pub(super) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// Returns the kind's name in a trace.
    pub(super) const fn kind_name(&self) -> &'static str {
        match self.kind {
            TradeoffKind::Omit => "omit",
            TradeoffKind::Default => "default",
            TradeoffKind::LowFidelity => "low_fidelity",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_counts_its_own_requests() {
        let point = PointIdentity::new("a.b", TradeoffKind::Omit, &[]);
        let (parent, child) = (0, 1);
        (0..3).for_each(|_| point.begin(parent));
        point.end(parent, parent);
        assert_eq!(point.under_way(parent), 2);
        // The forking thread's request ends in the child, too.
        point.end(parent, child);
        assert_eq!(point.under_way(child), 0);
        (0..2).for_each(|_| point.begin(child));
        assert_eq!(point.under_way(child), 2);
        point.end(parent, child);
        point.end(child, child);
        assert_eq!(point.under_way(child), 1);
        // Threads whose first requests come at the same time find the count of the parent.
        let grandchild = 2;
        let own = u64::from(grandchild) << 32;
        point.under_way.fetch_add(2, Relaxed);
        (0..2).for_each(|_| point.begin_anew(own));
        assert_eq!(point.under_way(grandchild), 2);
    }
}
