//! Tables on pages. Each known value is also machine-readable in an attribute of its cell, for the
//! module that sorts.

use super::html::Html;
use crate::humanise::{count_spaced, duration_spaced, instant};
use crate::show::{Cell, Column, Kind, Table, indentation, real};
use url::form_urlencoded;

/// Maximum number of rows that a table with links to more rows has at first, and number of rows
/// that the link to the next rows adds.
const ROWS_PER_PAGE: usize = 50;
/// Maximum number of rows of a table with links to more rows, regardless of the page's address: a
/// browser can still scroll through them.
const ROWS_MAX: usize = 5_000;

/// Number of rows to show on a page, and the page's address for links to more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedRows<'a> {
    /// Number of rows of each table; `None` shows the table's default, but at most 50.
    pub rows: Option<usize>,
    /// The address without `rows` and without carried parameters; it ends with `?` or `&`.
    pub address: &'a str,
}

impl<'a> PagedRows<'a> {
    /// Parameter of an address for the number of rows.
    pub const PARAMETER: &'static str = "rows";

    /// Reads the number of rows from the query of an address: `usize::MAX` for all rows.
    pub fn of(query: &str, address: &'a str) -> Self {
        let mut values =
            form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == Self::PARAMETER);
        let rows = values.find_map(|(_, value)| match &*value {
            "all" => Some(usize::MAX),
            count => count.parse().ok(),
        });
        Self { rows, address }
    }

    fn shown(&self, table: &Table) -> usize {
        let rows = self.rows.unwrap_or(table.shown.min(ROWS_PER_PAGE));
        rows.clamp(1, ROWS_MAX).min(table.rows.len())
    }

    /// Writes links to pages with more rows, at the first row that each adds. Writes a hint if the
    /// page already has the maximum number of rows.
    fn links(&self, html: &mut Html, (number, shown, all): (usize, usize, usize)) {
        let mut link = |rows: &str, text: &str| {
            let address = format!("{}rows={rows}#row-{number}-{shown}", self.address);
            html.link(&address, text);
        };
        let most = all.min(ROWS_MAX);
        if most > shown + ROWS_PER_PAGE {
            let next = (shown + ROWS_PER_PAGE).to_string();
            link(&next, &format!("next {ROWS_PER_PAGE}"));
        }
        if most > shown {
            let which = if most == all { "all" } else { "the first" };
            link(
                "all",
                &format!("show {which} {}", count_spaced(most as u64)),
            );
        } else {
            html.text("The command line's --json and SQL have the rest.");
        }
    }
}

/// Reader of a page: on a site, the reader can follow links to its other pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader<'a> {
    /// The reader of a page of a site.
    OfSite(Option<PagedRows<'a>>),
    /// The reader of a file.
    OfFile,
}

