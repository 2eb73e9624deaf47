//! Prints lines on standard error.

use std::fmt;
use std::io::{self, Write as _};

use stroboscope_render::show::{scrubbed_lines, sentences};

/// Prints a formatted line on standard error. Replaces characters that a terminal would obey,
/// except line feeds, by U+FFFD.
#[macro_export]
macro_rules! say {
    ($($said:tt)*) => { $crate::stderr::say_line(format_args!($($said)*)) };
}
pub use say;

/// Writes lines to standard error, wrapped to the width of a terminal. Unlike `eprintln!`, does not
/// panic if the reader is gone: a closed terminal, `2>&1 | head`.
pub fn say_line(said: fmt::Arguments<'_>) {
    let mut text = scrubbed_lines(&said.to_string());
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stderr())
        && size.ws_col > 0
    {
        text = sentences(&text, usize::from(size.ws_col));
    }
    let _ = writeln!(io::stderr(), "{text}");
}
