//! Results and errors of an import.

use std::io;
use std::path::PathBuf;

use stroboscope_store::tables::StoreError;

use super::not_taken::NotTaken;
use super::receipt::Receipt;
use super::time::TimeUnit;

/// Advice for a file of no known form.
const KNOWN_FORMS: &str = "Known formats are event logs ({\"trace\", \"host\", \"ts_ns\", \"event\", \"task\"} a \
     line), OTLP, Tempo, Jaeger, Zipkin, Chrome trace events and KUtrace in JSON, OTLP's protobuf, perf script and \
     strace; for any other JSON, CSV or log, map its fields with --map (see import --help)";

/// Reason for the failure of an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source cannot be read.
    #[error("cannot read {source_name}: {source}")]
    Source {
        source_name: String,
        source: io::Error,
    },
    /// A file in the data directory cannot be written.
    #[error("cannot write to {path}: {source}")]
    Data { path: PathBuf, source: io::Error },
    /// No part of the source has a known form.
    #[error("{source_name} holds {holds}: unknown format. {KNOWN_FORMS}")]
    UnknownForm { source_name: String, holds: String },
    /// A unit was given for times whose unit the format fixes.
    #[error("{source_name} is {what}, which fixes the unit of its times; leave --time-unit out")]
    FixedUnit { source_name: String, what: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Counts of what an import stored and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Number of spans stored.
    pub spans: u64,
    /// Number of events stored, including those inside spans.
    pub events: u64,
    /// Number of spans left out because they equal, in all fields, another span of the same run of
    /// rows. They do not count in `spans`.
    pub duplicates: u64,
    /// Number of lines, records or spans left out because of a defect; a damaged end counts as one.
    pub bad_lines: u64,
    /// Number of records that the mapping skips.
    pub ignored_lines: u64,
    /// Latest time of an event outside of spans, except kernel events, in ns since the Unix epoch;
    /// 0 if there is none.
    pub last_ns: i64,
    /// Number of objects written.
    pub objects: usize,
    /// Valid parts of the source that are not stored, by name, those with the highest counts first.
    pub not_taken: Vec<NotTaken>,
}

impl ImportSummary {
    /// Returns the unit that the size of an event log's latest time suggests, if that is not the
    /// assumed ns. Returns `None` for sources with spans.
    #[must_use]
    pub fn doubtful_unit(&self) -> Option<TimeUnit> {
        // Thread traces, which contain spans as well, may count from the start of a process.
        let unit = TimeUnit::of_size(self.last_ns.unsigned_abs()).filter(|_| self.spans == 0)?;
        (unit != TimeUnit::Ns).then_some(unit)
    }
}

/// Result of importing one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The source was imported now.
    Now(ImportSummary),
    /// An earlier import stored the same content; this import did nothing.
    Before(Receipt),
}

/// Reason for an early end of reading.
pub(super) enum StopReason {
    Source(io::Error),
    Import(ImportError),
    /// The source contains nothing of a known form; the text describes its content.
    Unknown(String),
}

impl From<io::Error> for StopReason {
    fn from(error: io::Error) -> Self {
        Self::Source(error)
    }
}

impl From<ImportError> for StopReason {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}
