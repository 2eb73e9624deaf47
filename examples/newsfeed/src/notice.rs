//! Messages to a person, on standard error.

use std::fmt;
use std::io::Write;

/// Prints a line. Unlike `eprintln!` it does not panic when nobody reads any more: a role whose supervisor was killed
/// must still get to its end.
pub(crate) fn notice(message: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}
