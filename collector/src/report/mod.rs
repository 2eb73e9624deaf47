//! A report for people, as one page. Graphs are laid out by `layout-rs`.

mod graph;
mod page;
mod timeline;

pub use page::{ReportInput, render};
