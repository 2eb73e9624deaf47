//! Why a recorder did not start.

use std::io;

/// Why the kernel cannot be recorded. Services and collector run on without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Rights are missing.
    #[error(
        "recording the kernel needs {missing}; run as root, or give the program these capabilities: setcap {grant} FILE"
    )]
    Privilege {
        /// The capabilities that are missing.
        missing: String,
        /// What to hand to `setcap`.
        grant: String,
    },
    /// The kernel does not take the programs.
    #[error("the kernel refuses the recorder's eBPF programs: {0}; tracefs may still work")]
    Ebpf(String),
    /// There is no tracefs, or it does not do what is asked.
    #[error("tracefs: {action}: {source}; mount it: mount -t tracefs none /sys/kernel/tracing")]
    Tracefs {
        /// What was tried.
        action: String,
        /// What came of it.
        source: io::Error,
    },
    /// Something of the system failed.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What came of it.
        source: io::Error,
    },
    /// None of the processes named is there.
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
