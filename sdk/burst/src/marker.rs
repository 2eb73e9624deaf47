//! Format of markers, and the file through which a kernel recorder announces itself.

use std::path::PathBuf;

/// The upper 48 bits of a marker's first argument: `STROBE` in ASCII. The lower 16 bits are its
/// [`Kind`].
pub const MARK: u64 = 0x5354_524f_4245_0000;

/// Environment variable with the path of the file that a listening kernel recorder locks.
pub const ENV_KERNEL_RECORDER: &str = "STROBOSCOPE_KERNEL_RECORDER";

/// Meaning of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[non_exhaustive]
pub enum Kind {
    /// The request or span starts on this thread.
    Start = 1,
    /// The request or span ends on this thread.
    End = 2,
    /// The thread, which worked for no request, begins to work for the request or span.
    On = 3,
    /// The thread stops working for the request or span, and may continue with another one.
    Off = 4,
    /// The request begins to wait for a lock.
    LockWait = 5,
    /// The request has acquired the lock it waited for.
    LockAcquired = 6,
    /// The request releases a lock for which a thread or task waits.
    LockReleased = 7,
}

/// Returns the path of the file that a listening kernel recorder locks:
/// `STROBOSCOPE_KERNEL_RECORDER`, or `/run/stroboscope/kernel-recorder` by default.
#[must_use]
pub fn recorder_path() -> PathBuf {
    std::env::var_os(ENV_KERNEL_RECORDER)
        .filter(|path| !path.is_empty())
        .map_or_else(
            || PathBuf::from("/run/stroboscope/kernel-recorder"),
            PathBuf::from,
        )
}
