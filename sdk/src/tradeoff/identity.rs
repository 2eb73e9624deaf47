//! Identity of a tradeoff point in a trace, with its recorded load.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::baggage::TradeoffKind;

/// Declaration of a point, and its load.
#[derive(Debug)]
pub(super) struct PointIdentity {
    pub(super) name: &'static str,
    pub(super) kind: TradeoffKind,
    pub(super) features: &'static [&'static str],
    /// Number of requests that were decided about and still work at the point.
    pub(super) under_way: AtomicU64,
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

    /// Returns the requests that arrive per second, as last measured.
    pub(super) fn requests_per_second(&self) -> f64 {
        f64::from_bits(self.requests_per_second.load(Relaxed))
    }

    /// Returns the component and the data that it can give up. The component is empty if the name
    /// has no dot.
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
