//! Why a role ended early.

use stroboscope::InitError;

use crate::schedule::ScheduleError;
use crate::server::ServeError;
use crate::upstream::UpstreamError;
use crate::values::ValuesError;

/// Why a role ended early.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The runtime or its signal handlers could not be set up.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// It could not listen or serve.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Recording could not start.
    #[error("cannot record: {0}")]
    Recording(#[from] InitError),
    /// A role it depends on cannot be reached.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The store's file could not be made.
    #[error(transparent)]
    Values(#[from] ValuesError),
    /// The rate or length of the load is impossible.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The report could not be printed.
    #[error("cannot print the report: {0}")]
    Report(String),
}
