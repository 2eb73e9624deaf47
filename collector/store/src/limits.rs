//! Limits of the collector. No limit drops or truncates data silently: rejected and omitted data
//! are counted.

use stroboscope_otlp::SpanLimits;

/// Limits on received data. `collect` uses [`Limits::default`], with smaller messages and requests
/// if it has little memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum size of a batch as a gRPC message, after decompression, in bytes.
    pub message_bytes_max: usize,
    /// Maximum size of an OTLP request, after decompression, in bytes, as its specification
    /// recommends.
    pub otlp_request_bytes_max: usize,
    /// Maximum length of a string, in bytes.
    pub string_bytes_max: usize,
    /// Maximum number of attributes of one record.
    pub attributes_per_record_max: usize,
    /// Maximum number of records (spans and events together) in one batch.
    pub records_per_batch_max: usize,
    /// Maximum size of the attributes of one batch, with interned strings written out, in bytes.
    /// Without this limit, a batch of 16 MiB could reference one long string a million times.
    pub attribute_bytes_per_batch_max: usize,
    /// Maximum number of windows in one batch. The same limit applies to its losses, to its clock
    /// steps, to its loads and to its provenance logs.
    pub notes_per_batch_max: usize,
    /// Maximum length of a request's provenance log, in bytes.
    pub provenance_bytes_max: usize,
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
            provenance_bytes_max: 1 << 20,
        }
    }
}

impl Limits {
    /// Returns the limits on a span or log record of another system, such as OpenTelemetry.
    #[must_use]
    pub fn of_span(&self) -> SpanLimits {
        SpanLimits {
            string_bytes_max: self.string_bytes_max,
            attributes_max: self.attributes_per_record_max,
        }
    }
}

/// Default size in bytes above which the open log segment is closed, to be converted to Parquet or
/// forwarded by an agent. It is smaller with little memory.
pub const WAL_SEGMENT_BYTES: u64 = 32 << 20;

/// Default maximum size of the log segments that wait for conversion to Parquet or for forwarding,
/// in bytes. Above it, appends are rejected until enough segments are converted or forwarded.
pub const WAL_BACKLOG_BYTES_MAX: u64 = 1 << 30;

/// Size of a group commit, in bytes, at which it takes no further batches or OTLP requests.
pub const WAL_GROUP_BYTES_MAX: usize = 16 << 20;

/// Default maximum size of the batches and OTLP requests in memory that are received but not yet
/// durable, in bytes. `collect` derives it from its memory limit. Above it, batches and forwarded
/// requests wait, and other OTLP requests are rejected temporarily.
pub const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

/// Maximum number of unacknowledged batches and OTLP requests on one gRPC stream, of a process or
/// of an agent.
pub const IN_FLIGHT_PER_STREAM_MAX: usize = 64;

/// Minimum rate, in bytes per second, at which an agent expects its network to transfer data. The
/// deadline of a transfer allows for its size at this rate.
pub const FORWARD_RATE_MIN: u64 = 64 << 10;

/// Number of process incarnations in the ledger from which on a new one makes the ledger forget
/// those that have been idle longest. A ledger rebuilt from the tables may have more.
pub const INCARNATIONS_MAX: usize = 65_536;

/// Maximum number of separate runs of stored sequence numbers per incarnation.
pub const RANGES_PER_INCARNATION_MAX: usize = 1_024;

/// Idle time after which an incarnation is forgotten, in ns.
pub const INCARNATION_IDLE_NS_MAX: i64 = 7 * 24 * 3_600 * 1_000_000_000;

/// Maximum number of records of one trace that are passed to the analysis. Further records are only
/// counted.
pub const RECORDS_PER_TRACE_MAX: usize = 1_000_000;

/// Maximum length of a line of an imported event log, text of `perf script` or `strace`, or file of
/// unknown form, or of a line or a CSV record that a field mapping reads, in bytes.
pub const IMPORT_LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum size of any other imported record, such as a trace in Jaeger's JSON, or an element of a
/// JSON list that a field mapping reads, in bytes.
pub const IMPORT_RECORD_BYTES_MAX: usize = 64 << 20;

/// Maximum number of invalid lines of a file that an import shows. Further ones are only counted.
pub const IMPORT_BAD_LINES_SHOWN: usize = 20;

/// Number of rows that an import sorts in memory before it writes them to files.
pub const IMPORT_RUN_ROWS: usize = 500_000;

/// Total size of attributes and names in memory, in bytes, at which an import writes its rows to
/// files, even if it has fewer rows than [`IMPORT_RUN_ROWS`].
pub const IMPORT_RUN_BYTES: usize = 256 << 20;
