//! Interface to the operating system. Only this module contains code for particular operating
//! systems.
//!
//! | service | Linux | other Unix | other systems |
//! |---|---|---|---|
//! | wall and monotonic clock | `clock_gettime` | the standard library | the standard library |
//! | state of the kernel's clock | `adjtimex` | unknown | unknown |
//! | punctual timers | timer slack | unchanged | unchanged |
//! | markers, and detection of a recorder | `getpid`, `F_OFD_GETLK` | no effect | no effect |
//! | resident memory | `/proc/self/statm` | unknown | unknown |
//! | CPU time, host name | POSIX | POSIX | unknown; `COMPUTERNAME` |
//! | standard error without a lock | POSIX | POSIX | the standard library, with its lock |
//! | handlers around `fork` | `pthread_atfork` | `pthread_atfork` | no `fork` |
//! | SIGTERM | `sigaction` | `sigaction` | no SIGTERM |
//!
//! `linux` and `other` implement the same functions, and so do `unix` and `no_unix`. The choice is
//! made at compile time. All of them compile on Linux, so that a missing function is found without
//! another machine. `cargo rustc -p stroboscope --lib -- --cfg stroboscope_portable` compiles
//! `other`, as on another Unix. `--cfg stroboscope_no_unix` in addition compiles `no_unix`.

#[cfg(all(target_os = "linux", not(stroboscope_portable)))]
mod linux;
#[cfg(not(all(unix, not(stroboscope_no_unix))))]
mod no_unix;
#[cfg(not(all(target_os = "linux", not(stroboscope_portable))))]
mod other;
#[cfg(all(unix, not(stroboscope_no_unix)))]
mod unix;

#[cfg(all(target_os = "linux", not(stroboscope_portable)))]
use linux as kernel;
#[cfg(not(all(unix, not(stroboscope_no_unix))))]
use no_unix as process;
#[cfg(not(all(target_os = "linux", not(stroboscope_portable))))]
use other as kernel;
#[cfg(all(unix, not(stroboscope_no_unix)))]
use unix as process;

pub(crate) use kernel::{
    HAS_MARKERS, ask_for_exact_timers, is_locked, kernel_clock, mark, monotonic_ns, resident_bytes,
    thread_id, wall_ns,
};
pub(crate) use process::{
    HAS_UNIX_SOCKETS, at_fork, default_and_raise_sigterm, host_name, process_cpu_ns,
    release_sigterm, take_sigterm, unblock_and_raise_sigterm, write_error,
};

/// Writes a message to standard error, ignoring failures: `eprintln!` panics if the other end is
/// closed. On Unix, it does not take the standard library's lock of standard error, because a child
/// that is forked while another thread holds that lock would wait for it forever.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    write_error(format!("stroboscope: {line}\n").as_bytes());
}

/// Function that handles a signal, given the signal's number.
pub(crate) type Handler = extern "C" fn(std::ffi::c_int);

/// Owner of SIGTERM after an attempt to take it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each system makes some of them")]
pub(crate) enum Sigterm {
    /// The SDK's handler is installed.
    Ours,
    /// The process already handles or ignores SIGTERM; this is unchanged.
    Theirs,
    /// This system has no SIGTERM.
    Absent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        // 2020; an epoch of another kind would be far off.
        assert!(wall_ns() > 1_577_836_800_000_000_000, "{}", wall_ns());
        let before_ns = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let slept_ns = monotonic_ns() - before_ns;
        assert!(
            (2_000_000..60_000_000_000).contains(&slept_ns),
            "{slept_ns}"
        );
    }

    #[test]
    #[cfg(all(unix, not(stroboscope_no_unix)))]
    fn messages_do_not_wait_for_the_lock_of_standard_error() {
        let held = std::io::stderr().lock();
        let (sender, written) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            say(format_args!("a message of a test"));
            sender.send(()).unwrap();
        });
        let in_time = written.recv_timeout(std::time::Duration::from_secs(20));
        drop(held);
        thread.join().unwrap();
        assert_eq!(in_time, Ok(()));
    }

    #[test]
    fn what_is_not_known_is_not_invented() {
        if let Some(bytes) = resident_bytes() {
            assert!(bytes > 1 << 20, "{bytes}");
        }
        if let Some(name) = host_name() {
            assert!(!name.is_empty() && !name.contains('\0'), "{name:?}");
        }
        match kernel_clock() {
            Some(said) => assert!(said.max_error_ns >= said.estimated_error_ns, "{said:?}"),
            None => eprintln!("SKIPPED: this system's kernel says nothing of its clock (adjtimex)"),
        }
    }

    /// Reads the state of the lock without taking it, so that tests do not disturb each other.
    #[test]
    fn a_file_that_nobody_locks_is_not_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_locked(file.path()));
        assert!(!is_locked(std::path::Path::new("/nowhere/at/all")));
    }
}
