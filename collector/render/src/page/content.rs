//! Renders a document as the content of a page.

use super::html::Html;
use super::table::{PagedRows, Reader, write_table};
use crate::picture::{Picture, draw};
use crate::show::{Chart, Doc, Drawing, Figure, Part, Passage};

/// Minimum number of headings for a table of contents.
const CONTENTS_FROM: usize = 4;

/// Maximum width of a graph that is scaled to fit a window. The text of a wider one would be too
/// small.
const GRAPH_FITS_PX: u32 = 1_500;

/// Renders a document as the content of a site's page. Each table has its default number of rows.
pub fn body(doc: &Doc) -> Html {
    body_of(doc, None)
}

/// Renders a document as the content of a site's page, with links to more rows below its tables.
pub fn paged_body(doc: &Doc, rows: PagedRows<'_>) -> Html {
    body_of(doc, Some(rows))
}

fn body_of(doc: &Doc, rows: Option<PagedRows<'_>>) -> Html {
    let mut html = contents(doc);
    write_parts(&mut html, doc, Reader::OfSite(rows), &mut 0);
    html
}

/// Builds a table of contents, if there are enough headings.
pub(super) fn contents(doc: &Doc) -> Html {
    let headings: Vec<&str> = headings(doc).collect();
    let mut html = Html::new();
    if headings.len() < CONTENTS_FROM {
        return html;
    }
    html.markup("<nav class=\"contents\" aria-label=\"On this page\"><ul>");
    for (heading, number) in headings.iter().zip(1usize..) {
        html.markup("<li>")
            .link(&format!("#part-{number}"), heading)
            .markup("</li>");
    }
    html.markup("</ul></nav>\n");
    html
}

pub(super) fn headings(doc: &Doc) -> impl Iterator<Item = &str> {
    doc.parts().iter().filter_map(|part| match part {
        Part::Heading(text) => Some(&**text),
        _ => None,
    })
}

/// Writes the parts of a document into a page; `headings` counts the headings of the page.
pub(super) fn write_parts(html: &mut Html, doc: &Doc, reader: Reader<'_>, headings: &mut usize) {
    // Consecutive pictures stand side by side if there is room.
    let are_alike = |a: &Part, b: &Part| matches!((a, b), (Part::Figure(_), Part::Figure(_)));
    let mut is_first = true;
    let mut tables = 0;
    for parts in doc.parts().chunk_by(are_alike) {
        let are_pictures = matches!(parts, [Part::Figure(_), _, ..]);
        html.markup(if are_pictures {
            "<div class=\"pictures\">"
        } else {
            ""
        });
        for part in parts {
            match part {
                Part::Heading(text) => {
                    *headings += 1;
                    html.markup("<h2 id=\"part-")
                        .shown(*headings)
                        .markup(if is_first {
                            "\" class=\"lede\">"
                        } else {
                            "\">"
                        })
                        .text(text)
                        .markup("</h2>\n");
                }
                Part::Sentence(text) => {
                    html.markup("<p class=\"lines\">")
                        .text(text)
                        .markup("</p>\n");
                }
                Part::Link { text, path, .. } if matches!(reader, Reader::OfSite(_)) => {
                    html.markup("<p>").link(path, text).markup("</p>\n");
                }
                Part::Link { text, command, .. } => {
                    html.markup("<p>")
                        .text(text)
                        .markup(": <code>")
                        .text(command)
                        .markup("</code></p>\n");
                }
                Part::Table(table) if table.shown == 0 => {}
                Part::Table(table) => {
                    tables += 1;
                    write_table(html, table, reader, tables);
                }
                Part::Figure(figure) => write_figure(html, figure, reader),
                Part::Passage(passage) => write_passage(html, passage, reader),
            }
            is_first = false;
        }
        html.markup(if are_pictures { "</div>\n" } else { "" });
    }
}

/// Number of colours of origins; more origins share them, and differ by their numbers.
const ORIGIN_COLOURS: usize = 7;

