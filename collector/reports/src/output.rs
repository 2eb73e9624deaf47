//! Text and JSON on standard output.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Failure;
use stroboscope_present::show::{escaped_json, scrubbed_lines, shortened};

pub use crate::stderr::say;

/// Prints a text, without what a terminal would obey.
pub fn print(text: &str) -> Result<(), Failure> {
    print_as_is(&scrubbed_lines(text))
}

/// Returns true if an error of standard output means that it has no reader any more: `| head`, or a closed terminal.
fn is_unread(error: &io::Error) -> bool {
    let is_of_terminal = || {
        let about = rustix::fs::fstat(io::stdout());
        about.is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice)
    };
    error.kind() == io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(Errno::IO.raw_os_error()) && is_of_terminal()
}

/// Prints what is known to be harmless.
pub fn print_as_is(text: &str) -> Result<(), Failure> {
    print_parts(&[text.as_bytes(), b"\n"])
}

/// Prints bytes as they are. That nobody reads them any more is no error.
pub fn print_parts(parts: &[&[u8]]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = parts.iter().try_for_each(|part| out.write_all(part));
    let written = written.and_then(|()| out.flush());
    match written {
        Err(error) if !is_unread(&error) => {
            Err(Failure::new(format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document on one line.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print_as_is(&json(value)?)
}

/// One JSON document on one line, without what a terminal would obey.
pub fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value).map_err(Failure::of)?;
    Ok(escaped_json(&json))
}

/// The last column keeps so many characters, however narrow the terminal is.
const LAST_COLUMN_MIN: usize = 24;

/// How many columns there are to print into: `COLUMNS`, or those of the terminal. None, if it is no terminal: what reads
/// it there wants all.
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

/// Whether standard output is a terminal that nobody asked to be without colour (no-color.org).
pub fn has_colour() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_unwanted
        && io::stdout().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Lines up columns.
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table; all columns but the last are right-aligned numbers, the last is text.
    pub fn new(heads: &[&str]) -> Self {
        let mut table = Self {
            heads: Vec::new(),
            rows: Vec::new(),
        };
        table.row(heads.iter().map(|&head| head.to_owned()).collect());
        table.heads = table.rows.pop().unwrap_or_default();
        table
    }

    /// Adds a row. Control characters, which a terminal would obey, are replaced.
    pub fn row(&mut self, cells: Vec<String>) {
        let visible = |cell: String| cell.replace(char::is_control, "\u{fffd}");
        self.rows.push(cells.into_iter().map(visible).collect());
    }

    /// As wide as the terminal: the last column is shortened where it does not fit.
    pub fn render(&self) -> String {
        self.render_within(width())
    }

    fn render_within(&self, width_max: Option<usize>) -> String {
        let heads = &self.heads;
        let width = |column: usize| {
            let cells = std::iter::once(heads)
                .chain(&self.rows)
                .filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        // Two spaces follow each column but the last.
        let taken = widths
            .iter()
            .rev()
            .skip(1)
            .map(|width| width + 2)
            .sum::<usize>();
        let last_max = width_max.map(|width| width.saturating_sub(taken).max(LAST_COLUMN_MIN));
        let line = |row: &Vec<String>| {
            let last = row.len().saturating_sub(1);
            let cells = row.iter().enumerate().map(|(i, cell)| {
                if i == last {
                    last_max.map_or_else(|| cell.clone(), |max| shortened(cell, max))
                } else {
                    format!("{cell:>width$}", width = widths[i])
                }
            });
            cells.collect::<Vec<_>>().join("  ")
        };
        std::iter::once(heads)
            .chain(&self.rows)
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(&["n", "name"]);
        table.row(vec!["7".into(), "a".into()]);
        table.row(vec!["1234".into(), "bcd".into()]);
        assert_eq!(table.render_within(None), "   n  name\n   7  a\n1234  bcd");
    }

    #[test]
    fn long_names_are_shortened_in_the_middle() {
        let mut table = Table::new(&["n", "name"]);
        let name = "client:page > edge:load > web:load > web:rank [start … end]";
        table.row(vec!["1".into(), name.into()]);
        assert_eq!(
            table.render_within(Some(33)),
            "n  name\n1  client:pa…b:rank [start … end]"
        );
        assert!(
            table
                .render_within(Some(3))
                .lines()
                .all(|line| line.chars().count() <= 3 + LAST_COLUMN_MIN)
        );
        assert!(
            table
                .render_within(Some(3 + name.chars().count()))
                .ends_with(name)
        );
    }

    #[test]
    fn terminals_are_not_commanded() {
        let mut table = Table::new(&["name"]);
        table.row(vec!["a\u{1b}[2Jb\n".into()]);
        assert_eq!(table.render_within(None), "name\na\u{fffd}[2Jb\u{fffd}");
    }
}
