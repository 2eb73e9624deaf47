//! SIGTERM for services without a handler of their own: ship what is there, then end as the signal's default does.
//!
//! The handler only notes the signal; the shipping thread looks every few milliseconds, ships within the shutdown
//! deadline, puts the default action back and raises the signal again, so that whoever waits for the process sees
//! it die of SIGTERM. A second SIGTERM ends it at once.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);

/// Somebody else handles, or ignores, SIGTERM.
#[derive(Debug)]
pub(crate) struct Taken;

/// Takes over SIGTERM, if nobody else has.
pub(crate) fn install() -> Result<(), Taken> {
    // SAFETY: zeroed bits are a valid `sigaction` (no flags, empty mask), the pointers are to locals of that type, and
    // the handler only touches atomics and makes system calls that are safe in a handler.
    let taken = unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_sigterm as *const () as libc::sighandler_t;
        // The service's own system calls go on as if nothing had happened.
        ours.sa_flags = libc::SA_RESTART;
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGTERM, &raw const ours, &raw mut before);
        let taken = before.sa_sigaction != libc::SIG_DFL;
        if taken {
            libc::sigaction(libc::SIGTERM, &raw const before, std::ptr::null_mut());
        }
        taken
    };
    if taken {
        return Err(Taken);
    }
    SEEN.store(false, Relaxed);
    INSTALLED.store(true, Relaxed);
    Ok(())
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
        // SAFETY: as in `install`.
        unsafe {
            let mut current: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut current);
            if current.sa_sigaction == on_sigterm as *const () as libc::sighandler_t {
                libc::signal(libc::SIGTERM, libc::SIG_DFL);
            }
        }
    }
    SEEN.store(false, Relaxed);
}

/// Ends the process by the signal's default action.
pub(crate) fn end_process() {
    reset();
    // SAFETY: the set is initialised by `sigemptyset`; unblocking and raising a signal have no memory effects.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(libc::SIGTERM);
    }
}

extern "C" fn on_sigterm(_: libc::c_int) {
    if SEEN.swap(true, Relaxed) {
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            libc::raise(libc::SIGTERM);
        }
    }
}
