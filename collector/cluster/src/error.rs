//! Errors of drivers.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use datafusion::error::DataFusionError;

/// Reason why a worker did not run a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerFailure {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it rejects this driver: {0}")]
    Rejected(String),
    #[error("it is {found}, and this is {own}: use the same program on all machines")]
    Version { found: String, own: String },
    #[error("it sent no result within {0:?} (--cluster-deadline)")]
    Deadline(Duration),
    /// A call failed, as when the connection ends; the worker sent no version in time; or the
    /// result is incomplete.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The task failed, its result is too large, or a call failed without a status of gRPC.
    #[error("{0}")]
    Task(String),
}

impl WorkerFailure {
    /// Reports whether the worker may recover, for example because it restarts.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Lost(_))
    }

    pub(crate) fn of_call(error: &DataFusionError) -> Self {
        let root = error.find_root();
        let status = match root {
            DataFusionError::External(error) => error.downcast_ref::<tonic::Status>(),
            _ => None,
        };
        match status {
            Some(status) => Self::of_status(status),
            None => Self::Task(root.strip_backtrace()),
        }
    }

    fn of_status(status: &tonic::Status) -> Self {
        use tonic::Code::{PermissionDenied, Unauthenticated};
        match status.code() {
            Unauthenticated | PermissionDenied => Self::Rejected(status.message().to_owned()),
            _ => Self::Lost(chain(status)),
        }
    }
}

/// Returns the text of an error with its causes.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        // `Display` of a status has its metadata and its cause, too.
        let status = error.downcast_ref::<tonic::Status>();
        let part = status.map_or_else(|| error.to_string(), |status| status.message().to_owned());
        if !part.is_empty() && !text.ends_with(&part) {
            let separator = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{separator}{part}");
        }
        next = error.source();
    }
    text
}

/// Reason why a driver has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot use the address {address:?} of a worker: {reason}")]
    Address { address: String, reason: String },
    #[error("cannot use the TLS files of the cluster: {0}")]
    Tls(String),
    #[error("the token of the cluster is not ASCII text of one line")]
    Token,
    #[error("cannot save a result: {0}")]
    Save(#[from] io::Error),
    #[error(
        "{missing} of {tasks} shards have no result, because all workers failed:{}",
        listed(failures)
    )]
    NoResult {
        tasks: usize,
        missing: usize,
        /// Workers that failed, with the last failure of each.
        failures: Vec<(String, WorkerFailure)>,
    },
}

fn listed(failures: &[(String, WorkerFailure)]) -> String {
    let failures = failures.iter();
    let lines = failures.map(|(worker, failure)| format!("\n  worker {worker}: {failure}"));
    lines.collect()
}
