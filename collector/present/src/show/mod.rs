//! What a result says, once: a [`Doc`] is rendered to a terminal, to a page and to tables of Arrow.
//!
//! A result describes itself by headings, sentences, typed tables and pictures; how wide a column is, how a duration is
//! written, what a control character becomes and what is markup is decided here, for all of them.

mod arrow;
mod doc;
mod figure;
mod figure_text;
mod layout;
mod names;
mod number;
mod scrub;
mod table;
mod text;
mod wrap;

pub use arrow::{batch, schema, write_parquet};
pub use doc::{Doc, Part};
pub use figure::{
    Axis, Bar, Chart, Drawing, Figure, Graph, GraphEdge, GraphNode, Ink, Interval, LegendPlace,
    Line, Stack, StackPart, Timeline, TimelineRow,
};
pub use figure_text::axis_text;
pub use names::{Names, SegmentName};
pub use number::real;
pub use scrub::{escaped_json, scrubbed, scrubbed_lines, shortened};
pub use table::{Cell, Column, Kind, Row, Table, TableSpec};
pub use text::{TableLines, TextView, short_request};
pub use wrap::sentences;
