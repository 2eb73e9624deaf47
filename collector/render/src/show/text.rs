//! Renders documents for terminals.

use super::doc::{Doc, Part};
use super::figure::Figure;
use super::figure_text;
use super::layout;
use super::number::real;
use super::scrub::{scrubbed, scrubbed_lines};
use super::table::{Cell, Kind, Table, indentation};
use super::wrap;
use crate::humanise::instant;

/// Head of the column for a segment's first and last event.
const PART_HEAD: &str = "from … to";
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// Options for rendering documents as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextView {
    /// Width of the terminal, in columns. If it is `None`, lines are not broken and no column is
    /// hidden, for programs that read the text.
    pub width: Option<usize>,
    /// True to show full paths of segments and whole ids of requests.
    pub full_names: bool,
    /// True if headings and heads of columns are bold.
    pub colour: bool,
}

/// A table as lines of a terminal.
#[derive(Clone, Debug)]
pub struct TableLines {
    pub head: Vec<String>,
    /// Lines of each row that is shown.
    pub rows: Vec<Vec<String>>,
    /// Heads of the columns that did not fit.
    pub hidden: Vec<String>,
}

impl TextView {
    /// Renders the parts of the document that terminals show, without a final line end.
    pub fn render(&self, doc: &Doc) -> String {
        let parts = doc.parts().iter().filter_map(|part| match part {
            Part::Heading(text) => Some(self.bold(&self.wrapped(&scrubbed_lines(text)))),
            Part::Sentence(text) => Some(self.wrapped(&scrubbed_lines(text))),
            Part::Link { text, command, .. } => {
                Some(self.wrapped(&scrubbed_lines(&format!("{text}: `{command}`"))))
            }
            Part::Table(table) => (table.shown > 0).then(|| self.table(table)),
            Part::Figure(figure) => figure.is_for_terminals.then(|| self.figure(figure)),
            Part::Passage(_) => None,
        });
        parts.collect::<Vec<_>>().join("\n\n")
    }

    fn figure(&self, figure: &Figure) -> String {
        let title = Some(scrubbed_lines(&figure.title)).filter(|title| !title.is_empty());
        let lines = figure_text::lines(&figure.drawing, self.width);
        let lines: Vec<String> = title.into_iter().chain(lines).collect();
        lines.join("\n")
    }

    fn bold(&self, text: &str) -> String {
        if self.colour {
            format!("{BOLD}{text}{PLAIN}")
        } else {
            text.to_owned()
        }
    }

    fn table(&self, table: &Table) -> String {
        let mut out = Vec::new();
        let cut = match table.rows.len() {
            all if all > table.shown => format!(" ({} of {all})", table.shown),
            _ => String::new(),
        };
        if !table.title.is_empty() {
            out.push(self.wrapped(&(scrubbed_lines(&table.title) + &cut)));
        }
        let lines = self.lines(table);
        out.extend(lines.head.iter().map(|line| self.bold(line)));
        out.extend(lines.rows.into_iter().flatten());
        if let (false, Some(width)) = (lines.hidden.is_empty(), self.width) {
            let hidden = lines.hidden.join(", ");
            out.push(self.wrapped(&format!("Not shown in {width} columns: {hidden}.")));
        }
        out.join("\n")
    }

    /// Returns the lines of a table.
    pub fn lines(&self, table: &Table) -> TableLines {
        let mut columns = self.columns(table);
        let hidden = layout::fit(&mut columns, self.width);
        let head = layout::lines(&columns, |column| wrap::head(&column.head, column.width));
        let row = |row| layout::lines(&columns, |column| column.lines_of(row));
        TableLines {
            head,
            rows: (0..table.shown).map(row).collect(),
            hidden,
        }
    }

    /// Returns the columns of a table. Omits columns without a head, and columns whose cells have
    /// no text in any shown row, such as flags that are all false.
    fn columns(&self, table: &Table) -> Vec<layout::TextColumn> {
        let mut columns = Vec::new();
        for (at, column) in table.spec.columns.iter().enumerate() {
            if column.head.is_empty() {
                continue;
            }
            let head = scrubbed(&column.head);
            let cells = table.rows[..table.shown].iter().map(|row| &row[at]);
            if column.kind == Kind::Segment {
                let (tasks, parts) = cells.map(|cell| self.task_and_part(cell)).unzip();
                columns.push(layout::TextColumn::new(head, column.kind, tasks));
                columns.push(layout::TextColumn::new(
                    PART_HEAD.to_owned(),
                    column.kind,
                    parts,
                ));
            } else {
                let cells = cells.map(|cell| self.cell(cell, column.kind)).collect();
                columns.push(layout::TextColumn::new(head, column.kind, cells));
            }
        }
        columns.retain(layout::TextColumn::has_values);
        columns
    }

