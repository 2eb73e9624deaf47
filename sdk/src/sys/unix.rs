//! POSIX functions for processes, forks and signals, on every Unix.

#![allow(unsafe_code)]

use super::{Handler, Sigterm};

/// True, because tonic connects to Unix sockets on every Unix.
pub(crate) const HAS_UNIX_SOCKETS: bool = true;

/// Reads a clock that always exists, in ns.
#[inline]
pub(super) fn read_clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the result, and the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Both types are narrower on some systems.
    #[allow(clippy::unnecessary_cast)]
    let (seconds, rest_ns) = (time.tv_sec as i64, time.tv_nsec as i64);
    seconds * 1_000_000_000 + rest_ns
}

/// Returns the CPU time of all threads of this process in ns.
pub(crate) fn process_cpu_ns() -> Option<i64> {
    Some(read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Returns the name of the machine or the container; `None` if it is empty or unknown.
pub(crate) fn host_name() -> Option<String> {
    // POSIX allows 255 bytes, and does not require a terminating zero for a name that fills the
    // buffer.
    let mut name = [0_u8; 256];
    // SAFETY: the buffer has that length plus a last byte, which stays zero.
    let answer = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let name = std::ffi::CStr::from_bytes_until_nul(&name)
        .ok()?
        .to_string_lossy();
    Some(name.trim().to_owned()).filter(|name| answer == 0 && !name.is_empty())
}

/// Writes bytes to standard error without a lock, ignoring failures.
pub(crate) fn write_error(bytes: &[u8]) {
    use std::io::Write as _;
    use std::os::fd::FromRawFd as _;
    // SAFETY: the file is never closed, since it is not dropped. If the process has closed its
    // standard error, the call fails, or it writes to the file that has the number now, as
    // `std::io::stderr` does.
    let file = unsafe { std::fs::File::from_raw_fd(libc::STDERR_FILENO) };
    let _ = std::mem::ManuallyDrop::new(file).write_all(bytes);
}

/// Registers functions that the C library calls around every call of `fork`. They must not unwind.
pub(crate) fn at_fork(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) {
    // SAFETY: the three functions have the required signature, live as long as the program, and do
    // not unwind. If there is no memory for the registration it fails, and a fork is then as unsafe
    // as without the SDK's handlers.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Installs a handler for SIGTERM unless SIGTERM is already handled or ignored. The handler may
/// only access atomics and call [`default_and_raise_sigterm`].
pub(crate) fn take_sigterm(handler: Handler) -> Sigterm {
    // SAFETY: zeroed bits are a valid `sigaction` (no flags, empty mask), the pointers are to
    // locals of that type, and the handler only accesses atomics and makes system calls that are
    // safe in a handler.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = address(handler);
        // Interrupted system calls of the service restart.
        ours.sa_flags = libc::SA_RESTART;
        let mut before: libc::sigaction = std::mem::zeroed();
        // Asks first, because a signal that reached this handler instead of theirs would be lost.
        libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut before);
        if before.sa_sigaction == libc::SIG_DFL {
            libc::sigaction(libc::SIGTERM, &raw const ours, &raw mut before);
            if before.sa_sigaction == libc::SIG_DFL {
                return Sigterm::Ours;
            }
            // Another thread installed it meanwhile.
            libc::sigaction(libc::SIGTERM, &raw const before, std::ptr::null_mut());
        }
    }
    Sigterm::Theirs
}

/// Restores the default action; keeps a handler that the service installed over this one.
pub(crate) fn release_sigterm(handler: Handler) {
    // SAFETY: as in `take_sigterm`.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut current);
        if current.sa_sigaction == address(handler) {
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
        }
    }
}

/// Unblocks SIGTERM in the calling thread and raises it, which ends the process if the default
/// action is in force.
pub(crate) fn unblock_and_raise_sigterm() {
    // SAFETY: `sigemptyset` initializes the set; unblocking and raising a signal have no memory
    // effects.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(libc::SIGTERM);
    }
}

/// Restores the default action and raises SIGTERM inside a handler: the process ends when the
/// handler returns.
pub(crate) fn default_and_raise_sigterm() {
    // SAFETY: both calls are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::raise(libc::SIGTERM);
    }
}

fn address(handler: Handler) -> libc::sighandler_t {
    handler as *const () as libc::sighandler_t
}
