//! Errors that end a role early.

use stroboscope::InitError;

use crate::schedule::ScheduleError;
use crate::server::ServeError;
use crate::upstream::UpstreamError;
use crate::values::ValuesError;

/// Error that ends a role early.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The runtime or its signal handlers could not be set up.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The role could not listen or serve.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Recording could not start.
    #[error("cannot record: {0}")]
    Recording(#[from] InitError),
    /// A role that this one depends on cannot be reached.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The store's file could not be created.
    #[error(transparent)]
    Values(#[from] ValuesError),
    /// The rate or length of the load is impossible.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The report could not be printed.
    #[error("cannot print the report: {0}")]
    Report(String),
}
