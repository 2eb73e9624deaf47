//! Reasons for a failure to start a recorder.

use std::io;

/// Reason why the kernel cannot be recorded. Services and the collector also run without a
/// recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Capabilities are missing.
    #[error(
        "recording the kernel needs {missing}; run as root, or give the program these capabilities: setcap {grant} FILE"
    )]
    Privilege {
        /// Names of the missing capabilities.
        missing: String,
        /// Argument for `setcap`.
        grant: String,
    },
    /// The eBPF programs cannot be loaded or set up, or do not work on this machine.
    #[error("the kernel refuses the recorder's eBPF programs: {0}; tracefs may still work")]
    Ebpf(String),
    /// There is no tracefs, or it does not work as required.
    #[error("tracefs: {action}: {source}; mount it: mount -t tracefs none /sys/kernel/tracing")]
    Tracefs {
        /// The attempted action.
        action: String,
        /// The resulting error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// The attempted action.
        action: String,
        /// The resulting error.
        source: io::Error,
    },
    /// The process with this id does not exist.
    #[error("no process {0} is running")]
    NoProcess(u32),
}

impl StartError {
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System {
            action: action.into(),
            source,
        }
    }
}
