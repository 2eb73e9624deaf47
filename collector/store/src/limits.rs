//! Limits of the collector, all in one place. Anything over a limit is rejected by name and
//! counted; nothing is truncated silently.

use stroboscope_otlp::SpanLimits;

/// Limits on the content of a batch. `collect` uses [`Limits::default`]; tests use smaller ones.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum size of a gRPC message, after decompression, in bytes.
    pub message_bytes_max: usize,
    /// Maximum size of an OTLP request, after decompression, in bytes, as its specification
    /// recommends.
    pub otlp_request_bytes_max: usize,
    /// Maximum length of a string, in bytes.
    pub string_bytes_max: usize,
    /// Maximum attributes of one record.
    pub attributes_per_record_max: usize,
    /// Maximum records (spans and events together) in one batch.
    pub records_per_batch_max: usize,
    /// Maximum bytes of the attributes of one batch, with their interned strings written out.
    /// Without this limit, a batch of 16 MiB could reference one long string a million times.
    pub attribute_bytes_per_batch_max: usize,
    /// Maximum windows, losses and clock steps in one batch, each.
    pub notes_per_batch_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 16 << 20,
            otlp_request_bytes_max: 64 << 20,
            string_bytes_max: 64 << 10,
            attributes_per_record_max: 256,
            records_per_batch_max: 1_000_000,
            attribute_bytes_per_batch_max: 64 << 20,
            notes_per_batch_max: 65_536,
        }
    }
}

impl Limits {
    /// Returns the limits on a foreign span.
    #[must_use]
    pub fn of_span(&self) -> SpanLimits {
        SpanLimits {
            string_bytes_max: self.string_bytes_max,
            attributes_max: self.attributes_per_record_max,
        }
    }
}

/// Size in bytes above which the open WAL segment is closed and converted to Parquet.
pub const WAL_SEGMENT_BYTES: u64 = 32 << 20;

/// Size in bytes of the WAL waiting for conversion to Parquet, above which appends are rejected
/// until the store has caught up.
pub const WAL_BACKLOG_BYTES_MAX: u64 = 1 << 30;

/// Maximum bytes that one group commit writes at once.
pub const WAL_GROUP_BYTES_MAX: usize = 16 << 20;

/// Maximum bytes of received but not yet durable batches in memory; beyond it, senders wait.
pub const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

/// Maximum batches of one ship stream that wait for their acknowledgement.
pub const IN_FLIGHT_PER_STREAM_MAX: usize = 64;

/// Maximum process incarnations in the ledger; the longest idle are forgotten first.
pub const INCARNATIONS_MAX: usize = 65_536;

/// Maximum separate runs of stored sequence numbers kept per incarnation: one more than its gaps.
pub const RANGES_PER_INCARNATION_MAX: usize = 1_024;

/// Idle time after which an incarnation is forgotten, in ns.
pub const INCARNATION_IDLE_NS_MAX: i64 = 7 * 24 * 3_600 * 1_000_000_000;

/// Maximum records of one trace passed to the analysis; the rest is counted.
pub const RECORDS_PER_TRACE_MAX: usize = 1_000_000;

/// Maximum length of a line of a JSON-lines import, in bytes.
pub const IMPORT_LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum size of one record in an imported JSON document or protobuf file, such as a trace of
/// Jaeger's JSON, in bytes.
pub const IMPORT_RECORD_BYTES_MAX: usize = 64 << 20;

/// Maximum invalid lines that an import shows; the rest is counted.
pub const IMPORT_BAD_LINES_SHOWN: usize = 20;

/// Rows that an import sorts in memory before it writes them as one file.
pub const IMPORT_RUN_ROWS: usize = 500_000;

/// Bytes of attributes and names that an import holds before it writes a file, however few its
/// rows.
pub const IMPORT_RUN_BYTES: usize = 256 << 20;
