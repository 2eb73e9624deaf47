//! Pages that need nothing else, and pictures on them or alone.
//!
//! Charts are drawn by `plotters`. Colours are Okabe and Ito's, which people with any kind of colour vision tell apart; lines
//! differ in their dashes as well.

pub mod chart;
mod doc_page;
mod html;
pub mod palette;
mod svg;

pub use doc_page::{to_page, write_parts};
pub use html::{HEAD, Html, STYLE};
pub use svg::{Canvas, Drawn, Picture, PictureError, label};
