//! The part of the SDK's surface that the newsfeed uses, without anything behind it: what a service costs that was
//! never annotated.

#[path = "../marked.rs"]
pub mod marked;
#[path = "../tradeoff.rs"]
pub mod tradeoff;

pub use tradeoff::baggage;

pub use stroboscope_bench_macros::untraced as trace;

/// Of the real SDK.
pub const ENV_COLLECTOR: &str = "STROBOSCOPE_COLLECTOR";
/// Of the real SDK.
pub const ENV_BURST_CONFIG: &str = "STROBOSCOPE_BURST_CONFIG";
/// Of the real SDK.
pub const ENV_SAMPLE: &str = "STROBOSCOPE_SAMPLE";
/// Of the real SDK.
pub const ENV_SERVICE: &str = "STROBOSCOPE_SERVICE";

/// Guards nothing.
#[derive(Debug)]
pub struct Guard(());

/// Never happens.
#[derive(Debug, thiserror::Error)]
#[error("never happens")]
pub struct InitError(());

/// Starts nothing.
///
/// # Errors
/// Never.
pub fn init(_: &str) -> Result<Guard, InitError> {
    Ok(Guard(()))
}

/// No span.
#[derive(Debug)]
pub struct Span(());

impl Span {
    /// No span.
    #[must_use]
    pub const fn none() -> Self {
        Self(())
    }

    /// Enters nothing.
    #[must_use]
    pub fn entered(self) -> Self {
        self
    }
}

/// No span; its fields are not evaluated.
#[macro_export]
macro_rules! span {
    ($name:expr $(, $($fields:tt)*)?) => {
        $crate::Span::none()
    };
}

/// Futures stay what they are.
pub trait FutureExt: Future + Sized {
    /// The future as it is.
    fn in_span(self, _: Span) -> Self {
        self
    }

    /// The future as it is.
    fn in_current_span(self) -> Self {
        self
    }
}

impl<F: Future> FutureExt for F {}

/// Layers that change nothing.
pub mod tower {
    pub use crate::tradeoff::{CopiedBody, DuplicateLayer, SlackOrderLayer};

    /// Changes nothing.
    pub type ServerLayer = tower::layer::util::Identity;
    /// Changes nothing.
    pub type ClientLayer = tower::layer::util::Identity;
    /// The service as it is.
    pub type ClientService<S> = S;
}
