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

/// A duration for people: three significant digits and a unit.
pub(super) fn duration(ns: f64) -> String {
    let (scaled, unit) = match ns.abs() {
        ns_abs if ns_abs < 1e3 => return format!("{ns:.0}ns"),
        ns_abs if ns_abs < 1e6 => (ns / 1e3, "us"),
        ns_abs if ns_abs < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let decimals = if scaled.abs() < 10.0 { 2 } else { usize::from(scaled.abs() < 100.0) };
    format!("{scaled:.decimals$}{unit}")
}

/// A share for people.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
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
    fn durations_for_people() {
        let check = |ns: f64, text: &str| assert_eq!(duration(ns), text);
        check(0.0, "0ns");
        check(999.0, "999ns");
        check(1_234.0, "1.23us");
        check(12_345_678.0, "12.3ms");
        check(123_456_789.0, "123ms");
        check(1.5e9, "1.50s");
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(&["n", "name"]);
        table.row(vec!["7".into(), "a".into()]);
        table.row(vec!["1234".into(), "bcd".into()]);
        assert_eq!(table.render(), "   n  name\n   7  a\n1234  bcd");
    }
}
