//! How much of everything the collector takes, in one place. Whatever is over a limit is refused by name and
//! counted; nothing is cut silently.

use stroboscope_foreign::SpanLimits;

/// Limits on what a batch may hold. [`Limits::default`] is what `collect` uses; tests use smaller ones.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest gRPC message, after decompression, in bytes.
    pub message_bytes_max: usize,
    /// Largest request of OTLP, after decompression, in bytes: what its specification recommends.
    pub otlp_request_bytes_max: usize,
    /// Longest string, in bytes.
    pub string_bytes_max: usize,
    /// Most attributes of one record.
    pub attributes_per_record_max: usize,
    /// Most records (spans and events together) in one batch.
    pub records_per_batch_max: usize,
    /// Most bytes the attributes of one batch may take once their interned strings are written out. Without it a
    /// batch of 16 MiB could name one long string a million times over.
    pub attribute_bytes_per_batch_max: usize,
    /// Most windows, losses or clock steps in one batch, each.
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
    /// What a foreign span may say.
    #[must_use]
    pub fn of_span(&self) -> SpanLimits {
        SpanLimits {
            string_bytes_max: self.string_bytes_max,
            attributes_max: self.attributes_per_record_max,
        }
    }
}

/// The open WAL segment is closed and turned into Parquet when it is larger than this.
pub const WAL_SEGMENT_BYTES: u64 = 32 << 20;

/// When this much WAL waits for its Parquet, appends are refused until the store has caught up.
pub const WAL_BACKLOG_BYTES_MAX: u64 = 1 << 30;

/// Most bytes one group commit writes at once.
pub const WAL_GROUP_BYTES_MAX: usize = 16 << 20;

/// Most bytes of received but not yet durable batches in memory; senders wait beyond it.
pub const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

/// Most batches of one ship stream that may wait for their acknowledgement.
pub const IN_FLIGHT_PER_STREAM_MAX: usize = 64;

/// Most process incarnations the ledger knows at a time; the longest idle is forgotten first.
pub const INCARNATIONS_MAX: usize = 65_536;

/// Most separate runs of stored sequence numbers kept per incarnation, that is, one more than holes.
pub const RANGES_PER_INCARNATION_MAX: usize = 1_024;

/// An incarnation that has sent nothing for so long is forgotten.
pub const INCARNATION_IDLE_NS_MAX: i64 = 7 * 24 * 3_600 * 1_000_000_000;

/// Most records of one trace handed to the analysis; the rest is counted.
pub const RECORDS_PER_TRACE_MAX: usize = 1_000_000;

/// Longest line of a JSON-lines import, in bytes.
pub const IMPORT_LINE_BYTES_MAX: usize = 1 << 20;

/// Largest record of a JSON document or protobuf file that is imported, such as one trace of Jaeger's JSON, in bytes.
pub const IMPORT_RECORD_BYTES_MAX: usize = 64 << 20;

/// Most lines that an import shows as bad; the rest is counted.
pub const IMPORT_BAD_LINES_SHOWN: usize = 20;

/// Rows an import sorts in memory before it writes them as one file.
pub const IMPORT_RUN_ROWS: usize = 500_000;

/// Bytes of attributes and names an import holds before it writes a file, however few its rows.
pub const IMPORT_RUN_BYTES: usize = 256 << 20;
