//! Handles SIGTERM for services without a handler of their own: ships pending records, then ends
//! the process by the signal's default action.
//!
//! At the first SIGTERM, the handler only sets a flag. The shipping thread checks the flag about
//! every 20 ms and ships within the shutdown deadline. Then it restores the default action and
//! raises the signal again, so that the parent sees the process die of SIGTERM. A second SIGTERM
//! ends the process at once.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::sys::{self, Sigterm};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);

/// Error for a process that already handles or ignores SIGTERM.
#[derive(Debug)]
pub(crate) struct SigtermTaken;

/// Installs the handler. Returns an error if the process already handles or ignores SIGTERM. Does
/// nothing on systems without SIGTERM.
pub(crate) fn install() -> Result<(), SigtermTaken> {
    // Before the handler is installed, so that a signal that arrives at once is kept.
    SEEN.store(false, Relaxed);
    match sys::take_sigterm(on_sigterm) {
        Sigterm::Theirs => Err(SigtermTaken),
        Sigterm::Absent => Ok(()),
        Sigterm::Ours => {
            INSTALLED.store(true, Relaxed);
            Ok(())
        }
    }
}

/// Reports whether the handler is installed.
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Relaxed)
}

/// Reports whether SIGTERM has arrived.
pub(crate) fn is_seen() -> bool {
    SEEN.load(Relaxed)
}

/// Restores the default action; keeps a handler that the service installed over the SDK's.
pub(crate) fn reset() {
    if INSTALLED.swap(false, Relaxed) {
        sys::release_sigterm(on_sigterm);
    }
    SEEN.store(false, Relaxed);
}

/// Raises SIGTERM again, which ends the process if the default action is in force.
pub(crate) fn end_process() {
    reset();
    sys::unblock_and_raise_sigterm();
}

extern "C" fn on_sigterm(_: c_int) {
    if SEEN.swap(true, Relaxed) {
        sys::default_and_raise_sigterm();
    }
}
