//! A report for people, as one page that needs nothing else: no network, no script, no font; and its pictures alone.
//!
//! Charts are drawn by `plotters`, and graphs are laid out by `layout-rs`. Colours are Okabe and Ito's, which people
//! with any kind of colour vision tell apart; lines differ in their dashes as well.

mod chart;
mod doc_page;
mod graph;
mod html;
mod page;
mod palette;
mod picture;
mod timeline;

pub use chart::{changes, convergence};
pub use doc_page::to_page;
pub use page::{ReportInput, render};
pub use picture::{Picture, PictureError};
