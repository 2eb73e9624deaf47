//! To terminals.

use super::doc::{Doc, Part};
use super::figure::Figure;
use super::figure_text;
use super::number::real;
use super::scrub::{scrubbed, scrubbed_lines, shortened};
use super::table::{Cell, Column, Kind, Table};
use crate::humanise::instant;

/// A name keeps so many characters, however narrow the terminal is.
const NAME_MIN: usize = 24;
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// How a text is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextView {
    /// So many columns; none: whatever reads it wants all.
    pub width: Option<usize>,
    /// Whether segments are called by their full path.
    pub full_names: bool,
    /// Whether heads stand out by colour.
    pub colour: bool,
}

impl TextView {
    /// The document as a text, without a line's end.
    #[must_use]
    pub fn render(&self, doc: &Doc) -> String {
        let parts = doc.parts().iter().filter_map(|part| match part {
            Part::Heading(text) => Some(self.bold(&scrubbed_lines(text))),
            Part::Sentence(text) => Some(scrubbed_lines(text)),
            Part::Table(table) => (table.shown > 0).then(|| self.table(table)),
            Part::Figure(figure) => figure.is_for_terminals.then(|| self.figure(figure)),
        });
        parts.collect::<Vec<_>>().join("\n\n")
    }

    fn figure(&self, figure: &Figure) -> String {
        let title = Some(scrubbed_lines(&figure.title)).filter(|title| !title.is_empty());
        let lines = figure_text::lines(&figure.drawing, self.width);
        title
            .into_iter()
            .chain(lines)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn bold(&self, text: &str) -> String {
        if self.colour {
            format!("{BOLD}{text}{PLAIN}")
        } else {
            text.to_owned()
        }
    }

    fn table(&self, table: &Table) -> String {
        let columns = &*table.spec.columns;
        let rows: Vec<Vec<String>> = table.rows[..table.shown]
            .iter()
            .map(|row| {
                row.iter()
                    .zip(columns)
                    .map(|(cell, column)| self.cell(cell, column.kind))
                    .collect()
            })
            .collect();
        // What nobody has a value for is no column for people.
        let is_empty = |at: usize| rows.iter().all(|row| row[at].is_empty());
        let is_shown = |at: &usize| !columns[*at].head.is_empty() && !is_empty(*at);
        let kept: Vec<usize> = (0..columns.len()).filter(is_shown).collect();
        let widths = self.widths(&kept, columns, &rows);
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = kept
                .iter()
                .zip(&widths)
                .map(|(at, width)| {
                    let text = shortened(&cell(*at), *width);
                    let pad = " ".repeat(width - text.chars().count());
                    if is_left(columns[*at].kind) {
                        text + &pad
                    } else {
                        pad + &text
                    }
                })
                .collect();
            cells.join("  ").trim_end().to_owned()
        };
        let mut out = Vec::new();
        let cut = match table.rows.len() {
            all if all > table.shown => format!(" ({} of {all})", table.shown),
            _ => String::new(),
        };
        if !table.title.is_empty() {
            out.push(scrubbed_lines(&table.title) + &cut);
        }
        out.push(self.bold(&line(&|at| scrubbed(&columns[at].head))));
        out.extend(rows.iter().map(|row| line(&|at| row[at].clone())));
        out.join("\n")
    }

    /// As wide as what is in them; where that is too much, names give way, the widest first.
    fn widths(&self, kept: &[usize], columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
        let width = |at: &usize| {
            let cells = rows.iter().map(|row| row[*at].chars().count());
            cells
                .chain([columns[*at].head.chars().count()])
                .max()
                .unwrap_or(0)
        };
        let mut widths: Vec<usize> = kept.iter().map(width).collect();
        let room = self.width.unwrap_or(usize::MAX);
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        while total(&widths) > room {
            let names = (0..kept.len())
                .filter(|at| is_left(columns[kept[*at]].kind) && widths[*at] > NAME_MIN);
            let Some(widest) = names.max_by_key(|at| widths[*at]) else {
                break;
            };
            let over = total(&widths) - room;
            widths[widest] = widths[widest]
                .saturating_sub(over.min(widths[widest] - NAME_MIN))
                .max(NAME_MIN);
        }
        widths
    }

    fn cell(&self, cell: &Cell, kind: Kind) -> String {
        match cell {
            Cell::None => String::new(),
            Cell::Text(id) if kind == Kind::Request && !self.full_names => {
                scrubbed(short_request(id))
            }
            Cell::Text(text) | Cell::Linked(text, _) => scrubbed(text),
            Cell::Nested(depth, text) => "  ".repeat(*depth) + &scrubbed(text),
            Cell::Segment(name) => scrubbed(
                if self.full_names {
                    name.full()
                } else {
                    name.short()
                }
                .as_ref(),
            ),
            Cell::Count(count) => count.to_string(),
            Cell::Instant(at_ns) => instant(*at_ns),
            Cell::Real(value) => real(*value, kind),
            Cell::Flag(flag) => if *flag { "yes" } else { "" }.to_owned(),
        }
    }
}

/// As much of a request's id as finds it again: of 32 hexadecimal digits, the last 16.
#[must_use]
pub fn short_request(id: &str) -> &str {
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { &id[16..] } else { id }
}

fn is_left(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Segment | Kind::Request)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::table::{Row, TableSpec};
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
    fn long_names_are_cut_in_the_middle() {
        let rows = [Share(
            "client:page > edge:load > web:load > web:rank [start … end]",
            0.5,
        )];
        let view = TextView {
            width: Some(40),
            ..TextView::default()
        };
        let head = format!("name{}share", " ".repeat(31));
        check(
            view,
            &rows,
            9,
            &format!("\n\nShares\n{head}\nclient:pag…web:rank [start … end]  50.0%"),
        );
        let narrow = TextView {
            width: Some(3),
            ..TextView::default()
        }
        .render(&{
            let mut doc = Doc::new();
            doc.table("", &rows, 9);
            doc
        });
        assert!(
            narrow
                .lines()
                .all(|line| line.chars().count() <= NAME_MIN + 2 + 5),
            "{narrow}"
        );
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