/// Writes a text whose stretches have the colour and the number of their origin, and the list of
/// origins.
fn write_passage(html: &mut Html, passage: &Passage, reader: Reader<'_>) {
    let mark = |html: &mut Html, origin: usize| {
        html.markup("<mark class=\"o")
            .shown(origin % ORIGIN_COLOURS)
            .markup("\"");
    };
    html.markup("<figure class=\"passage\"><figcaption>")
        .text(&passage.title)
        .markup("</figcaption><p tabindex=\"0\">");
    for stretch in &passage.stretches {
        let Some(origin) = stretch.origin else {
            html.text(&stretch.text);
            continue;
        };
        mark(html, origin);
        html.markup(" title=\"")
            .text(&stretch.details)
            .markup("\">")
            .text(&stretch.text)
            .markup("</mark><sup>")
            .shown(origin + 1)
            .markup("</sup>");
    }
    html.markup("</p><ol class=\"origins\">");
    for (number, origin) in passage.origins.iter().enumerate() {
        html.markup("<li>");
        mark(html, number);
        html.markup(">").shown(number + 1).markup("</mark> ");
        for (place, (name, path)) in origin.things.iter().enumerate() {
            html.markup(if place > 0 { ", " } else { "" });
            match reader {
                Reader::OfSite(_) => html.link(path, name),
                Reader::OfFile => html.text(name),
            };
        }
        html.markup("</li>");
    }
    html.markup("</ol></figure>\n");
}

/// Draws a picture. If that fails, the page reports it and shows everything else.
fn write_figure(html: &mut Html, figure: &Figure, reader: Reader<'_>) {
    let mut drawn = figure.clone();
    if let (Reader::OfFile, Drawing::Graph(graph)) = (reader, &mut drawn.drawing) {
        // A file has no surrounding site to link to.
        graph.nodes.iter_mut().for_each(|node| node.path = None);
    }
    match draw(&drawn) {
        Ok(picture) => write_picture(html, &picture, figure),
        Err(error) => {
            html.markup("<p>")
                .text(&format!("{error}. {}", figure.alternative))
                .markup("</p>\n");
        }
    }
}