/// Writes a table; `number` counts the tables of its document.
pub(super) fn write_table(html: &mut Html, table: &Table, reader: Reader<'_>, number: usize) {
    let paged = match reader {
        Reader::OfSite(paged) => paged,
        Reader::OfFile => None,
    };
    let shown_count = paged.map_or(table.shown, |paged| paged.shown(table));
    let is_extended = paged.is_some_and(|paged| paged.rows.is_some());
    html.markup("<div class=\"wide\"><table class=\"data\">");
    if !table.title.is_empty() {
        html.markup("<caption>").text(&table.title);
        if shown_count < table.rows.len() {
            html.text(&format!(" ({shown_count} of {})", table.rows.len()));
        }
        html.markup("</caption>");
    }
    html.markup("<thead><tr>");
    let shown = &table.rows[..shown_count];
    // Omit columns without any value, as the text output does.
    let is_empty = |at: usize, kind| {
        let cells = shown.iter().filter_map(|row| row.get(at));
        !shown.is_empty()
            && cells
                .map(|cell| text_of(cell, kind))
                .all(|text| text.is_empty())
    };
    let columns = table.spec.columns.iter().enumerate();
    let columns: Vec<(usize, &Column)> = columns
        .filter(|(at, column)| !column.head.is_empty() && !is_empty(*at, column.kind))
        .collect();
    for (_, column) in &columns {
        html.markup("<th scope=\"col\" data-kind=\"")
            .markup(kind_name(column.kind))
            .markup("\"")
            .markup(if is_left(column.kind) {
                " class=\"name\">"
            } else {
                ">"
            })
            .text(&column.head)
            .markup("</th>");
    }
    html.markup("</tr></thead><tbody>\n");
    // Bars make the rows' latencies comparable at a glance.
    let longest = |(at, column): &(usize, &Column)| {
        let latencies = shown.iter().filter_map(|row| match row.get(*at) {
            Some(Cell::Real(ns)) if column.name == LATENCY => Some(*ns),
            _ => None,
        });
        latencies.reduce(f64::max).filter(|ns| *ns > 0.0)
    };
    let longest: Vec<Option<f64>> = columns.iter().map(longest).collect();
    for (place, row) in shown.iter().enumerate() {
        match is_extended {
            true => html
                .markup("<tr id=\"row-")
                .shown(number)
                .markup("-")
                .shown(place)
                .markup("\">"),
            false => html.markup("<tr>"),
        };
        for ((at, column), longest) in columns.iter().zip(&longest) {
            if let Some(cell) = row.get(*at) {
                write_cell(html, cell, column, *longest, reader);
            }
        }
        html.markup("</tr>\n");
    }
    html.markup("</tbody></table></div>\n");
    if let Some(paged) = paged.filter(|_| shown_count < table.rows.len()) {
        html.markup("<nav class=\"pager\" aria-label=\"")
            .text(&format!("More rows: {}", table.title))
            .markup("\">");
        paged.links(html, (number, shown_count, table.rows.len()));
        html.markup("</nav>\n");
    }
}

/// Returns the name of a kind for the JavaScript module for tables.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Segment => "segment",
        Kind::Request => "request",
        Kind::Count => "count",
        Kind::Instant => "instant_ns",
        Kind::DurationNs => "duration_ns",
        Kind::DifferenceNs => "difference_ns",
        Kind::Share => "share",
        Kind::Number => "number",
        Kind::Mean => "mean",
        Kind::Probability => "probability",
        Kind::Flag => "flag",
    }
}

fn is_left(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Segment)
}

/// Name of the column whose durations have bars.
const LATENCY: &str = "latency_ns";

/// Writes a cell. `longest` is the largest value of a column of latencies, if it is above 0.
fn write_cell(
    html: &mut Html,
    cell: &Cell,
    column: &Column,
    longest: Option<f64>,
    reader: Reader<'_>,
) {
    html.markup("<td");
    if is_left(column.kind) {
        html.markup(" class=\"name\"");
    } else if column.kind == Kind::Request {
        html.markup(" class=\"request\"");
    } else if column.kind == Kind::Instant {
        html.markup(" class=\"instant\"");
    }
    html.markup(" data-label=\"")
        .text(&column.head)
        .markup("\"");
    if let Some(value) = value_of(cell) {
        html.markup(" data-value=\"").text(&value).markup("\"");
    }
    if let Cell::Segment(name) = cell {
        html.markup(" title=\"").text(&name.full()).markup("\"");
    }
    html.markup(">");
    match (cell, column.kind) {
        (Cell::Text(id), Kind::Request) => write_request(html, id, reader),
        (Cell::Linked(text, path), _) if matches!(reader, Reader::OfSite(_)) => {
            html.markup("<a href=\"").text(path).markup("\">");
            write_breakable(html, text);
            html.markup("</a>");
        }
        (Cell::Real(share), Kind::Share) => {
            html.markup("<span>").text(&real(*share, Kind::Share));
            // A negative share, such as a decrease, gets no bar.
            if *share >= 0.0 {
                write_meter(html, *share);
            }
            html.markup("</span>");
        }
        (cell, kind) if is_left(kind) => write_breakable(html, &text_of(cell, kind)),
        (cell, kind) => {
            html.text(&text_of(cell, kind));
            if let (Cell::Real(ns), Some(longest)) = (cell, longest) {
                write_meter(html, ns / longest);
            }
        }
    }
    html.markup("</td>");
}

