//! What can go wrong on the way into the store.

use crate::intake::DataDirError;
use crate::ledger::CheckpointError;
use crate::store::StoreError;
use crate::wal::WalError;

/// Why a batch is not stored now. The sender keeps it and tries again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IntakeError {
    /// The log cannot be written.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The store does not keep up.
    #[error(
        "{bytes} bytes of log wait to be put into the store; it is too slow, or failing: see the collector's log"
    )]
    Backlog {
        /// Bytes waiting.
        bytes: u64,
    },
    /// The collector is being stopped.
    #[error("the collector is stopping")]
    Stopping,
}

/// Why a segment is not in the store yet.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The segment cannot be read or deleted.
    #[error("WAL segment {segment}: {source}")]
    Wal {
        /// Its number.
        segment: u64,
        /// The cause.
        source: std::io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The data folder.
    #[error(transparent)]
    Data(#[from] DataDirError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
