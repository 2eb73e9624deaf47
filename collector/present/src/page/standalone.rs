//! Documents as pages.

use super::html::Html;
use crate::picture::{Picture, draw};
use crate::show::{Cell, Doc, Figure, Kind, Part, Table, real};

/// How a page begins, up to its title.
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
    content=\"width=device-width, initial-scale=1\"/><meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'\"/><title>";
/// What stands between the title and the first part of a page.
const STYLE: &str = concat!(
    "</title><style>\n",
    include_str!("../../assets/style.css"),
    "</style></head><body>\n"
);

/// The content of a page that a document is.
#[must_use]
pub fn body(doc: &Doc) -> Html {
    let mut html = Html::new();
    write_parts(&mut html, doc);
    html
}

/// The page. Segments are called by their short names; the full ones are their titles.
#[must_use]
pub fn to_page(doc: &Doc, title: &str) -> String {
    let mut html = Html::default();
    html.markup(HEAD)
        .text(&format!("Stroboscope: {title}"))
        .markup(STYLE);
    write_parts(&mut html, doc);
    html.markup("</body></html>\n");
    html.into_string()
}

/// A document of several, on one page.
#[derive(Debug)]
pub struct Section {
    /// What links to it call it.
    pub id: &'static str,
    /// What it says.
    pub doc: Doc,
}

/// A page of several documents, under one headline and a line about it.
#[must_use]
pub fn to_page_of_sections(
    title: &str,
    headline: &str,
    about: &str,
    sections: &[Section],
) -> String {
    let mut html = Html::default();
    html.markup(HEAD)
        .text(&format!("Stroboscope: {title}"))
        .markup(STYLE);
    html.markup("<h1>")
        .text(headline)
        .markup("</h1><p class=\"meta\">")
        .text(about)
        .markup("</p>\n");
    for section in sections
        .iter()
        .filter(|section| !section.doc.parts().is_empty())
    {
        html.markup("<section id=\"")
            .markup(section.id)
            .markup("\">");
        write_parts(&mut html, &section.doc);
        html.markup("</section>\n");
    }
    html.markup("</body></html>\n");
    html.into_string()
}

/// The parts of a document, inside a page.
fn write_parts(html: &mut Html, doc: &Doc) {
    // Pictures that follow each other stand side by side, where there is room.
    let are_alike = |a: &Part, b: &Part| matches!((a, b), (Part::Figure(_), Part::Figure(_)));
    for parts in doc.parts().chunk_by(are_alike) {
        let are_pictures = matches!(parts, [Part::Figure(_), ..]);
        html.markup(if are_pictures {
            "<div class=\"pictures\">"
        } else {
            ""
        });
        parts.iter().for_each(|part| write_part(html, part));
        html.markup(if are_pictures { "</div>\n" } else { "" });
    }
}

fn write_part(html: &mut Html, part: &Part) {
    match part {
        Part::Heading(text) => {
            html.markup("<h2>").text(text).markup("</h2>\n");
        }
        Part::Sentence(text) => {
            html.markup("<p>").text(text).markup("</p>\n");
        }
        Part::Table(table) if table.shown == 0 => {}
        Part::Table(table) => write_table(html, table),
        Part::Figure(figure) => write_figure(html, figure),
    }
}

/// A picture that cannot be drawn is said to be missing; the page has all else.
fn write_figure(html: &mut Html, figure: &Figure) {
    match draw(figure) {
        Ok(picture) => write_picture(html, &picture, figure),
        Err(error) => {
            html.markup("<p>")
                .text(&format!("{error}. {}", figure.alternative))
                .markup("</p>\n");
        }
    }
}

