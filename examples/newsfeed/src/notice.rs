//! Messages to a person, on standard error.

use std::fmt;
use std::io::Write;

/// Prints a line. Unlike `eprintln!` it does not panic if the reader is gone: a role whose
/// supervisor was killed must still finish.
pub(crate) fn notice(message: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}
