//! The format of markers, and where a recorder says that it listens.

use std::path::PathBuf;

/// The upper 48 bits of a marker's first argument: `STROBE` in ASCII. The lower 16 bits are its [`Kind`].
pub const MARK: u64 = 0x5354_524f_4245_0000;

/// `STROBOSCOPE_KERNEL_RECORDER`: the file by whose lock a kernel recorder says that it listens.
pub const ENV_KERNEL_RECORDER: &str = "STROBOSCOPE_KERNEL_RECORDER";

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[non_exhaustive]
pub enum Kind {
    /// The request (or span) starts on this thread.
    Start = 1,
    /// It ends on this thread.
    End = 2,
    /// A task that works for it moves onto this thread.
    On = 3,
    /// The task moves off this thread.
    Off = 4,
    /// It begins to wait for a lock.
    LockWait = 5,
    /// It has the lock it waited for.
    LockAcquired = 6,
    /// It gives up a lock that somebody waits for.
    LockReleased = 7,
}

/// The file by whose lock a recorder says that it listens: `STROBOSCOPE_KERNEL_RECORDER`, or else
/// `/run/stroboscope/kernel-recorder`.
#[must_use]
pub fn recorder_path() -> PathBuf {
    std::env::var_os(ENV_KERNEL_RECORDER)
        .filter(|path| !path.is_empty())
        .map_or_else(
            || PathBuf::from("/run/stroboscope/kernel-recorder"),
            PathBuf::from,
        )
}
