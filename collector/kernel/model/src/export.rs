//! Exports timelines as text tables, as JSON, and as Perfetto traces.

mod json;
mod perfetto;
mod table;

pub use json::{call_json, json, request_json};
pub use perfetto::{NamedSegment, perfetto};
pub use table::{calls_table, operations_table, request_table, timeline_table};
