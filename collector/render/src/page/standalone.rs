//! Pages as self-contained files.

use std::sync::LazyLock;

use super::assets::{Asset, STYLE, inline_source};
use super::content::{contents, headings, write_parts};
use super::html::Html;
use super::table::Reader;
use crate::show::Doc;

/// One of several documents on a page.
#[derive(Debug)]
pub struct Section {
    /// Id that links use as the anchor of the section.
    pub id: &'static str,
    /// Document in the section.
    pub doc: Doc,
}

/// The only script of pages in files. It makes tables and graphs interactive; without it, the page
/// still shows everything. It is wrapped in CDATA for readers that parse the page as XML.
static SCRIPT: LazyLock<String> =
    LazyLock::new(|| format!("//<![CDATA[\n{}\n//]]>", Asset::Tables.text()));

/// Content-Security-Policy of a page in a file: the page loads nothing, and runs only [`SCRIPT`].
static FILE_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src {}; script-src {}",
        inline_source(STYLE),
        inline_source(&SCRIPT)
    )
});

/// Returns a self-contained page with the document. It shows short names of segments, with the full
/// names as tooltips.
pub fn to_page(doc: &Doc, title: &str) -> String {
    let mut html = begin(title);
    html.markup("<main>");
    html.html(&contents(doc));
    write_parts(&mut html, doc, Reader::OfFile, &mut 0);
    end(html)
}

/// Returns a self-contained page of several documents, under one headline and a line that describes
/// the page.
pub fn to_page_of_sections(
    title: &str,
    headline: &str,
    about: &str,
    sections: &[Section],
) -> String {
    let mut html = begin(title);
    html.markup("<main><h1>")
        .text(headline)
        .markup("</h1><p class=\"meta\">")
        .text(about)
        .markup("</p>\n");
    let there: Vec<&Section> = sections
        .iter()
        .filter(|section| !section.doc.parts().is_empty())
        .collect();
    html.markup("<nav class=\"contents\" aria-label=\"On this page\"><ul>");
    for section in &there {
        if let Some(heading) = headings(&section.doc).next() {
            html.markup("<li>")
                .link(&format!("#{}", section.id), heading)
                .markup("</li>");
        }
    }
    html.markup("</ul></nav>\n");
    let mut count = 0;
    for section in there {
        html.markup("<section id=\"")
            .markup(section.id)
            .markup("\">");
        write_parts(&mut html, &section.doc, Reader::OfFile, &mut count);
        html.markup("</section>\n");
    }
    end(html)
}

fn begin(title: &str) -> Html {
    let mut html = Html::new();
    html.markup(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/><meta http-equiv=\"Content-Security-Policy\" content=\"",
    )
    .text(&FILE_POLICY)
    .markup("\"/><title>")
    .text(&format!("Stroboscope: {title}"))
    .markup("</title><style>")
    .markup(STYLE)
    .markup("</style></head><body class=\"file\">\n");
    html
}

fn end(mut html: Html) -> String {
    html.markup("</main>\n<script type=\"module\">")
        .markup(SCRIPT.as_str())
        .markup("</script></body></html>\n");
    html.into_string()
}
