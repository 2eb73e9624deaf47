//! Systems other than Unix, without forks and SIGTERM.

use super::{Handler, Sigterm};

/// False, because tonic connects to Unix sockets only on Unix.
pub(crate) const HAS_UNIX_SOCKETS: bool = false;

/// Returns `None`, because the SDK does not read the CPU time on these systems.
pub(crate) fn process_cpu_ns() -> Option<i64> {
    None
}

/// Returns the machine's name, which Windows puts into a process's environment; `None` if it is
/// missing, empty or not Unicode.
pub(crate) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME")
        .ok()
        .filter(|name| !name.is_empty())
}

/// Writes bytes to standard error, ignoring failures.
pub(crate) fn write_error(bytes: &[u8]) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(bytes);
}

/// Does nothing, because processes do not fork on these systems.
pub(crate) fn at_fork(_: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}

/// Returns [`Sigterm::Absent`], because these systems have no SIGTERM.
pub(crate) fn take_sigterm(_: Handler) -> Sigterm {
    Sigterm::Absent
}

/// Does nothing, because SIGTERM was not taken.
pub(crate) fn release_sigterm(_: Handler) {}

/// Does nothing; never called, because SIGTERM never arrives.
pub(crate) fn unblock_and_raise_sigterm() {}

/// Does nothing; never called, because SIGTERM never arrives.
pub(crate) fn default_and_raise_sigterm() {}
