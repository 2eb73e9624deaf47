//! Pictures, on pages or as files of their own.
//!
//! This module draws charts, timelines and graphs as SVG, and lays out graphs in layers. The
//! stylesheet defines the colours, most of them Okabe and Ito's: most colour-blind people can
//! distinguish them. Lines also differ in their dashes.

mod axis;
mod chart;
mod graph;
mod layered;
mod palette;
mod svg;
mod timeline;

pub use svg::{Picture, PictureError};
pub(crate) use svg::{escaped, px};

use crate::show::{Drawing, Figure};

/// Draws a picture.
///
/// # Errors
/// Fails if the picture would be too large; the error names it.
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

/// Maximum width and height of a picture; a larger one is of no use.
const SIDE_PX_MAX: u32 = 100_000;
