//! Converts spans of other systems to this project's types: OTLP's messages, and helpers for
//! readers of all forms.
//!
//! `span` defines a foreign span; `otlp` reads the spans of OpenTelemetry, in protobuf and in JSON.
//! The other modules are helpers: `typed` (JSON into types, with reports of unknown keys), `wire`
//! (protobuf's fields), `id_text`.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod bad_span;
mod decimal;
mod id_text;
mod json_error;
mod lines_before;
pub mod otlp;
mod span;
mod trace_name;
pub mod typed;
pub mod wire;

pub use bad_span::BadSpan;
pub use decimal::{decimal, whole_number};
pub use id_text::{base64_of, bytes_of, hex, hex_bytes, standard_base64, standard_bytes};
pub use json_error::without_line_number;
pub use lines_before::LinesBefore;
pub use span::{
    Attributes, ForeignEvent, ForeignSpan, SpanLimits, TakeSpans, check_count, check_text, hashed,
    own_span_id, span_number,
};
pub use trace_name::{trace_id, trace_label};
