//! The part of the SDK's interface that the newsfeed uses, with functions that do nothing. The
//! newsfeed with it is the baseline: a service without annotations.

#[path = "../marked.rs"]
pub mod marked;
#[path = "../tracked.rs"]
pub mod tracked;
#[path = "../tradeoff.rs"]
pub mod tradeoff;

pub use tradeoff::baggage;

pub use stroboscope_bench_macros::untraced as trace;

/// Name of an environment variable of the SDK. Ignored here.
pub const ENV_COLLECTOR: &str = "STROBOSCOPE_COLLECTOR";
/// Name of an environment variable of the SDK. Ignored here.
pub const ENV_BURST_CONFIG: &str = "STROBOSCOPE_BURST_CONFIG";
/// Name of an environment variable of the SDK. Ignored here.
pub const ENV_SAMPLE: &str = "STROBOSCOPE_SAMPLE";
/// Name of an environment variable of the SDK. Ignored here.
pub const ENV_SERVICE: &str = "STROBOSCOPE_SERVICE";

/// The return value of [`init`]. Dropping it does nothing.
#[derive(Debug)]
pub struct Guard(());

/// The error type of [`init`], which never fails.
#[derive(Debug, thiserror::Error)]
#[error("never happens")]
pub struct InitError(());

/// Does nothing.
///
/// # Errors
/// Never.
pub fn init(_: &str) -> Result<Guard, InitError> {
    Ok(Guard(()))
}

/// A span that records nothing.
#[derive(Debug)]
pub struct Span(());

impl Span {
    /// Makes a span that records nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self(())
    }

    /// Returns the span unchanged.
    #[must_use]
    pub fn entered(self) -> Self {
        self
    }
}

/// Makes a span that records nothing. The expressions of its fields are not evaluated.
#[macro_export]
macro_rules! span {
    ($name:expr $(, $($fields:tt)*)?) => {
        $crate::Span::none()
    };
}

/// The SDK's methods of futures, without any effect.
pub trait FutureExt: Future + Sized {
    /// Returns the future unchanged.
    fn in_span(self, _: Span) -> Self {
        self
    }

    /// Returns the future unchanged.
    fn in_current_span(self) -> Self {
        self
    }
}

impl<F: Future> FutureExt for F {}

/// Tower layers that return the service unchanged.
pub mod tower {
    pub use crate::tradeoff::{CopiedBody, DuplicateLayer, SlackOrderLayer};

    /// Returns the service unchanged.
    pub type ServerLayer = tower::layer::util::Identity;
    /// Returns the service unchanged.
    pub type ClientLayer = tower::layer::util::Identity;
    /// The service itself.
    pub type ClientService<S> = S;
}
