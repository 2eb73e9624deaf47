//! Lays out columns of a table side by side in a terminal.

use std::collections::HashSet;

use super::table::Kind;
use super::wrap;

const GAP: &str = "  ";
/// Width, in columns of the terminal, below which names are not narrowed.
const NAME_MIN: usize = 20;

pub(super) struct TextColumn {
    pub head: String,
    kind: Kind,
    cells: Vec<String>,
    /// Width in columns of the terminal.
    pub width: usize,
}

impl TextColumn {
    /// Creates a column that is as wide as its content.
    pub(super) fn new(head: String, kind: Kind, cells: Vec<String>) -> Self {
        let mut column = Self {
            head,
            kind,
            cells,
            width: 0,
        };
        column.width = column.cells_width().max(wrap::columns(&column.head));
        column
    }

    pub(super) fn has_values(&self) -> bool {
        self.cells.iter().any(|cell| !cell.is_empty())
    }

    /// Returns the lines of the cell in this row.
    pub(super) fn lines_of(&self, row: usize) -> Vec<String> {
        let cell = &self.cells[row];
        if self.is_name() {
            wrap::cell(cell, self.width)
        } else {
            vec![cell.clone()]
        }
    }

    /// Reports whether the cells may be broken into lines; only texts and segments may.
    fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Segment)
    }

    fn is_left(&self) -> bool {
        self.is_name() || self.kind == Kind::Request
    }

    fn cells_width(&self) -> usize {
        let widths = self.cells.iter().map(|cell| wrap::columns(cell));
        widths.max().unwrap_or(0)
    }

    fn longest_word_of_head(&self) -> usize {
        let words = self.head.split(' ').map(wrap::columns);
        words.max().unwrap_or(0)
    }
}

/// Narrows columns to fit the terminal: breaks heads first, then names, the widest first. If they
/// are still too wide, hides columns from the right, except the first one and those without which
/// different rows would look equal. Returns the hidden heads.
pub(super) fn fit(columns: &mut Vec<TextColumn>, room: Option<usize>) -> Vec<String> {
    let mut hidden = Vec::new();
    let Some(room) = room else { return hidden };
    if taken(columns) <= room {
        return hidden;
    }
    let rows = different_rows(columns, None);
    loop {
        for column in columns.iter_mut() {
            column.width = column.cells_width().max(column.longest_word_of_head());
        }
        narrow_names(columns, room);
        if taken(columns) <= room {
            break;
        }
        let is_spare = |at: &usize| different_rows(columns, Some(*at)) == rows;
        match (1..columns.len()).rev().find(is_spare) {
            Some(last) => hidden.insert(0, columns.remove(last).head),
            None => break,
        }
    }
    widen_heads(columns, room);
    hidden
}

/// Counts the distinct rows, ignoring the column `without` if there is one.
fn different_rows(columns: &[TextColumn], without: Option<usize>) -> usize {
    let count = columns.first().map_or(0, |column| column.cells.len());
    let kept = || {
        let columns = columns.iter().enumerate();
        columns.filter(|(at, _)| Some(*at) != without)
    };
    let row = |row: usize| kept().map(|(_, column)| &*column.cells[row]).collect();
    (0..count).map(row).collect::<HashSet<Vec<&str>>>().len()
}

fn taken(columns: &[TextColumn]) -> usize {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    columns.iter().map(|column| column.width).sum::<usize>() + gaps
}

/// Narrows the widest names until all columns fit, or no name can be narrower.
fn narrow_names(columns: &mut [TextColumn], room: usize) {
    for _ in room..taken(columns) {
        let names = columns
            .iter_mut()
            .filter(|column| column.is_name() && column.width > NAME_MIN);
        if let Some(widest) = names.max_by_key(|column| column.width) {
            widest.width -= 1;
        }
    }
}

/// Distributes the remaining space to the heads with the most lines.
fn widen_heads(columns: &mut [TextColumn], room: usize) {
    for _ in taken(columns)..room {
        let lines = |column: &&mut TextColumn| wrap::head(&column.head, column.width).len();
        let broken = columns.iter_mut().filter(|column| lines(column) > 1);
        if let Some(most) = broken.max_by_key(lines) {
            most.width += 1;
        }
    }
}

/// Returns the texts of the columns side by side, in as many lines as the longest of them needs.
pub(super) fn lines(
    columns: &[TextColumn],
    text: impl Fn(&TextColumn) -> Vec<String>,
) -> Vec<String> {
    let texts: Vec<Vec<String>> = columns.iter().map(text).collect();
    let count = texts.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let parts = columns.iter().zip(&texts).map(|(column, lines)| {
            let text = lines.get(at).map_or("", |line| line);
            if column.is_left() {
                wrap::padded(text, column.width)
            } else {
                let pad = column.width.saturating_sub(wrap::columns(text));
                " ".repeat(pad) + text
            }
        });
        parts.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    (0..count).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(head: &str, kind: Kind, cell: &str) -> TextColumn {
        TextColumn::new(head.to_owned(), kind, vec![cell.to_owned()])
    }

    #[track_caller]
    fn check(width: usize, hidden: &[&str], expected: &[&str]) {
        let operation = "ts-travel-service:TravelController.queryInfo";
        let mut columns = vec![
            column("operation", Kind::Text, operation),
            column("what requests wait for", Kind::Share, "13.1%"),
            column("in", Kind::Request, "3632ff9c4162ed41"),
        ];
        assert_eq!(fit(&mut columns, Some(width)), hidden);
        let mut said = lines(&columns, |column| wrap::head(&column.head, column.width));
        said.extend(lines(&columns, |column| column.lines_of(0)));
        assert_eq!(said, expected);
    }

    #[test]
    fn heads_give_way_before_names_and_numbers_are_hidden_last() {
        check(
            86,
            &[],
            &[
                "operation                                     what requests wait for  in",
                "ts-travel-service:TravelController.queryInfo                   13.1%  3632ff9c4162ed41",
            ],
        );
        check(
            80,
            &[],
            &[
                "operation                                        what requests  in",
                "                                                      wait for",
                "ts-travel-service:TravelController.queryInfo             13.1%  3632ff9c4162ed41",
            ],
        );
        check(
            60,
            &[],
            &[
                "operation                             what  in",
                "                                  requests",
                "                                  wait for",
                "ts-travel-service:                   13.1%  3632ff9c4162ed41",
                "  TravelController.queryInfo",
            ],
        );
        check(
            40,
            &["in"],
            &[
                "operation                           what",
                "                                requests",
                "                                wait for",
                "ts-travel-service:                 13.1%",
                "  TravelController.queryInfo",
            ],
        );
    }

    #[test]
    fn what_tells_rows_apart_is_not_hidden() {
        let rows = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let column = |head: &str, kind, cells| TextColumn::new(head.to_owned(), kind, rows(cells));
        let mut columns = vec![
            column("operation", Kind::Text, ["read", "read"]),
            column("calls", Kind::Count, ["100000", "100000"]),
            column("caller", Kind::Text, ["web", "ranker"]),
            column("longest", Kind::DurationNs, ["1.00s", "1.00s"]),
        ];
        assert_eq!(fit(&mut columns, Some(20)), ["calls", "longest"]);
        assert_ne!(
            lines(&columns, |column| column.lines_of(0)),
            lines(&columns, |column| column.lines_of(1))
        );
    }
}
