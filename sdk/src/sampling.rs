//! Sampling decision, made once at a request's ingress: whether the request is recorded wherever it
//! goes.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::span_context::SpanContext;

/// Attribute of a request's first span in a process: the part of `tracestate` that states the
/// probability with which the request was sampled. The collector reads the attribute under the same
/// name from spans of OpenTelemetry.
pub(crate) const STATE_FIELD: &str = "w3c.tracestate";

/// Selection of the requests that begin in this process. A window records everything in any mode;
/// the mode selects the requests that are also recorded outside of windows. Requests that callers
/// sampled are recorded to their end in any mode, unless
/// [callers are public](crate::Builder::public_callers).
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum SampleMode {
    /// No requests: only their work inside windows is recorded, and they are cut at the windows'
    /// edges.
    Burst,
    /// Requests that enter during a window are recorded to their end, in every process (the
    /// default).
    #[default]
    Follow,
    /// This fraction (0 to 1) of all requests, inside windows or not, is recorded from ingress to
    /// end. Their `tracestate` states the fraction, as OpenTelemetry's does (`ot=th:`). Most
    /// reports of the collector weight each recorded request by it, unless a window covered the
    /// whole request.
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

/// Number of random bits of a trace id that decide, counted from its end.
const RANDOM_BITS: u32 = 56;
/// Rejection threshold: a request is sampled if the lowest 56 bits of its trace id are at least
/// this. OpenTelemetry's consistent samplers decide by the same bits, so requests sampled at one
/// ratio are also sampled at every higher one. [`FOLLOW`] has a meaning of its own.
static THRESHOLD: AtomicU64 = AtomicU64::new(NOBODY);
/// Samples no request.
const NOBODY: u64 = 1 << RANDOM_BITS;
/// Samples the requests that enter during a window.
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
        SampleMode::Burst => NOBODY,
        SampleMode::Follow => FOLLOW,
        SampleMode::Ratio(ratio) => rejection_threshold(ratio),
    };
    THRESHOLD.store(threshold, Relaxed);
    crate::gate::set_decide(matches!(mode, SampleMode::Ratio(ratio) if ratio > 0.0));
}

fn rejection_threshold(ratio: f64) -> u64 {
    NOBODY - ((ratio * NOBODY as f64).round() as u64).min(NOBODY)
}

/// Decides whether a request that begins in this process is sampled, and marks its context.
#[inline]
pub(crate) fn decide(context: SpanContext, is_inside_window: bool) -> SpanContext {
    match THRESHOLD.load(Relaxed) {
        FOLLOW if is_inside_window => context.sampled(),
        threshold if is_kept(context.trace_id(), threshold) => context.sampled().by_ratio(),
        _ => context,
    }
}

fn is_kept(trace_id: u128, threshold: u64) -> bool {
    trace_id as u64 % NOBODY >= threshold
}

/// Member of `tracestate` that states the ratio, as a rejection threshold: `ot=th:c` for a quarter.
pub(crate) struct RatioState {
    bytes: [u8; 20],
    len: usize,
}

impl RatioState {
    /// Returns the state for this process's ratio; `None` if it does not sample by a ratio above 0.
    pub(crate) fn current() -> Option<Self> {
        Some(THRESHOLD.load(Relaxed))
            .filter(|threshold| *threshold < NOBODY)
            .map(Self::of)
    }

    fn of(threshold: u64) -> Self {
        let mut state = Self {
            bytes: *b"ot=th:00000000000000",
            len: 7,
        };
        // Trailing zeros are omitted.
        let mut rest = threshold << (u64::BITS - RANDOM_BITS);
        for (place, digit) in state.bytes.iter_mut().enumerate().skip(6) {
            if rest != 0 {
                *digit = b"0123456789abcdef"[(rest >> 60) as usize];
                rest <<= 4;
                state.len = place + 1;
            }
        }
        state
    }

    pub(crate) fn text(&self) -> &str {
        // Only ASCII is written.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// Returns the member of OpenTelemetry in a clean `tracestate`, if it states a rejection threshold
/// and thereby the probability with which the sender's sampler kept the request.
pub(crate) fn stated_threshold(tracestate: &str) -> Option<&str> {
    let mut members = tracestate.split(',');
    let member = members.find(|member| member.starts_with("ot="))?;
    let mut fields = member["ot=".len()..].split(';');
    fields
        .any(|field| field.starts_with("th:"))
        .then_some(member)
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

    #[test]
    fn a_ratio_is_stated_as_a_threshold() {
        let check = |ratio: f64, state: &str| {
            let threshold = rejection_threshold(ratio);
            assert_eq!(RatioState::of(threshold).text(), state, "{ratio}");
            assert_eq!(stated_threshold(state), Some(state));
        };
        check(1.0, "ot=th:0");
        check(0.5, "ot=th:8");
        check(0.25, "ot=th:c");
        check(0.1, "ot=th:e6666666666666");
        check(0.01, "ot=th:fd70a3d70a3d71");
        check(2f64.powi(-56), "ot=th:ffffffffffffff");
        assert_eq!(rejection_threshold(0.0), NOBODY);
        assert_eq!(stated_threshold("a=1,ot=rv:1;th:8"), Some("ot=rv:1;th:8"));
        for other in ["a=th:8", "ot=rv:1", "bot=th:8", "ot=p:1;xth:8"] {
            assert_eq!(stated_threshold(other), None, "{other}");
        }
    }

    /// The 72 bits before the lowest 56 do not matter, as in OpenTelemetry's specification.
    #[test]
    fn the_lowest_bits_decide() {
        let half = rejection_threshold(0.5);
        let least = 1u128 << 55;
        for upper in [0, u128::MAX << RANDOM_BITS, 0xab << 100] {
            assert!(is_kept(upper | least, half) && !is_kept(upper | (least - 1), half));
            assert!(is_kept(upper, 0) && !is_kept(upper | (2 * least - 1), NOBODY));
        }
        let kept = |ratio| {
            let ids = (0..100_000u64).map(|id| id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            ids.filter(|id| is_kept(u128::from(*id), rejection_threshold(ratio)))
                .count()
        };
        assert!(kept(0.1).abs_diff(10_000) < 50 && kept(0.5).abs_diff(50_000) < 50);
    }
}
