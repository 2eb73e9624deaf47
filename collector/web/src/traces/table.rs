//! Tables whose cells may be links.

use stroboscope_render::humanise::{count_spaced, duration_spaced, percent};
use stroboscope_render::page::Html;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Name,
    Number,
}

/// Builder of an HTML table whose cells may be links.
pub(super) struct LinkedTable {
    html: Html,
    heads: Vec<&'static str>,
}

impl LinkedTable {
    /// Creates a table with these heads.
    pub(super) fn new(caption: &str, heads: &[(&'static str, Set)]) -> Self {
        let mut html = Html::new();
        html.markup("<div class=\"wide\"><table class=\"data\"><caption>")
            .text(caption)
            .markup("</caption><thead><tr>");
        for (head, set) in heads {
            html.markup(match set {
                Set::Name => "<th scope=\"col\" class=\"name\">",
                Set::Number => "<th scope=\"col\">",
            })
            .text(head)
            .markup("</th>");
        }
        html.markup("</tr></thead><tbody>\n");
        let heads = heads.iter().map(|(head, _)| *head).collect();
        Self { html, heads }
    }

    pub(super) fn row(&mut self, cells: impl FnOnce(&mut Cells<'_>)) {
        self.row_called(None, cells);
    }

    /// Adds a row; `id` is its id for links.
    pub(super) fn row_called(&mut self, id: Option<&str>, cells: impl FnOnce(&mut Cells<'_>)) {
        match id {
            Some(id) => self.html.markup("<tr id=\"").text(id).markup("\">"),
            None => self.html.markup("<tr>"),
        };
        let heads = &mut self.heads.iter();
        cells(&mut Cells {
            html: &mut self.html,
            heads,
        });
        self.html.markup("</tr>\n");
    }

    pub(super) fn end(mut self) -> Html {
        self.html.markup("</tbody></table></div>\n");
        self.html
    }
}

/// Writer of a row's cells.
pub(super) struct Cells<'a> {
    html: &'a mut Html,
    heads: &'a mut std::slice::Iter<'a, &'static str>,
}

impl Cells<'_> {
    /// Opens a cell under the next head. On narrow screens, the stylesheet shows the head before
    /// the cell, unless the cell is a name at the start of a row.
    fn open(&mut self, is_name: bool, value: Option<&str>) -> &mut Html {
        let head = self.heads.next().copied().unwrap_or_default();
        self.html
            .markup(if is_name { "<td class=\"name\"" } else { "<td" })
            .markup(" data-label=\"")
            .text(head)
            .markup("\"");
        if let Some(value) = value {
            self.html.markup(" data-value=\"").text(value).markup("\"");
        }
        self.html.markup(">")
    }

    pub(super) fn name(&mut self, text: &str) -> &mut Self {
        self.open(true, None).text(text).markup("</td>");
        self
    }

    /// Adds a name that is nested `depth` levels deep. Indentation shows at most 12 levels.
    pub(super) fn nested(&mut self, depth: usize, text: &str) -> &mut Self {
        // Indent with characters, because the content policy forbids inline styles.
        let indent = "\u{2002}".repeat(depth.min(12));
        self.open(true, Some(text))
            .text(&indent)
            .text(text)
            .markup("</td>");
        self
    }

    pub(super) fn link(&mut self, address: &str, text: &str) -> &mut Self {
        self.open(true, None)
            .markup("<a href=\"")
            .text(address)
            .markup("\">")
            .text(text)
            .markup("</a></td>");
        self
    }

    pub(super) fn duration(&mut self, ns: Option<u64>) -> &mut Self {
        match ns {
            Some(ns) => self
                .open(false, Some(&ns.to_string()))
                .text(&duration_spaced(ns as f64))
                .markup("</td>"),
            None => self.open(false, None).markup("</td>"),
        };
        self
    }

    pub(super) fn count(&mut self, count: u64) -> &mut Self {
        self.open(false, Some(&count.to_string()))
            .text(&count_spaced(count))
            .markup("</td>");
        self
    }

    pub(super) fn share(&mut self, share: f64) -> &mut Self {
        self.open(false, Some(&share.to_string()))
            .text(&percent(share))
            .markup("</td>");
        self
    }
}
