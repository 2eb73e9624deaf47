//! Clocks of hosts, as far as the order of spans depends on them. All exact clocks count as one
//! clock.

use std::sync::Arc;

use stroboscope_analysis::record::HostClock;

/// Offset in ns that is longer than any error bound and far from overflow. `-NEVER_NS` lies before
/// every instant, and `NEVER_NS` after every instant.
pub(super) const NEVER_NS: i64 = i64::MAX / 4;

/// Properties of the clock that recorded a span's times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Clock {
    /// Host of the clock; `None` for every exact clock.
    pub(super) host: Option<Arc<str>>,
    pub(super) error_ns: i64,
    pub(super) resolution_ns: i64,
    pub(super) island: u32,
}

impl Clock {
    pub(super) fn of(host: &Arc<str>, clocks: &[HostClock]) -> Self {
        let known = clocks.iter().find(|clock| clock.host == *host);
        match known.filter(|clock| !clock.is_exact()) {
            None => Self {
                host: None,
                error_ns: 0,
                resolution_ns: 1,
                island: 0,
            },
            Some(clock) => Self {
                host: Some(clock.host.clone()),
                error_ns: i64::try_from(clock.error_ns)
                    .unwrap_or(NEVER_NS)
                    .min(NEVER_NS),
                resolution_ns: i64::try_from(clock.resolution_ns)
                    .unwrap_or(NEVER_NS)
                    .clamp(1, NEVER_NS),
                island: clock.island,
            },
        }
    }
}
