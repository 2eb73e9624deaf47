//! Linux: clocks, timers, resident memory, and the markers for a kernel recorder.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd as _;
use std::path::Path;

use stroboscope_proto::v1;

/// True if a recorder can see markers.
pub(crate) const HAS_MARKERS: bool = true;

/// Returns nanoseconds since the Unix epoch.
#[inline]
pub(crate) fn wall_ns() -> i64 {
    super::unix::read_clock_ns(libc::CLOCK_REALTIME)
}

/// Returns nanoseconds since the system started, without time in suspend.
#[inline]
pub(crate) fn monotonic_ns() -> i64 {
    super::unix::read_clock_ns(libc::CLOCK_MONOTONIC)
}

/// Reads the state of the kernel's clock without changing it. Returns `None` if the call fails, for
/// example because a sandbox forbids it.
pub(crate) fn kernel_clock() -> Option<v1::KernelClock> {
    // SAFETY: a structure of integers, for which all zeros are a valid value.
    let mut said: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: no modes are set, so the call only writes the clock's state into the structure, which
    // is a local.
    let state = unsafe { libc::adjtimex(&raw mut said) };
    if state < 0 {
        return None;
    }
    let ns = |us: libc::c_long| u64::try_from(us).unwrap_or(0).saturating_mul(1_000);
    Some(v1::KernelClock {
        synchronised: state != libc::TIME_ERROR && said.status & libc::STA_UNSYNC == 0,
        max_error_ns: ns(said.maxerror),
        estimated_error_ns: ns(said.esterror),
    })
}

/// Makes the calling thread's timers punctual to 1 µs. By default, Linux may delay a sleeping
/// thread by 50 µs to wake several at once (timer slack).
pub(crate) fn ask_for_exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds and concerns the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

/// Returns the resident memory in bytes: the second number of /proc/self/statm, which counts pages.
/// Returns `None` if the file cannot be read or parsed.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: reads a constant; accesses no memory of the process.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).unwrap_or(4_096))
}

/// Reports whether a process holds an `fcntl` lock on this file; false if that is unknown. It reads
/// the lock's state without taking it, so that services do not disturb each other.
pub(crate) fn is_locked(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    // SAFETY: all fields of `flock` are integers; zero is valid for each.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and `lock` is valid as input and output.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    answer == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Returns the calling thread's id in its process's own namespace; never 0.
#[inline]
pub(crate) fn thread_id() -> u32 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Writes a marker: a `getpid` call with arguments, which the kernel ignores.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn mark(arguments: [u64; 6]) {
    // SAFETY: getpid reads and writes no memory; the kernel overwrites rax, rcx and r11, which are
    // declared.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_getpid => _,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nomem, nostack),
        );
    }
}

/// Writes a marker: a `getpid` call with arguments, which the kernel ignores.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn mark(arguments: [u64; 6]) {
    // SAFETY: getpid reads and writes no memory; the kernel overwrites x0 only, which is declared.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_getpid,
            inlateout("x0") arguments[0] => _,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nomem, nostack),
        );
    }
}

/// Writes a marker: a `getpid` call with arguments, which the kernel ignores.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn mark([a, b, c, d, e, f]: [u64; 6]) {
    // SAFETY: getpid has no arguments; the kernel ignores the contents of their registers.
    unsafe { libc::syscall(libc::SYS_getpid, a, b, c, d, e, f) };
}
