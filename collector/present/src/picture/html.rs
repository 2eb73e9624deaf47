//! HTML in which every text is escaped: only what stands in this program's source is markup. Also well-formed XML.

use super::svg::{Picture, visible};

/// How a page begins, up to its title.
pub(super) const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
    content=\"width=device-width, initial-scale=1\"/><meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'\"/><title>";
/// What stands between the title and the first part of a page.
pub(super) const STYLE: &str = "</title><style>\n\
    :root{color-scheme:light}\n\
    body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:1120px;margin:2em auto;padding:0 1em}\n\
    h1{margin-bottom:0}h2{margin:2.2em 0 .3em;border-bottom:1px solid #ccc}p{max-width:52em}\n\
    .meta{color:#555}\n\
    dl.figures{display:flex;flex-wrap:wrap;gap:1em 2.5em;margin:1em 0}\n\
    dl.figures dt{color:#555;font-size:.85em}dl.figures dd{margin:0;font-size:1.5em}\n\
    .pictures{display:flex;flex-wrap:wrap;gap:1em}\n\
    figure{margin:1em 0;max-width:100%}figcaption{font-weight:600;margin-bottom:.3em}\n\
    svg{max-width:100%;height:auto;border:1px solid #ddd}\n\
    svg text{font-family:system-ui,sans-serif;white-space:pre}\n\
    .wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9em;font-variant-numeric:tabular-nums}\n\
    td,th{padding:.15em 1em .15em 0;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\n\
    .name{text-align:left;white-space:pre-wrap;overflow-wrap:anywhere}\n\
    </style></head><body>\n";

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

    /// A picture under its title; `alternative` says what it shows to those who cannot see it.
    pub(super) fn picture(&mut self, picture: &Picture, title: &str, alternative: &str) {
        let (inner, width_px, height_px) = picture.inner();
        self.markup("<figure><figcaption>")
            .text(title)
            .markup("</figcaption><svg role=\"img\" viewBox=\"0 0 ");
        self.0.push_str(&format!(
            "{width_px} {height_px}\" width=\"{width_px}\" height=\"{height_px}"
        ));
        self.markup("\" aria-label=\"")
            .text(&format!("{title}. {alternative}"))
            .markup("\">");
        // Drawn by us, and escaped where it was drawn.
        self.0.push_str(inner);
        self.markup("</svg></figure>\n");
    }

    /// The page as a text.
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
        html.text("<b>&\"'").text("</td><script>\u{1b}");
        let html = html.into_string();
        assert!(
            html.contains("&lt;b&gt;&amp;&quot;&#39;") && !html.contains("<b>"),
            "{html}"
        );
        assert!(html.contains("&lt;/td&gt;&lt;script&gt;\u{fffd}"), "{html}");
    }
}
