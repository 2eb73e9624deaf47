//! Pictures as SVG. The stylesheet defines their look: shapes have classes, and no colours of their
//! own, so that one picture suits light and dark backgrounds, and print.

use std::fmt::Write as _;

use crate::show::shortened;

/// Stylesheet of the palette; a part of every page, and of every picture in a file of its own.
const PALETTE: &str = include_str!("../../assets/palette.css");

/// Error for a picture that cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {what}: {reason}")]
pub struct PictureError {
    /// Title of the picture.
    pub(super) what: String,
    pub(super) reason: String,
}

/// An SVG picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    inner: String,
    width_px: u32,
    height_px: u32,
}

impl Picture {
    /// Returns the picture as a file of its own.
    pub fn svg(&self) -> String {
        let Self {
            inner,
            width_px,
            height_px,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" width=\"{width_px}\" height=\"{height_px}\" \
             viewBox=\"0 0 {width_px} {height_px}\"><style>{PALETTE}</style><rect class=\"paper\" width=\"100%\" \
             height=\"100%\"/>{inner}</svg>\n"
        )
    }

    pub(crate) fn inner(&self) -> &str {
        &self.inner
    }

    /// Returns width and height, in px.
    pub fn size_px(&self) -> (u32, u32) {
        (self.width_px, self.height_px)
    }
}

/// A picture under construction. Classes come from this program's source; texts are escaped.
#[derive(Debug, Default)]
pub(super) struct Sketch(String);

/// Point of a text that is placed at its coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn class(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Middle => " mid",
            Self::End => " end",
        }
    }
}

/// Rounds a number of px to a tenth.
pub(crate) fn px(px: f64) -> f64 {
    let tenths = (px * 10.0).round() / 10.0;
    if tenths == 0.0 { 0.0 } else { tenths }
}

// Writing to a String cannot fail.
impl Sketch {
    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = write!(
            self.0,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            px(x),
            px(y),
            px(width.max(0.0)),
            px(height.max(0.0)),
        );
    }

    /// Draws a rectangle with a tooltip.
    pub(super) fn named_rect(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        name: &str,
    ) {
        let _ = write!(
            self.0,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
            px(x),
            px(y),
            px(width.max(0.0)),
            px(height.max(0.0)),
            escaped(name),
        );
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = write!(
            self.0,
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            px(x1),
            px(y1),
            px(x2),
            px(y2),
        );
    }

    pub(super) fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let _ = write!(self.0, "<polyline class=\"{class}\" points=\"");
        for (place, (x, y)) in points.into_iter().enumerate() {
            let between = if place > 0 { " " } else { "" };
            let _ = write!(self.0, "{between}{},{}", px(x), px(y));
        }
        self.0.push_str("\"/>");
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let _ = write!(
            self.0,
            "<text class=\"{class}{}\" x=\"{}\" y=\"{}\">{}</text>",
            anchor.class(),
            px(x),
            px(y),
            escaped(text),
        );
    }

    /// Writes a text that runs upwards, with its middle at a point.
    pub(super) fn upright(&mut self, (x, y): (f64, f64), text: &str) {
        let (x, y) = (px(x), px(y));
        let _ = write!(
            self.0,
            "<text class=\"label mid\" transform=\"translate({x} {y}) rotate(-90)\">{}</text>",
            escaped(text),
        );
    }

    /// Opens the box of a graph's node. The shapes of the box follow, up to
    /// [`close_node`](Self::close_node). If there is a path, the box is a link to it.
    pub(super) fn open_node(&mut self, number: usize, name: &str, path: Option<&str>) {
        let name = escaped(name);
        let _ = match path {
            Some(path) => write!(self.0, "<a class=\"node\" href=\"{}\"", escaped(path)),
            None => write!(self.0, "<g class=\"node\""),
        };
        let _ = write!(self.0, " data-node=\"{number}\" tabindex=\"0\"");
        // The accessible name of a link is its content: the title, and then the text.
        let _ = match path {
            Some(_) => write!(self.0, " role=\"link\""),
            None => write!(self.0, " role=\"img\" aria-label=\"{name}\""),
        };
        let _ = write!(self.0, "><title>{name} </title>");
    }

    pub(super) fn close_node(&mut self, path: Option<&str>) {
        self.0
            .push_str(if path.is_some() { "</a>" } else { "</g>" });
    }

    /// Draws an arrow of a graph: its route (a point, and for each curve two control points and its
    /// end), its tip, and a tooltip.
    pub(super) fn edge(
        &mut self,
        class: &str,
        (from, to): (usize, usize),
        route: &[(f64, f64)],
        tip: [(f64, f64); 3],
        note: &str,
    ) {
        let _ = write!(
            self.0,
            "<path class=\"{class}\" data-from=\"{from}\" data-to=\"{to}\" d=\""
        );
        let mut draw = |command: char, points: &[(f64, f64)]| {
            self.0.push(command);
            for (place, (x, y)) in points.iter().enumerate() {
                let between = if place > 0 { " " } else { "" };
                let _ = write!(self.0, "{between}{} {}", px(*x), px(*y));
            }
        };
        let (start, curves) = route.split_at(route.len().min(1));
        draw('M', start);
        let mut at = start.first();
        for curve in curves.chunks(3) {
            let is_straight = curve.iter().all(|(x, _)| at.is_some_and(|at| at.0 == *x))
                || curve.iter().all(|(_, y)| at.is_some_and(|at| at.1 == *y));
            at = curve.last();
            if is_straight {
                draw('L', &curve[curve.len() - 1..]);
            } else {
                draw('C', curve);
            }
        }
        let [side, end, other] = tip;
        draw('M', &[side]);
        draw('L', &[end, other]);
        self.0.push_str("\">");
        if !note.is_empty() {
            let _ = write!(self.0, "<title>{}</title>", escaped(note));
        }
        self.0.push_str("</path>");
    }

    pub(super) fn into_picture(self, width_px: f64, height_px: f64) -> Picture {
        Picture {
            inner: self.0,
            width_px: width_px.ceil().max(1.0) as u32,
            height_px: height_px.ceil().max(1.0) as u32,
        }
    }
}

/// Replaces control characters other than line feeds, and characters that XML does not allow, by
/// U+FFFD.
fn visible(text: &str) -> String {
    let is_hidden = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_hidden, "\u{fffd}")
}

/// Escapes a text for a picture or a page, between tags or between the quotes of an attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a text for one line of at most `chars_max` characters, shortened in the middle.
pub(super) fn label(text: &str, chars_max: usize) -> String {
    shortened(&visible(text).replace('\n', " "), chars_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_markup() {
        let mut sketch = Sketch::default();
        sketch.text("label", (1.04, -0.01), Anchor::End, "</text><script>\u{1b}");
        sketch.open_node(7, "\"><script>", Some("/map?focus=\"><script>"));
        sketch.close_node(Some(""));
        sketch.edge("edge", (0, 1), &[], [(0.0, 0.0); 3], "</title><script>");
        let svg = sketch.into_picture(10.0, 10.0).svg();
        assert!(!svg.contains("<script>"), "{svg}");
        assert!(
            svg.contains("x=\"1\" y=\"0\">&lt;/text&gt;&lt;script&gt;\u{fffd}"),
            "{svg}"
        );
        assert!(
            svg.contains(
                "<a class=\"node\" href=\"/map?focus=&quot;&gt;&lt;script&gt;\" data-node=\"7\" tabindex=\"0\" role=\"link\"><title>\
                 &quot;&gt;"
            ),
            "{svg}"
        );
    }
}