/// A picture under its title; the alternative says what it shows to those who cannot see it.
fn write_picture(html: &mut Html, picture: &Picture, figure: &Figure) {
    let (width_px, height_px) = picture.size_px();
    html.markup("<figure><figcaption>")
        .text(&figure.title)
        .markup("</figcaption><svg role=\"img\" viewBox=\"0 0 ")
        .shown(width_px)
        .markup(" ")
        .shown(height_px)
        .markup("\" width=\"")
        .shown(width_px)
        .markup("\" height=\"")
        .shown(height_px)
        .markup("\" aria-label=\"")
        .text(&format!("{}. {}", figure.title, figure.alternative))
        .markup("\">")
        .drawn(picture)
        .markup("</svg></figure>\n");
}

fn write_table(html: &mut Html, table: &Table) {
    if !table.title.is_empty() {
        html.markup("<p><b>").text(&table.title).markup("</b>");
        if table.shown < table.rows.len() {
            html.text(&format!(" ({} of {})", table.shown, table.rows.len()));
        }
        html.markup("</p>\n");
    }
    html.markup("<div class=\"wide\"><table><thead><tr>");
    for column in table
        .spec
        .columns
        .iter()
        .filter(|column| !column.head.is_empty())
    {
        html.markup(open_head(column.kind))
            .text(&column.head)
            .markup("</th>");
    }
    html.markup("</tr></thead><tbody>\n");
    for row in &table.rows[..table.shown] {
        html.markup("<tr>");
        for (cell, column) in row
            .iter()
            .zip(table.spec.columns.iter())
            .filter(|(_, column)| !column.head.is_empty())
        {
            match cell {
                Cell::Segment(name) => {
                    html.markup("<td class=\"name\" title=\"")
                        .text(&name.full())
                        .markup("\">")
                        .text(&name.short());
                }
                other => {
                    html.markup(open_cell(column.kind))
                        .text(&text_of(other, column.kind));
                }
            }
            html.markup("</td>");
        }
        html.markup("</tr>\n");
    }
    html.markup("</tbody></table></div>\n");
}

fn open_head(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Text | Kind::Segment) {
        "<th class=\"name\">"
    } else {
        "<th>"
    }
}

fn open_cell(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Text | Kind::Segment) {
        "<td class=\"name\">"
    } else {
        "<td>"
    }
}

fn text_of(cell: &Cell, kind: Kind) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Text(text) => text.clone(),
        Cell::Nested(depth, text) => "  ".repeat(*depth) + text,
        Cell::Segment(name) => name.short(),
        Cell::Count(count) => count.to_string(),
        Cell::Real(value) => real(*value, kind),
        Cell::Flag(flag) => if *flag { "yes" } else { "" }.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::{Axis, Chart, LegendPlace, Timeline};

    fn figure(title: &str) -> Figure {
        let (x, y) = (Axis::new("x", Kind::Count), Axis::new("y", Kind::Share));
        Figure::new(
            title,
            "Nothing.",
            Chart::Lines {
                x,
                y,
                lines: Vec::new(),
                legend: LegendPlace::Lower,
            },
        )
    }

    #[test]
    fn pictures_that_follow_each_other_stand_side_by_side() {
        let mut doc = Doc::new();
        doc.heading("<h>")
            .figures([figure("a\u{1b}"), figure("<b>").on_pages_only()])
            .sentence("between");
        doc.figure(Figure::new("c", "", Timeline::default()));
        let empty = Section {
            id: "empty",
            doc: Doc::new(),
        };
        let page = to_page_of_sections("t", "h", "about", &[Section { id: "one", doc }, empty]);
        let groups: Vec<usize> = page
            .split("<div class=\"pictures\">")
            .skip(1)
            .map(|rest| {
                rest.split("</div>")
                    .next()
                    .unwrap_or_default()
                    .matches("<figure>")
                    .count()
            })
            .collect();
        assert_eq!(groups, [2, 1], "{page}");
        assert!(
            page.contains("<figcaption>a\u{fffd}</figcaption>") && page.contains("&lt;b&gt;"),
            "{page}"
        );
        assert!(
            page.contains("<section id=\"one\"><h2>&lt;h&gt;") && !page.contains("empty"),
            "{page}"
        );
    }
}
