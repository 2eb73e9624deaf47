//! Pictures as SVG.

use std::error::Error;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::Text;
use plotters::style::{IntoFont as _, WHITE};

use super::palette::INK;
use crate::show::shortened;

pub(super) const SANS: &str = "sans-serif";
/// Sizes of text as the library counts them: 1.24 times the px of the SVG.
pub(super) const TEXT: i32 = 16;
pub(super) const SMALL: i32 = 15;

/// A picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {what}: {reason}")]
pub struct PictureError {
    what: String,
    reason: String,
}

/// Where a picture is drawn.
pub(super) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What may go wrong there.
pub(super) type Drawn = Result<(), Box<dyn Error>>;

/// An SVG picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    svg: String,
    width_px: u32,
    height_px: u32,
}

impl Picture {
    /// Draws on white. `what` is for the error.
    pub(super) fn draw(
        what: &str,
        (width_px, height_px): (u32, u32),
        draw: impl FnOnce(&Canvas<'_>) -> Drawn,
    ) -> Result<Self, PictureError> {
        let mut svg = String::new();
        let drawn = {
            let canvas =
                SVGBackend::with_string(&mut svg, (width_px, height_px)).into_drawing_area();
            canvas
                .fill(&WHITE)
                .map_err(Into::into)
                .and_then(|()| draw(&canvas))
                .and_then(|()| canvas.present().map_err(Into::into))
        };
        drawn.map_err(|error| PictureError {
            what: what.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            svg,
            width_px,
            height_px,
        })
    }

    /// As a file of its own.
    #[must_use]
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// What stands between the tags of the picture; for pages, which name no namespace.
    pub(crate) fn inner(&self) -> &str {
        let body = self.svg.split_once('>').map_or("", |(_, body)| body);
        body.trim_end().strip_suffix("</svg>").unwrap_or(body)
    }

    /// Its width and height.
    #[must_use]
    pub fn size_px(&self) -> (u32, u32) {
        (self.width_px, self.height_px)
    }
}

/// A text as it may stand in a picture or a page: without characters that XML has no place for.
pub(crate) fn visible(text: &str) -> String {
    let is_hidden = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_hidden, "\u{fffd}")
}

/// A text for one line of at most so many characters, shortened in the middle.
pub(super) fn label(text: &str, chars_max: usize) -> String {
    shortened(&visible(text).replace('\n', " "), chars_max)
}

/// Writes a text with its upper left corner there.
pub(super) fn write(canvas: &Canvas<'_>, text: &str, at: (i32, i32), size: i32) -> Drawn {
    canvas.draw(&Text::new(
        label(text, 400),
        at,
        (SANS, size).into_font().color(&INK),
    ))?;
    Ok(())
}
