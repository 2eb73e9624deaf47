//! Errors of the intake.

use stroboscope_store::wal::WalError;

/// Reason why a batch or an OTLP request is not stored now. The sender keeps it and retries, unless
/// it is too long.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IntakeError {
    /// The log cannot be written, or the batch is too long for it.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Too many bytes of the log wait to be put into the store.
    #[error(
        "{bytes} bytes of log wait to be put into the store; it is too slow, or failing: see the collector's log"
    )]
    Backlog { bytes: u64 },
    /// Too many bytes of an agent's log wait to be forwarded.
    #[error(
        "{bytes} bytes of log wait to be forwarded, as many as --buffer-bytes allows: the next collector is too \
         slow, or cannot be reached; see the agent's log"
    )]
    Unforwarded { bytes: u64 },
    /// Too many received bytes, of all peers or of this one, wait to be written to the log.
    #[error("{bytes} bytes wait to be written to the log: the disk is too slow")]
    Busy { bytes: usize },
    /// The collector is stopping.
    #[error("the collector is stopping")]
    Stopping,
}
