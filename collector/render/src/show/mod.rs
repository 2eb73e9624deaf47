//! Presentation of results: a [`Doc`] is rendered to a terminal, to a page and to tables of Arrow.
//!
//! A result describes itself by headings, sentences, links, typed tables, pictures and passages.
//! The renderers, for terminals here and for pages in `page`, decide the width of columns, the
//! format of numbers, the treatment of control characters and the markup.

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
pub use doc::{Doc, Origin, Part, Passage, Stretch};
pub use figure::{
    Axis, Bar, Chart, Drawing, Figure, Graph, GraphEdge, GraphNode, Ink, Interval, Line, Stack,
    StackPart, Timeline, TimelineRow,
};
pub use figure_text::axis_text;
pub use names::{Names, SegmentName};
pub use number::real;
pub use scrub::{escaped_json, scrubbed, scrubbed_lines, shortened};
pub(crate) use table::indentation;
pub use table::{Cell, Column, Kind, Row, Table, TableSpec};
pub use text::{TableLines, TextView, short_request};
pub use wrap::sentences;
