//! Timelines for people and programs: text, JSON, Perfetto.

mod json;
mod perfetto;
mod table;

pub use json::json;
pub use perfetto::perfetto;
pub use table::{calls_table, request_table, timeline_table};
