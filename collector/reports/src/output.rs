//! Prints text and JSON on standard output.

use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Failure;
use stroboscope_render::show::{TextView, escaped_json, scrubbed_lines};

pub use crate::stderr::say;

/// Prints a text and a line feed. Replaces characters of the text that a terminal would obey,
/// except line feeds.
pub fn print(text: &str) -> Result<(), Failure> {
    print_as_is(&scrubbed_lines(text))
}

/// Reports whether an error of standard output means that its reader is gone: `| head`, or a closed
/// terminal.
fn is_unread(error: &io::Error) -> bool {
    let is_of_terminal = || {
        let about = rustix::fs::fstat(io::stdout());
        about.is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice)
    };
    error.kind() == io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(Errno::IO.raw_os_error()) && is_of_terminal()
}

/// Prints a text and a line feed. The text must not contain harmful control characters.
pub fn print_as_is(text: &str) -> Result<(), Failure> {
    print_parts(&[text.as_bytes(), b"\n"])
}

/// Prints raw bytes. Returns no error if the reader is gone.
pub fn print_parts(parts: &[&[u8]]) -> Result<(), Failure> {
    print_some(parts).map(|_| ())
}

/// Prints raw bytes. Returns `Break` if the reader is gone.
pub fn print_some(parts: &[&[u8]]) -> Result<ControlFlow<()>, Failure> {
    let mut out = io::stdout().lock();
    let written = parts.iter().try_for_each(|part| out.write_all(part));
    let written = written.and_then(|()| out.flush());
    match written {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if is_unread(&error) => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::new(format!("cannot write the result: {error}"))),
    }
}

/// Prints one JSON document on one line.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print_as_is(&json(value)?)
}

/// Formats one JSON document on one line. Escapes characters that a terminal would obey.
pub fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value).map_err(Failure::of)?;
    Ok(escaped_json(&json))
}

/// Returns the width of the output in columns: the value of `COLUMNS` if it is valid, else the
/// terminal's width. Returns `None` for 0 or without either, as in a pipe: readers want full lines.
pub fn width() -> Option<usize> {
    let said = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let terminal = || {
        rustix::termios::tcgetwinsize(io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
    };
    said.or_else(terminal).filter(|columns| *columns > 0)
}

/// Reports whether standard output is a terminal that supports colour, and the user did not disable
/// it (no-color.org).
pub fn has_colour() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_unwanted
        && io::stdout().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns the view of text on standard output, with its [`width`] and colour.
pub fn terminal_view() -> TextView {
    TextView {
        width: width(),
        full_names: false,
        colour: has_colour(),
    }
}
