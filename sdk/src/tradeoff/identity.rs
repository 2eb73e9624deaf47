//! A tradeoff point as a trace names it, with the figures that a trace has of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::baggage::TradeoffKind;

/// The declaration of a point, and the requests there.
#[derive(Debug)]
pub(super) struct PointIdentity {
    pub(super) name: &'static str,
    pub(super) kind: TradeoffKind,
    pub(super) features: &'static [&'static str],
    /// Requests that have been decided about, and still work at the point.
    pub(super) under_way: AtomicU64,
    /// The bits of an `f64`.
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

    /// Requests that arrive per second, as last looked at.
    pub(super) fn requests_per_second(&self) -> f64 {
        f64::from_bits(self.requests_per_second.load(Relaxed))
    }

    /// The component, and what it can do without.
    pub(super) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// The name of the kind in a trace.
    pub(super) const fn kind_name(&self) -> &'static str {
        match self.kind {
            TradeoffKind::Omit => "omit",
            TradeoffKind::Default => "default",
            TradeoffKind::LowFidelity => "low_fidelity",
        }
    }
}
