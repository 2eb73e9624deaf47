//! What the SDK asks of the operating system: the one place that knows which system this is.
//!
//! | asked for | Linux | another Unix | elsewhere |
//! |---|---|---|---|
//! | wall and monotonic clock | `clock_gettime` | the standard library | the standard library |
//! | what the kernel knows of its clock | `adjtimex` | unknown | unknown |
//! | punctual timers | timer slack | as they are | as they are |
//! | markers, and who listens for them | `getpid`, `F_OFD_GETLK` | nothing happens | nothing happens |
//! | resident memory | `/proc/self/statm` | unknown | unknown |
//! | CPU time, the host's name | POSIX | POSIX | unknown; `COMPUTERNAME` |
//! | handlers around `fork` | `pthread_atfork` | `pthread_atfork` | there is no `fork` |
//! | SIGTERM | `sigaction` | `sigaction` | there is no SIGTERM |
//!
//! `linux` and `other` are two halves of the same functions, and so are `unix` and `no_unix`. Which of two it is, the
//! compiler knows: nothing is chosen at run time. All of them compile on Linux, so that what one lacks is seen without
//! another machine: `cargo rustc -p stroboscope --lib -- --cfg stroboscope_portable` takes `other`, as another
//! Unix does, and `--cfg stroboscope_no_unix` beside it takes `no_unix`.

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
    release_sigterm, take_sigterm, unblock_and_raise_sigterm,
};

/// Writes a line for people to standard error, if that can be written: `eprintln!` panics where nobody reads it any more.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "stroboscope: {line}");
}

/// A handler of signals.
pub(crate) type Handler = extern "C" fn(std::ffi::c_int);

/// Whose SIGTERM is, after it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each system makes some of them")]
pub(crate) enum Sigterm {
    /// Our handler is called.
    Ours,
    /// Somebody else handles, or ignores it, as before.
    Theirs,
    /// This system has none.
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

    /// Asks for the state of the lock and takes none, so nobody gets in anybody's way.
    #[test]
    fn a_file_that_nobody_locks_is_not_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_locked(file.path()));
        assert!(!is_locked(std::path::Path::new("/nowhere/at/all")));
    }
}
