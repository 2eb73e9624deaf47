//! How an import ends.

use std::io;
use std::path::PathBuf;

use stroboscope_store::tables::StoreError;

use super::not_taken::NotTaken;
use super::receipt::Receipt;
use super::time::TimeUnit;

/// What to do with a file of no known form.
const KNOWN_FORMS: &str = "Known are event logs ({\"trace\", \"host\", \"ts_ns\", \"event\", \"task\"} a line), \
     OTLP, Tempo, Jaeger, Zipkin, Chrome trace events and KUtrace in JSON, OTLP's protobuf, perf script and strace; \
     for any other JSON, CSV or log, say which field is what by --map (see import --help)";

/// Why a source cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source cannot be read.
    #[error("cannot read {source_name}: {source}")]
    Source {
        source_name: String,
        source: io::Error,
    },
    /// Something in the data folder cannot be written.
    #[error("cannot write to {path}: {source}")]
    Data { path: PathBuf, source: io::Error },
    /// Nothing in the source has a form that is known.
    #[error("{source_name} holds {holds}: no form that is known. {KNOWN_FORMS}")]
    UnknownForm { source_name: String, holds: String },
    /// A unit was given for times whose unit the format fixes.
    #[error("{source_name} is {what}, which fixes the unit of its times; leave --time-unit out")]
    FixedUnit { source_name: String, what: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Spans kept.
    pub spans: u64,
    /// Events kept, those inside spans included.
    pub events: u64,
    /// Spans told more than once, alike in everything; each is kept once, and counted once in `spans`.
    pub duplicates: u64,
    /// Lines, or records of a document, left out.
    pub bad_lines: u64,
    /// Lines that are no events, as a mapping says.
    pub ignored_lines: u64,
    /// The last time of an event log, ns since the Unix epoch; 0 without one.
    pub last_ns: i64,
    /// Objects written.
    pub objects: usize,
    /// What else the source holds, by name, the most first.
    pub not_taken: Vec<NotTaken>,
}

impl ImportSummary {
    /// The unit that the times of an event log look like, although they were taken for ns.
    #[must_use]
    pub fn doubtful_unit(&self) -> Option<TimeUnit> {
        // Traces of threads, which have spans as well, may count from the start of a process.
        let unit = TimeUnit::of_size(self.last_ns.unsigned_abs()).filter(|_| self.spans == 0)?;
        (unit != TimeUnit::Ns).then_some(unit)
    }
}

/// Whether a source was imported now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Now.
    Now(ImportSummary),
    /// The same content was imported before; nothing was done.
    Before(Receipt),
}

/// Why reading stopped.
pub(super) enum Stopped {
    Source(io::Error),
    Import(ImportError),
    /// There is nothing of a known form, but this.
    Unknown(String),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Source(error)
    }
}

impl From<ImportError> for Stopped {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}
