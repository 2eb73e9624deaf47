//! Fuzz targets: each is a function of bytes, for libFuzzer and for a test that mutates kept cases.
//!
//! A target panics if something is wrong: a panic of the code under test, two ways to read an input
//! that disagree, or a number of rows that differs from the report. `.ci/fuzz TARGET SECONDS` runs
//! one by libFuzzer; `cargo test -p stroboscope-fuzz` runs all for a moment, from the samples of
//! `seeds`, and over all cases ever found (`collector/fuzz/cases/TARGET/`).
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "to panic is what a target is for"
)]

mod import;
mod otlp;
mod provenance;
mod redaction;
mod seeds;
mod small;
mod wal;

pub use seeds::seeds;

/// Name of a target, and the target.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 12] = [
    ("batch", small::batch),
    ("otlp_protobuf", otlp::protobuf),
    ("otlp_json", otlp::json),
    ("otlp_logs_protobuf", otlp::logs_protobuf),
    ("otlp_logs_json", otlp::logs_json),
    ("redaction", redaction::otlp),
    ("redaction_batch", redaction::batch),
    ("import", import::import),
    ("mapping", import::mapping),
    ("wal", wal::wal),
    ("burst_config", small::burst_config),
    ("provenance", provenance::provenance),
];