/// Writes a name that may continue on the next line after `:`, `/`, `.`, `_` and `-`, between the
/// words of `camelCase`, and within long words.
fn write_breakable(html: &mut Html, text: &str) {
    /// Maximum number of characters without a possible line break.
    const WORD: usize = 14;
    let mut from = 0;
    let mut word = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((_, character)) = characters.next() {
        word = if character == ' ' { 0 } else { word + 1 };
        let Some((next_at, next)) = characters.peek().copied() else {
            break;
        };
        let is_end = match character {
            ':' | '/' => next != character && next != ' ',
            // These end no part before a digit, so that short numbers and dates stay whole.
            '.' | '_' | '-' => next.is_alphabetic(),
            _ => character.is_lowercase() && next.is_uppercase(),
        };
        if is_end || word >= WORD {
            html.text(&text[from..next_at]).markup("<wbr/>");
            (from, word) = (next_at, 0);
        }
    }
    html.text(&text[from..]);
}

/// Writes a request's id in the short form of the terminal; on a site, as a link.
fn write_request(html: &mut Html, id: &str, reader: Reader<'_>) {
    let short = crate::show::short_request(id);
    match reader {
        Reader::OfFile => html.text(short),
        Reader::OfSite(_) => html.link(&format!("/traces/{}", path_segment(id)), short),
    };
}