    /// Returns the cells of a segment's two columns: its task, and the segment's events.
    fn task_and_part(&self, cell: &Cell) -> (String, String) {
        match cell {
            Cell::Segment(name) => {
                let (task, part) = name.task_and_part(self.full_names);
                (scrubbed(&task), scrubbed(&part))
            }
            other => (self.cell(other, Kind::Segment), String::new()),
        }
    }

    fn wrapped(&self, text: &str) -> String {
        self.width
            .map_or_else(|| text.to_owned(), |width| wrap::sentences(text, width))
    }

    fn cell(&self, cell: &Cell, kind: Kind) -> String {
        match cell {
            Cell::None => String::new(),
            Cell::Text(id) if kind == Kind::Request && !self.full_names => {
                scrubbed(short_request(id))
            }
            Cell::Text(text) | Cell::Linked(text, _) => scrubbed(text),
            Cell::Nested(depth, text) => indentation(*depth) + &scrubbed(text),
            Cell::Segment(name) => scrubbed(&name.short()),
            Cell::Count(count) => count.to_string(),
            Cell::Instant(at_ns) => instant(*at_ns),
            Cell::Real(value) => real(*value, kind),
            Cell::Flag(flag) => if *flag { "yes" } else { "" }.to_owned(),
        }
    }
}

/// Returns enough of a request's id to find it again: the last 16 of 32 hexadecimal digits. Returns
/// an id of another form whole.
pub fn short_request(id: &str) -> &str {
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { &id[16..] } else { id }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::table::{Column, Row, TableSpec};
    use super::*;

    struct Share(&'static str, f64);

    impl Row for Share {
        const TABLE: TableSpec = TableSpec {
            name: "shares",
            about: "A share.",
            columns: Cow::Borrowed(&[
                Column::new("name", "name", Kind::Text),
                Column::new("share", "share", Kind::Share),
                Column::new("nothing", "nothing", Kind::Count),
            ]),
        };

        fn cells(&self) -> Vec<Cell> {
            vec![self.0.into(), self.1.into(), Cell::None]
        }
    }

    #[track_caller]
    fn check(view: TextView, rows: &[Share], top: usize, expected: &str) {
        let mut doc = Doc::new();
        doc.heading("Head")
            .sentence("")
            .sentence("One\nand two.")
            .table("Shares", rows, top);
        assert_eq!(
            view.render(&doc),
            format!("Head\n\nOne\nand two.{expected}")
        );
    }

    #[test]
    fn the_important_column_comes_first_and_what_has_no_value_is_left_out() {
        let rows = [Share("a", 0.5), Share("longer", 1.0)];
        check(
            TextView::default(),
            &rows,
            9,
            "\n\nShares\nname     share\na        50.0%\nlonger  100.0%",
        );
        check(
            TextView::default(),
            &rows,
            1,
            "\n\nShares (1 of 2)\nname  share\na     50.0%",
        );
        check(TextView::default(), &[], 9, "");
    }

    #[test]
    fn what_is_too_wide_goes_on_in_the_next_line() {
        let mut doc = Doc::new();
        doc.sentence("Nine words that take more columns than there are.")
            .table(
                "Shares",
                &[Share("client:page > edge:load > web:load", 0.5)],
                9,
            );
        let view = TextView {
            width: Some(35),
            ..TextView::default()
        };
        let expected = "Nine words that take more columns\nthan there are.\n\nShares\n\
            name                          share\nclient:page > edge:load >     50.0%\n  web:load";
        assert_eq!(view.render(&doc), expected);
    }

    #[test]
    fn terminals_are_not_commanded() {
        let mut doc = Doc::new();
        doc.sentence("see \u{1b}[2Jthis")
            .table("\u{7}", &[Share("a\u{1b}[2Jb\n\u{202e}", 0.0)], 9);
        let text = TextView::default().render(&doc);
        assert_eq!(text.matches('\u{fffd}').count(), 5, "{text:?}");
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
}
