//! Lines on standard error.

use std::fmt;
use std::io::{self, Write as _};

use stroboscope_present::show::scrubbed_lines;

/// Says something on standard error, whatever others wrote into it.
#[macro_export]
macro_rules! say {
    ($($said:tt)*) => { $crate::stderr::say_line(format_args!($($said)*)) };
}
pub use say;

/// Unlike `eprintln!`, does not panic when nobody reads any more: a terminal that is gone, `2>&1 | head`.
pub fn say_line(said: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", scrubbed_lines(&said.to_string()));
}
