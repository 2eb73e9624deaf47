//! Imports event logs: JSON lines in ÜberTrace's minimal schema (The Mystery Machine, §3),
//! `{"trace", "host", "ts_ns", "event", "task", "attrs"}`.
//!
//! The source is streamed; rows are collected up to a bound, sorted, and written as one object per run and hour, named
//! `import-HASH-K` after the content. The same content therefore always becomes the same objects, and a receipt in
//! `imports/` says when all of them are there: importing it again then does nothing.

mod bad_line;
mod file;
mod line;
mod lines;
mod receipt;
mod trace_name;

pub use bad_line::BadLine;
pub use file::{ImportError, Imported, Importer, Summary};
pub use line::{LogLine, parse};
pub use lines::Lines;
pub use receipt::Receipt;
pub use trace_name::{trace_id, trace_label};
