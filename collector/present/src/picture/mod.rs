//! Pictures, on pages or alone.
//!
//! Charts and timelines are drawn by `plotters`, as graphs are, which are laid out by `layout-rs`. Colours are Okabe and Ito's, which people with any kind of colour vision tell apart; lines
//! differ in their dashes as well.

mod chart;
mod graph;
mod palette;
mod svg;
mod timeline;

pub(crate) use svg::visible;
pub use svg::{Picture, PictureError};

use crate::show::{Drawing, Figure};

/// Draws a picture.
///
/// # Errors
/// When it cannot be drawn; the error says which one it is.
pub fn draw(figure: &Figure) -> Result<Picture, PictureError> {
    match &figure.drawing {
        Drawing::Chart(chart) => chart::draw(&figure.title, chart),
        Drawing::Timeline(timeline) => timeline::draw(&figure.title, timeline),
        Drawing::Graph(graph) => graph::draw(&figure.title, graph),
    }
}
