//! Systems that are no Unix: no forks and no SIGTERM.

use super::{Handler, Sigterm};

/// tonic connects to paths on Unix only.
pub(crate) const HAS_UNIX_SOCKETS: bool = false;

/// Not known without a call of the system's own.
pub(crate) fn process_cpu_ns() -> Option<i64> {
    None
}

/// The machine's name, as Windows puts it into every process's environment.
pub(crate) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME")
        .ok()
        .filter(|name| !name.is_empty())
}

/// Processes do not fork here.
pub(crate) fn at_fork(_: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}

/// There is none to be taken.
pub(crate) fn take_sigterm(_: Handler) -> Sigterm {
    Sigterm::Absent
}

/// Was not taken.
pub(crate) fn release_sigterm(_: Handler) {}

/// Nobody asks for it, as SIGTERM never comes.
pub(crate) fn unblock_and_raise_sigterm() {}

/// As above.
pub(crate) fn default_and_raise_sigterm() {}
