//! HTML in which every text is escaped: only what stands in this program's source is markup. Also well-formed XML.

use super::picture::{Picture, visible};

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Markup of our own.
    pub(super) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// A text of anybody.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in visible(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// A section with a heading and an explanation.
    pub(super) fn section(&mut self, id: &'static str, heading: &str, explanation: &str) -> &mut Self {
        self.markup("<section id=\"").markup(id).markup("\"><h2>").text(heading).markup("</h2>");
        if !explanation.is_empty() {
            self.markup("<p>").text(explanation).markup("</p>");
        }
        self
    }

    /// Ends what [`Html::section`] began.
    pub(super) fn end_section(&mut self) {
        self.markup("</section>\n");
    }

    /// A picture under its title; `alternative` says what it shows to those who cannot see it.
    pub(super) fn picture(&mut self, picture: &Picture, title: &str, alternative: &str) {
        let (inner, width_px, height_px) = picture.inner();
        self.markup("<figure><figcaption>")
            .text(title)
            .markup("</figcaption><svg role=\"img\" viewBox=\"0 0 ");
        self.0.push_str(&format!("{width_px} {height_px}\" width=\"{width_px}\" height=\"{height_px}"));
        self.markup("\" aria-label=\"").text(&format!("{title}. {alternative}")).markup("\">");
        // Drawn by us, and escaped where it was drawn.
        self.0.push_str(inner);
        self.markup("</svg></figure>\n");
    }

    /// A table; all columns but the last are numbers.
    pub(super) fn table(&mut self, heads: &[&str], rows: &[Vec<String>]) {
        self.markup("<div class=\"wide\"><table><thead><tr>");
        for head in heads {
            self.markup("<th>").text(head).markup("</th>");
        }
        self.markup("</tr></thead><tbody>\n");
        for row in rows {
            self.markup("<tr>");
            for cell in row {
                self.markup("<td>").text(cell).markup("</td>");
            }
            self.markup("</tr>\n");
        }
        self.markup("</tbody></table></div>\n");
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_markup() {
        let mut html = Html::default();
        html.section("s", "<b>&\"'", "");
        html.table(&["<i>"], &[vec!["</td><script>\u{1b}".to_owned()]]);
        let html = html.into_string();
        assert!(html.contains("&lt;b&gt;&amp;&quot;&#39;") && !html.contains("<i>"), "{html}");
        assert!(html.contains("&lt;/td&gt;&lt;script&gt;\u{fffd}"), "{html}");
    }
}
