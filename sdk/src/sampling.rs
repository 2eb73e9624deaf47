//! Sampling decision, made once at a request's ingress: whether the request is recorded wherever it
//! goes.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Selection of requests at their ingress. A window records everything in any mode; the mode
/// selects the requests that are also recorded outside of windows.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum SampleMode {
    /// No requests: only work inside windows is recorded, and requests are cut at the windows'
    /// edges.
    Burst,
    /// Requests that enter during a window are recorded to their end, in every process (the
    /// default).
    #[default]
    Follow,
    /// This fraction (0 to 1) of all requests, inside windows or not, is recorded from ingress to
    /// end.
    Ratio(f64),
}

/// Error for a text that is not a sample mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sample mode {0:?}: write \"follow\", \"burst\", or a ratio between 0 and 1")]
pub struct SampleModeError(String);

impl FromStr for SampleMode {
    type Err = SampleModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "burst" => Ok(Self::Burst),
            "follow" => Ok(Self::Follow),
            number => match number.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Self::Ratio(ratio)),
                _ => Err(SampleModeError(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for SampleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst => f.write_str("burst"),
            Self::Follow => f.write_str("follow"),
            Self::Ratio(ratio) => write!(f, "{ratio}"),
        }
    }
}

/// Threshold for sampling: a request is sampled if the upper half of its trace id is below it. The
/// value `FOLLOW` samples the requests that enter during a window instead.
static THRESHOLD: AtomicU64 = AtomicU64::new(0);
const FOLLOW: u64 = u64::MAX;

/// True if callers may ask for their request to be recorded.
static ACCEPT_FORCE: AtomicBool = AtomicBool::new(false);
/// True if callers' trace contexts and the SDK's members of their baggage are ignored.
static PUBLIC_CALLERS: AtomicBool = AtomicBool::new(false);

pub(crate) fn accepts_force() -> bool {
    ACCEPT_FORCE.load(Relaxed)
}

pub(crate) fn are_callers_public() -> bool {
    PUBLIC_CALLERS.load(Relaxed)
}

pub(crate) fn configure(mode: SampleMode, accept_force: bool, public_callers: bool) {
    ACCEPT_FORCE.store(accept_force, Relaxed);
    PUBLIC_CALLERS.store(public_callers, Relaxed);
    let threshold = match mode {
        SampleMode::Burst => 0,
        SampleMode::Follow => FOLLOW,
        SampleMode::Ratio(ratio) => ((ratio * u64::MAX as f64) as u64).min(FOLLOW - 1),
    };
    THRESHOLD.store(threshold, Relaxed);
    crate::gate::set_decide(matches!(mode, SampleMode::Ratio(ratio) if ratio > 0.0));
}

/// Reports whether a request that begins in this process is sampled.
#[inline]
pub(crate) fn decide(trace_id: u128, is_inside_window: bool) -> bool {
    match THRESHOLD.load(Relaxed) {
        FOLLOW => is_inside_window,
        threshold => ((trace_id >> 64) as u64) < threshold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<SampleMode>) {
        assert_eq!(text.parse::<SampleMode>().ok(), expected, "{text}");
    }

    #[test]
    fn texts() {
        check("burst", Some(SampleMode::Burst));
        check(" follow", Some(SampleMode::Follow));
        check("0.25", Some(SampleMode::Ratio(0.25)));
        check("1", Some(SampleMode::Ratio(1.0)));
        check("0", Some(SampleMode::Ratio(0.0)));
        for wrong in ["", "1.5", "-0.1", "NaN", "inf", "always"] {
            check(wrong, None);
        }
    }
}
