//! Clocks of hosts, as far as the order of spans depends on them. All exact or unknown clocks count
//! as one clock.

use std::sync::Arc;

use stroboscope_analysis::record::HostClock;
use stroboscope_analysis::segment::ClockBounds;

/// Maximum of all error bounds, in ns; far from overflow. As times since the Unix epoch,
/// `-NEVER_NS` lies before and `NEVER_NS` after every instant of the years 1897 to 2042.
pub(super) const NEVER_NS: i64 = i64::MAX / 4;

/// Properties of the clock that recorded a span's times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Clock {
    /// Host of the clock; `None` for an exact or unknown clock.
    pub(super) host: Option<Arc<str>>,
    pub(super) bounds: ClockBounds,
}

impl Clock {
    pub(super) fn of(host: &Arc<str>, clocks: &[HostClock]) -> Self {
        let known = clocks.iter().find(|clock| clock.host == *host);
        match known.filter(|clock| !clock.is_exact()) {
            None => Self {
                host: None,
                bounds: ClockBounds::default(),
            },
            Some(clock) => Self {
                host: Some(clock.host.clone()),
                bounds: ClockBounds::of(clock),
            },
        }
    }

    /// Returns the minimum distance, in ns, at which the order of a timestamp of this clock and one
    /// of `other` is certain; at most [`NEVER_NS`]. Without a tolerance, spans that touch are in
    /// order. Otherwise, the distance must exceed the tolerance, as in the model.
    pub(super) fn slack_ns(&self, other: &Self) -> i64 {
        let is_one_clock = self.host == other.host && self.bounds.island == other.bounds.island;
        let tolerance_ns = self.bounds.tolerance_ns(other.bounds, is_one_clock);
        let is_inexact = u64::from(tolerance_ns > 0);
        i64::try_from(tolerance_ns.saturating_add(is_inexact))
            .unwrap_or(NEVER_NS)
            .min(NEVER_NS)
    }
}
