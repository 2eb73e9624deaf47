//! Runs each simulation in a process of its own. It is forked from a process that has simulated
//! nothing, so that each run of a seed begins with equal statics.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};

/// CPU time after which a run is ended, in seconds; a run takes less than one.
const SECONDS_MAX: u64 = 60;

/// A run in progress in another process.
pub(crate) struct Running {
    pid: libc::pid_t,
    answer: File,
}

/// Forks a process that calls `run` and sends back the returned text.
#[allow(unsafe_code)]
pub(crate) fn begin(run: impl FnOnce() -> String + Send + 'static) -> Running {
    let mut ends = [0; 2];
    // SAFETY: `pipe` writes two numbers to the place.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0, "a pipe");
    // SAFETY: both ends are new, and no other code owns them.
    let (answer, mut to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: no other thread holds a lock meanwhile that the child takes: one test forks at a
    // time, and the child prints nothing.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a process");
    if pid > 0 {
        return Running { pid, answer };
    }
    drop(answer);
    let limit = libc::rlimit {
        rlim_cur: SECONDS_MAX,
        rlim_max: SECONDS_MAX,
    };
    // SAFETY: `setrlimit` only reads the limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
    // The log has the SDK's messages, so standard error is dropped.
    if let Ok(nowhere) = File::options().write(true).open("/dev/null") {
        // SAFETY: both are open files of this process.
        unsafe { libc::dup2(nowhere.as_raw_fd(), libc::STDERR_FILENO) };
    }
    // A new thread has no hash keys yet, so it draws them from the simulated random numbers.
    let text = std::thread::spawn(run).join();
    let text = text.unwrap_or_else(|_| "FAILED\nthe run panicked\n".to_owned());
    let _ = to.write_all(text.as_bytes());
    drop(to);
    // SAFETY: ends the process, without the exit handlers of the tests' process.
    unsafe { libc::_exit(0) }
}

impl Running {
    /// Waits for the text of the run. Returns a text that begins with `FAILED` if the process ended
    /// without sending one.
    #[allow(unsafe_code)]
    pub(crate) fn answer(mut self) -> String {
        let mut text = String::new();
        let read = self.answer.read_to_string(&mut text);
        let mut status = 0;
        // SAFETY: the child is ours, and waited for once.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        match read {
            Ok(_) if !text.is_empty() => text,
            _ => format!(
                "FAILED\nthe run ended with status {status}, after {SECONDS_MAX} s of CPU time or by itself\n"
            ),
        }
    }
}
