//! Errors of flushing or forwarding the log.

use crate::data_dir::DataDirError;
use crate::ledger::CheckpointError;
use crate::tables::StoreError;

/// Reason why a log was not opened, or a segment of it was not flushed or forwarded.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// A segment of the log cannot be read or deleted.
    #[error("WAL segment {segment}: {source}")]
    Wal {
        segment: u64,
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Data(#[from] DataDirError),
    /// The collector to which an agent forwards did not accept the segment; contains the reason.
    #[error("{0}")]
    Upstream(String),
    /// A thread, or the runtime of its timers, could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