/// Writes a picture under its title; the alternative describes it to those who cannot see it.
fn write_picture(html: &mut Html, picture: &Picture, figure: &Figure) {
    let (figure_class, svg_class) = match figure.drawing {
        Drawing::Chart(Chart::Bars(_)) => ("<figure class=\"chart bars\">", "picture"),
        Drawing::Chart(_) => ("<figure class=\"chart\">", "picture"),
        Drawing::Timeline(_) => ("<figure class=\"timeline\">", "picture"),
        Drawing::Graph(_) => ("<figure class=\"graph-figure\">", "picture graph"),
    };
    // Keyboard users can scroll what is wider than the screen; in a graph they can reach each box.
    let is_graph = matches!(figure.drawing, Drawing::Graph(_));
    let (width_px, height_px) = picture.size_px();
    html.markup(figure_class)
        .markup("<figcaption>")
        .text(&figure.title)
        .markup("</figcaption><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"")
        .text(&figure.title)
        .markup(if is_graph {
            "\"><svg role=\"group\" class=\""
        } else {
            "\"><svg role=\"img\" class=\""
        })
        .markup(svg_class)
        .markup(if is_graph && width_px <= GRAPH_FITS_PX {
            " fits"
        } else {
            ""
        })
        .markup("\" viewBox=\"0 0 ")
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
        .markup("</svg></div></figure>\n");
}

#[cfg(test)]
mod tests {
    use super::super::standalone::{Section, to_page_of_sections};
    use super::*;
    use crate::show::{Axis, Graph, GraphEdge, GraphNode, Kind, Origin, Stretch, Timeline};

    fn figure(title: &str) -> Figure {
        let (x, y) = (Axis::new("x", Kind::Count), Axis::new("y", Kind::Share));
        Figure::new(
            title,
            "Nothing.",
            Chart::Lines {
                x,
                y,
                lines: Vec::new(),
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
        let (_, page) = page.split_once("<body").unwrap();
        assert_eq!(
            page.matches("<div class=\"pictures\">").count(),
            1,
            "{page}"
        );
        assert_eq!(page.matches("<figure").count(), 3, "{page}");
        assert!(
            page.contains("<figcaption>a\u{fffd}</figcaption>") && page.contains("&lt;b&gt;"),
            "{page}"
        );
        assert!(
            page.contains("<section id=\"one\"><h2 id=\"part-1\" class=\"lede\">&lt;h&gt;")
                && !page.contains("id=\"empty\""),
            "{page}"
        );
    }

    #[test]
    fn graphs_fit_unless_they_could_not_be_read() {
        let page = |nodes: usize| {
            let node = |number: usize| GraphNode {
                name: number.to_string(),
                lines: Vec::new(),
                share: 0.5,
                ..GraphNode::default()
            };
            let edge = |to: usize| GraphEdge {
                from: to / 2,
                to,
                ..GraphEdge::default()
            };
            let graph = Graph {
                nodes: (0..nodes).map(node).collect(),
                edges: (1..nodes).map(edge).collect(),
            };
            let mut doc = Doc::new();
            doc.figure(Figure::new("g", "", graph));
            body(&doc).into_string()
        };
        assert!(
            page(2).contains("class=\"picture graph fits\""),
            "{}",
            page(2)
        );
        assert!(
            page(200).contains("class=\"picture graph\""),
            "{}",
            page(200)
        );
    }

    #[test]
    fn boxes_and_links_lead_on_where_there_is_a_site() {
        let node = GraphNode {
            path: Some("/map?focus=a".to_owned()),
            ..GraphNode::default()
        };
        let graph = Graph {
            nodes: vec![node],
            edges: Vec::new(),
        };
        let mut doc = Doc::new();
        doc.figure(Figure::new("g", "", graph));
        doc.link("All", "/model?all=on", "model --all");
        let link = "<a class=\"node\" href=\"/map?focus=a\"";
        let page = body(&doc).into_string();
        assert!(page.contains(link), "{page}");
        assert!(page.contains("<a href=\"/model?all=on\">All</a>"), "{page}");
        let file = to_page_of_sections("t", "h", "about", &[Section { id: "one", doc }]);
        assert!(
            !file.contains(link) && file.contains("<g class=\"node\""),
            "{file}"
        );
        assert!(
            file.contains("<p>All: <code>model --all</code></p>"),
            "{file}"
        );
    }

    #[test]
    fn stretches_have_the_colour_and_the_number_of_their_origin() {
        let stretch = |text: &str, origin| Stretch {
            text: text.to_owned(),
            origin,
            details: format!("\"{text}\" 0..4"),
        };
        let things = vec![("<a>".to_owned(), "/provenance?item=1".to_owned())];
        let passage = Passage {
            title: "Content".to_owned(),
            stretches: vec![stretch("for ", None), stretch("<b>", Some(7))],
            origins: vec![Origin { things }; 8],
        };
        let mut doc = Doc::new();
        doc.passage(passage);
        let page = body(&doc).into_string();
        let text = "<p tabindex=\"0\">for <mark class=\"o0\" title=\"&quot;&lt;b&gt;&quot; 0..4\">\
                    &lt;b&gt;</mark><sup>8</sup></p>";
        assert!(page.contains(text), "{page}");
        let origin = "<mark class=\"o0\">8</mark> <a href=\"/provenance?item=1\">&lt;a&gt;</a>";
        assert!(page.contains(origin), "{page}");
        let file = to_page_of_sections("t", "h", "about", &[Section { id: "one", doc }]);
        assert!(file.contains("8</mark> &lt;a&gt;</li>"), "{file}");
    }

    #[test]
    fn what_is_long_has_a_list_of_contents() {
        let mut doc = Doc::new();
        for heading in ["a", "b", "c", "<d>"] {
            assert!(body(&doc).as_str().matches("class=\"contents\"").count() == 0);
            doc.heading(heading);
        }
        let page = body(&doc).into_string();
        assert!(page.contains("<a href=\"#part-4\">&lt;d&gt;</a>"), "{page}");
        assert!(page.contains("<h2 id=\"part-4\">"), "{page}");
    }
}
