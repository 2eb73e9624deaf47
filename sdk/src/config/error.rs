//! Errors of the SDK's start.

use std::path::PathBuf;

#[cfg(feature = "tracing")]
use super::ENV_TRACING;
use super::{
    ENV_BURST_CONFIG, ENV_CA, ENV_CALLERS, ENV_COLLECTOR, ENV_FORCE, ENV_PROPAGATE, ENV_PROVENANCE,
    ENV_SAMPLE, ENV_TOKEN,
};
use crate::sampling::SampleModeError;
#[cfg(feature = "tracing")]
use crate::tracing_filter::TracingFilterError;
use stroboscope_burst::BurstConfigError;

/// Error that prevents recording from starting. The service can run untraced: every annotation then
/// costs only a flag check.
///
/// The `Debug` form equals the message, so a `main` that returns this error prints advice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// [`ENV_BURST_CONFIG`] holds no valid burst-config.
    #[error("{ENV_BURST_CONFIG}: {0}")]
    BurstConfig(#[source] BurstConfigError),
    /// [`ENV_SAMPLE`] holds no valid sample mode.
    #[error("{ENV_SAMPLE}: {0}")]
    Sample(#[source] SampleModeError),
    /// [`ENV_CALLERS`] holds neither `public` nor `trusted`.
    #[error("{ENV_CALLERS}: {0:?}: write \"public\" or \"trusted\"")]
    Callers(String),
    /// [`ENV_FORCE`] holds neither `accept` nor `refuse`.
    #[error("{ENV_FORCE}: {0:?}: write \"accept\" or \"refuse\"")]
    Force(String),
    /// [`ENV_PROPAGATE`] holds neither `always` nor `recorded`.
    #[error("{ENV_PROPAGATE}: {0:?}: write \"always\" or \"recorded\"")]
    Propagate(String),
    /// [`ENV_PROVENANCE`] holds neither `on`, `off` nor a share.
    #[error("{ENV_PROVENANCE}: {0:?}: write \"on\", \"off\" or a share such as 0.01")]
    Provenance(String),
    /// [`ENV_TRACING`] holds no valid filter directives.
    #[cfg(feature = "tracing")]
    #[error("{ENV_TRACING}: {0}")]
    Tracing(#[source] TracingFilterError),
    /// The value of the named environment variable is not UTF-8.
    #[error("{0}: its value is not UTF-8")]
    NotText(&'static str),
    /// The collector's address is invalid, or not usable with this build or on this system.
    #[error(
        "collector address {address:?}: {problem}; write http://HOST:PORT, https://HOST:PORT or unix:/PATH \
         (set by {ENV_COLLECTOR})"
    )]
    Collector {
        /// Address as given.
        address: String,
        /// Description of the problem.
        problem: String,
    },
    /// The bearer token cannot be sent. The message does not show it.
    #[error("{ENV_TOKEN}: a token must be one word of visible ASCII characters")]
    Token,
    /// The file of the certificate authority is unusable, or the collector's address is not
    /// `https`.
    #[error("{ENV_CA}: file {path:?}: {problem}")]
    Ca {
        /// Path as given.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// [`Builder::flush_on_sigterm`](crate::Builder::flush_on_sigterm) was called in a process
    /// that already handles or ignores SIGTERM.
    #[error(
        "this process already has a handler of SIGTERM; leave out `flush_on_sigterm`, and call \
         `stroboscope::flush` where the signal is handled"
    )]
    SigtermTaken,
    /// A thread, or its async runtime, could not be started.
    #[error("the SDK's thread {0:?} could not be started: {1}")]
    Thread(&'static str, #[source] std::io::Error),
}

impl std::fmt::Debug for InitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
