//! Lines on standard error.

use std::fmt;
use std::io::{self, Write as _};

use stroboscope_present::show::{scrubbed_lines, sentences};

/// Says something on standard error, whatever others wrote into it.
#[macro_export]
macro_rules! say {
    ($($said:tt)*) => { $crate::stderr::say_line(format_args!($($said)*)) };
}
pub use say;

/// Writes lines to standard error, as wide as the terminal that it may be. Unlike `eprintln!`, does not panic when nobody reads
/// any more: a terminal that is gone, `2>&1 | head`.
pub fn say_line(said: fmt::Arguments<'_>) {
    let mut text = scrubbed_lines(&said.to_string());
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stderr())
        && size.ws_col > 0
    {
        text = sentences(&text, usize::from(size.ws_col));
    }
    let _ = writeln!(io::stderr(), "{text}");
}
