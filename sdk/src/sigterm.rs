//! SIGTERM for services without a handler of their own: ship what is there, then end as the signal's default does.
//!
//! The handler only notes the signal; the shipping thread looks every few milliseconds, ships within the shutdown
//! deadline, puts the default action back and raises the signal again, so that whoever waits for the process sees
//! it die of SIGTERM. A second SIGTERM ends it at once.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::sys::{self, Sigterm};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);

/// Somebody else handles, or ignores, SIGTERM.
#[derive(Debug)]
pub(crate) struct Taken;

/// Takes over SIGTERM, if nobody else has, and if there is one.
pub(crate) fn install() -> Result<(), Taken> {
    match sys::take_sigterm(on_sigterm) {
        Sigterm::Theirs => Err(Taken),
        Sigterm::Absent => Ok(()),
        Sigterm::Ours => {
            SEEN.store(false, Relaxed);
            INSTALLED.store(true, Relaxed);
            Ok(())
        }
    }
}

/// Is it to be looked for?
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Relaxed)
}

/// Has SIGTERM come?
pub(crate) fn is_seen() -> bool {
    SEEN.load(Relaxed)
}

/// The default action is in force again; a handler that the service put over ours stays.
pub(crate) fn reset() {
    if INSTALLED.swap(false, Relaxed) {
        sys::release_sigterm(on_sigterm);
    }
    SEEN.store(false, Relaxed);
}

/// Ends the process by the signal's default action.
pub(crate) fn end_process() {
    reset();
    sys::unblock_and_raise_sigterm();
}

extern "C" fn on_sigterm(_: c_int) {
    if SEEN.swap(true, Relaxed) {
        sys::default_and_raise_sigterm();
    }
}
