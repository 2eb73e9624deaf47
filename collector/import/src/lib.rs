//! Imports recordings of other systems: event logs in ÜberTrace's minimal schema (JSON lines; The
//! Mystery Machine, §3), spans of OpenTelemetry, Jaeger, Tempo and Zipkin, intervals of Chrome's
//! tracing and KUtrace, kernel events of perf and strace. [`Format`] lists the formats. The module
//! `format` documents how they are recognised. A [`FieldMapping`] reads logs of other schemas. The
//! module `time` documents how times are recognised.
//!
//! An import reports defects by line. It counts, by name, valid input that has no place in the
//! store ([`NotTaken`]).
//!
//! The source is decompressed (gzip, zstd) and streamed record by record: a line, an element of a
//! document's list, a `ResourceSpans`. An unusable record is reported with its line (in protobuf,
//! its number). Reading then continues, unless compressed data is damaged or bytes are not a
//! protobuf field. At a time, memory contains one record and those in it, of at most
//! [`IMPORT_RECORD_BYTES_MAX`](stroboscope_store::limits::IMPORT_RECORD_BYTES_MAX) (lines of event
//! logs, mappings and kernel events:
//! [`IMPORT_LINE_BYTES_MAX`](stroboscope_store::limits::IMPORT_LINE_BYTES_MAX)),
//! one run of rows, and spans whose ends or relations are still to be found (`Zipkin::HELD_MAX`,
//! `Tracks::HELD_MAX`, `OPEN_MAX`). Kernel events are an exception: the whole recording is in
//! memory, and becomes one object. Other rows are collected up to a bound, sorted, and written as
//! one object per table, run and hour, named `import-HASH-K` after the content, the options and the
//! run. The same content, imported with the same options, therefore always produces the same
//! objects. A receipt in `imports/` records that all of them are written, which makes a repeated
//! import a no-op. An import without spans and events leaves no receipt.
//!
//! Modules from the outside in: `file` (one source) with `receipt` and `outcome`, `read_as` and
//! `format` (recognition); `documents` and `mapped` (records) over `json_records` and `lines`; a
//! module for each form; `sink` and `run` (rows, written in runs).
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod bad_line;
mod chrome;
mod documents;
mod file;
mod format;
mod jaeger;
mod json_error;
mod json_records;
mod json_shape;
mod kernel_text;
mod kutrace;
mod layout;
mod line;
mod lines;
mod mapped;
mod mapping;
mod not_taken;
mod outcome;
mod plain_line;
mod protobuf;
mod read_as;
mod receipt;
mod run;
mod sink;
mod source;
mod take;
mod telemetry;
#[cfg(test)]
mod tests;
mod time;
mod tracks;
mod unknown;
mod zipkin;

pub use bad_line::BadLine;
pub use file::Importer;
pub use format::Format;
pub use line::{LogEvent, LogLine, parse};
pub use lines::Lines;
pub use mapping::{FieldMapping, MappingError};
pub use not_taken::NotTaken;
pub use outcome::{ImportError, ImportOutcome, ImportSummary};
pub use plain_line::parse_plain;
pub use receipt::Receipt;
pub use stroboscope_otlp::{trace_id, trace_label};
pub use time::TimeUnit;