/// Encodes a name as one segment of a path, or as a value in a query.
pub fn path_segment(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

/// Draws a share as a bar.
fn write_meter(html: &mut Html, share: f64) {
    html.markup(
        "<svg class=\"meter\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" \
         width=\"100\" height=\"8\"/><rect width=\"",
    )
    .px((share * 100.0).clamp(0.0, 100.0))
    .markup("\" height=\"8\"/></svg>");
}

/// Returns the machine-readable value of a cell; `None` if the cell has none.
fn value_of(cell: &Cell) -> Option<String> {
    match cell {
        Cell::None => None,
        Cell::Text(text) | Cell::Nested(_, text) | Cell::Linked(text, _) => Some(text.clone()),
        Cell::Segment(name) => Some(name.full()),
        Cell::Count(count) => Some(count.to_string()),
        Cell::Instant(at_ns) => Some(at_ns.to_string()),
        Cell::Real(value) => Some(value.to_string()),
        Cell::Flag(flag) => Some(flag.to_string()),
    }
}

fn text_of(cell: &Cell, kind: Kind) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Text(text) | Cell::Linked(text, _) => text.clone(),
        Cell::Nested(depth, text) => indentation(*depth) + text,
        Cell::Segment(name) => name.short(),
        Cell::Count(count) => count_spaced(*count),
        Cell::Instant(at_ns) => instant(*at_ns),
        Cell::Real(value) if kind == Kind::DurationNs => duration_spaced(*value),
        Cell::Real(value) => real(*value, kind),
        Cell::Flag(flag) => if *flag { "yes" } else { "" }.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::show::TableSpec;

    #[test]
    fn cells_are_for_people_and_for_the_module() {
        let columns = vec![
            Column::new("what", "what", Kind::Text),
            Column::new("share", "share", Kind::Share),
            Column::new("hidden", "", Kind::Count),
            Column::new("p50_ns", "p50", Kind::DurationNs),
            Column::new("latency_ns", "took", Kind::DurationNs),
            Column::new("example", "for example", Kind::Request),
        ];
        let table = Table {
            spec: TableSpec {
                name: "t",
                about: "",
                columns: Cow::Owned(columns),
            },
            title: "<t>".to_owned(),
            rows: vec![
                vec![
                    "<b>".into(),
                    0.25.into(),
                    1u64.into(),
                    1500.0.into(),
                    2000.0.into(),
                    "../<x".into(),
                ],
                vec![Cell::None; 6],
            ],
            shown: 1,
        };
        let write = |reader| {
            let mut html = Html::new();
            write_table(&mut html, &table, reader, 0);
            html.into_string()
        };
        let page = write(Reader::OfSite(None));
        for part in [
            "<caption>&lt;t&gt; (1 of 2)</caption>",
            "data-kind=\"duration_ns\">p50",
            "data-label=\"what\" data-value=\"&lt;b&gt;\">&lt;b&gt;</td>",
            "data-value=\"0.25\"><span>25.0%<svg",
            "data-value=\"1500\">1.50\u{a0}µs</td>",
            "data-value=\"2000\">2.00\u{a0}µs<svg class=\"meter\"",
            "<a href=\"/traces/%2E%2E%2F%3Cx\">",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(
            !page.contains("\"hidden\"") && page.matches("<td").count() == 5,
            "{page}"
        );
        assert!(!write(Reader::OfFile).contains("<a "));
    }

    #[test]
    fn names_break_between_words() {
        for (name, breaks) in [
            (
                "web:newsfeed.v1.Store/Read",
                "web:|newsfeed.|v1.|Store/|Read",
            ),
            (
                "/oteldemo.CartService/GetCart",
                "/|oteldemo.|Cart|Service/|Get|Cart",
            ),
            ("get_item-of list", "get_|item-|of list"),
            ("2026-11-29 at 1.25 s", "2026-11-29 at 1.25 s"),
            ("0123456789abcdefghijklmnop", "0123456789abcd|efghijklmnop"),
        ] {
            let mut html = Html::new();
            write_breakable(&mut html, name);
            assert_eq!(html.into_string().replace("<wbr/>", "|"), breaks);
        }
    }

    #[test]
    fn long_tables_are_paged() {
        let table = |count: usize, shown: usize| Table {
            spec: TableSpec {
                name: "t",
                about: "",
                columns: Cow::Owned(vec![Column::new("n", "n", Kind::Count)]),
            },
            title: "Numbers".to_owned(),
            rows: (0..count as u64)
                .map(|number| vec![number.into()])
                .collect(),
            shown,
        };
        let write = |table: &Table, rows| {
            let paged = PagedRows {
                rows,
                address: "/failures?by=a&",
            };
            let mut html = Html::new();
            write_table(&mut html, table, Reader::OfSite(Some(paged)), 3);
            html.into_string()
        };
        let next = |rows: usize, from: usize| {
            format!("<a href=\"/failures?by=a&amp;rows={rows}#row-3-{from}\">next 50</a>")
        };
        let all = |from: usize| {
            format!("<a href=\"/failures?by=a&amp;rows=all#row-3-{from}\">show all 120</a>")
        };
        // Default number of rows, rows in the address, rows shown, and true if a link leads to the
        // next 50.
        for (shown, rows, count, is_next) in [
            (120, None, 50, true),
            (20, None, 20, true),
            (20, Some(70), 70, false),
            (20, Some(0), 1, true),
            (20, Some(usize::MAX), 120, false),
        ] {
            let page = write(&table(120, shown), rows);
            assert_eq!(page.matches("<td").count(), count, "{page}");
            assert_eq!(page.contains(&next(count + 50, count)), is_next, "{page}");
            assert_eq!(page.contains(&all(count)), count < 120, "{page}");
            assert_eq!(page.contains("id=\"row-3-0\""), rows.is_some(), "{page}");
        }
        // A page has at most this many rows, regardless of the table and the address.
        let long = table(ROWS_MAX + 1, 20);
        assert!(
            write(&long, None).contains(">show the first 5000</a>"),
            "{}",
            write(&long, None)
        );
        let page = write(&long, Some(usize::MAX));
        assert_eq!(page.matches("<td").count(), ROWS_MAX);
        assert!(page.contains("have the rest.</nav>"));
        assert!(!write(&table(50, 50), None).contains("<nav"));
        assert!(!write(&table(0, 0), None).contains("<td"));
    }
}
