//! Text and JSON on standard output.

use std::io::{self, Write as _};

use serde_json::Value;

use super::Failure;

/// Prints one JSON document, or text. That nobody reads it any more (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document on one line.
pub(super) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&value.to_string())
}

/// Lines up columns.
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table; all columns but the last are right-aligned numbers, the last is text.
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn render(&self) -> String {
        let heads: Vec<String> = self.heads.iter().map(|&head| head.to_owned()).collect();
        let width = |column: usize| {
            let cells = std::iter::once(&heads).chain(&self.rows).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let last = row.len().saturating_sub(1);
            let cells = row.iter().enumerate().map(|(i, cell)| {
                if i == last { cell.clone() } else { format!("{cell:>width$}", width = widths[i]) }
            });
            cells.collect::<Vec<_>>().join("  ")
        };
        std::iter::once(&heads).chain(&self.rows).map(line).collect::<Vec<_>>().join("\n")
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
        assert_eq!(table.render(), "   n  name\n   7  a\n1234  bcd");
    }
}
