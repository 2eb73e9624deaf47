//! Builds HTML in which every text is escaped: only static strings of this program are markup.
//! The result is also well-formed XML.

use std::fmt::Display;

use crate::picture::{Picture, escaped};

/// Page, part of a page, or XML file under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Creates empty markup.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends markup of this program.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends an untrusted text, between tags or between the quotes of an attribute.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(&escaped(text));
        self
    }

    /// Appends a value that implements `Display`, such as a number, and escapes it.
    pub fn shown(&mut self, shown: impl Display) -> &mut Self {
        self.text(&shown.to_string())
    }

    /// Appends a number of px, rounded to a tenth.
    pub fn px(&mut self, px: f64) -> &mut Self {
        self.shown(crate::picture::px(px))
    }

    /// Appends a parameter that a form sends along; nothing for an empty value.
    pub fn hidden(&mut self, name: &str, value: &str) -> &mut Self {
        if value.is_empty() {
            return self;
        }
        self.markup("<input type=\"hidden\" name=\"")
            .text(name)
            .markup("\" value=\"")
            .text(value)
            .markup("\"/>")
    }

    /// Appends a link.
    pub fn link(&mut self, address: &str, text: &str) -> &mut Self {
        self.markup("<a href=\"")
            .text(address)
            .markup("\">")
            .text(text)
            .markup("</a>")
    }

    /// Appends HTML that is already escaped.
    pub fn html(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// Appends the content of a picture, which was escaped when it was drawn.
    pub(super) fn drawn(&mut self, picture: &Picture) -> &mut Self {
        self.0.push_str(picture.inner());
        self
    }

    /// Reports whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the page as a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts the page to a text.
    pub fn into_string(self) -> String {
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

    #[test]
    fn numbers_are_short() {
        let mut html = Html::default();
        html.px(1.0).markup(" ").px(-0.04).markup(" ").px(2.25);
        assert_eq!(html.into_string(), "1 0 2.3");
    }
}
