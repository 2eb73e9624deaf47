//! The frame of every page of a site: header, navigation, headline, footer.

use std::sync::LazyLock;

use super::assets::{Asset, STYLE, inline_source};
use super::html::Html;

/// Returns the Content-Security-Policy of a site's pages. Pages load resources only from the site,
/// except for images in `data:` URLs. Only the stylesheet is inline.
pub fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        format!(
            "default-src 'none'; script-src 'self'; style-src {}; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
             frame-ancestors 'none'; base-uri 'none'",
            inline_source(STYLE)
        )
    });
    &POLICY
}

/// Link of the header to a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NavLink {
    /// Path of the page.
    pub path: String,
    /// Name of the page.
    pub name: String,
    /// Heading of the group of links to which this one belongs; empty for a group without a
    /// heading. Links of one group are adjacent.
    pub group: &'static str,
}

/// Parts of a page that are known before its content.
#[derive(Clone, Debug)]
pub struct PageHead<'a> {
    /// Headline, and beginning of the window's title.
    pub title: &'a str,
    /// Description of the page in one line; not shown if empty.
    pub about: &'a str,
    /// Name of the data that the pages show.
    pub of: &'a str,
    /// Links of the header.
    pub navigation: &'a [NavLink],
    /// Path of the link that the header marks as the current page.
    pub current: &'a str,
    /// JavaScript modules to load in addition to those of all pages.
    pub scripts: &'a [Asset],
    /// Content above the headline.
    pub above: &'a Html,
}

impl PageHead<'_> {
    /// Returns the page up to its content.
    pub fn begin(&self) -> Html {
        let mut html = Html::new();
        html.markup(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"/><meta name=\"color-scheme\" content=\"light dark\"/><title>",
        )
        .text(self.title)
        .markup(" · Stroboscope</title><link rel=\"icon\" href=\"data:,\"/><style>",
        )
        .markup(STYLE)
        .markup("</style>");
        for script in [Asset::Tables, Asset::Range].iter().chain(self.scripts) {
            html.markup("<script type=\"module\" src=\"")
                .markup(script.path())
                .markup("\"></script>");
        }
        html.markup("</head>\n<body class=\"site\"><a class=\"skip\" href=\"#content\">To the content</a>\n<header class=\"top\">")
            .markup("<a class=\"brand\" href=\"/\">Stroboscope</a><span class=\"of\">")
            .text(self.of)
            .markup("</span>");
        self.navigate(&mut html);
        html.markup("</header>\n<main id=\"content\">")
            .html(self.above)
            .markup("<h1>")
            .text(self.title)
            .markup("</h1>\n");
        if !self.about.is_empty() {
            html.markup("<p class=\"about\">")
                .text(self.about)
                .markup("</p>\n");
        }
        html
    }

    fn navigate(&self, html: &mut Html) {
        html.markup("<nav aria-label=\"Pages\">");
        for group in self.navigation.chunk_by(|a, b| a.group == b.group) {
            html.markup("<ul>");
            let name = group.first().map_or("", |link| link.group);
            if !name.is_empty() {
                html.markup("<li class=\"group\">")
                    .text(name)
                    .markup("</li>");
            }
            for link in group {
                html.markup("<li><a href=\"").text(&link.path).markup("\"");
                if link.path == self.current {
                    html.markup(" aria-current=\"page\"");
                }
                html.markup(">").text(&link.name).markup("</a></li>");
            }
            html.markup("</ul>");
        }
        html.markup("</nav>");
    }

    /// Returns the part of the page after its content.
    pub fn end() -> Html {
        let mut html = Html::new();
        html.markup("</main>\n<footer>Stroboscope ")
            .markup(env!("CARGO_PKG_VERSION"))
            .markup(" · times are UTC</footer></body></html>\n");
        html
    }
}
