//! Pictures, on pages or alone.
//!
//! Charts, timelines and graphs are drawn by hand, as SVG; graphs are laid out in layers. Colours are Okabe and Ito's,
//! which people with any kind of colour vision tell apart, and stand in the stylesheet; lines differ in their dashes as well.

mod axis;
mod chart;
mod graph;
mod layered;
mod palette;
mod svg;
mod timeline;

pub(crate) use svg::visible;
pub use svg::{Picture, PictureError};

use crate::show::{Drawing, Figure};

/// Draws a picture.
///
/// # Errors
/// When there is nothing to draw it of; the error says which one it is.
pub fn draw(figure: &Figure) -> Result<Picture, PictureError> {
    let picture = match &figure.drawing {
        Drawing::Chart(chart) => chart::draw(chart),
        Drawing::Timeline(timeline) => timeline::draw(timeline),
        Drawing::Graph(graph) => graph::draw(graph),
    };
    let (width_px, height_px) = picture.size_px();
    if width_px.max(height_px) > SIDE_PX_MAX {
        return Err(PictureError {
            what: figure.title.clone(),
            reason: format!("it would be {width_px} by {height_px} px"),
        });
    }
    Ok(picture)
}

/// Larger ones nobody looks at.
const SIDE_PX_MAX: u32 = 100_000;
