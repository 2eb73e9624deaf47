//! Findings of a check.

use crate::tables::StoreTable;

/// Kind of a problem that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A file of the store is unreadable, contradicts its checksum or metadata, or has unsorted
    /// rows.
    DamagedFile,
    /// A later version of this program wrote a file.
    NewerFile,
    /// A file in a table's directory is in no hour's directory, is not Parquet, or was written by
    /// another program.
    StrangeFile,
    /// A crash or an error interrupted a compaction or a thinning and left files that readers
    /// ignore.
    InterruptedCompaction,
    /// A crash interrupted the writing of a file and left its temporary file, which readers ignore.
    InterruptedWrite,
    /// The write-ahead log is damaged.
    DamagedLog,
    /// A store with flushed data has no checkpoint.
    MissingCheckpoint,
    /// The checkpoint is damaged, or its format has another version.
    DamagedCheckpoint,
    /// The store has segments that neither the checkpoint nor the log contains.
    CheckpointBehind,
    /// A batch is in the store more than once.
    DoubledBatch,
    /// A batch that the ledger lists as stored is missing.
    MissingBatch,
    /// The store has a batch that the ledger does not list, so a retry would be stored again.
    UnknownBatch,
    /// The number of a process's stored spans differs from the total that its batches state.
    SpanCount,
    /// The store has fewer events of a service on a host than the service's batches there state.
    EventCount,
}

impl FindingKind {
    /// Returns the machine-readable name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DamagedFile => "damaged_file",
            Self::NewerFile => "newer_file",
            Self::StrangeFile => "strange_file",
            Self::InterruptedCompaction => "interrupted_compaction",
            Self::InterruptedWrite => "interrupted_write",
            Self::DamagedLog => "damaged_log",
            Self::MissingCheckpoint => "missing_checkpoint",
            Self::DamagedCheckpoint => "damaged_checkpoint",
            Self::CheckpointBehind => "checkpoint_behind",
            Self::DoubledBatch => "doubled_batch",
            Self::MissingBatch => "missing_batch",
            Self::UnknownBatch => "unknown_batch",
            Self::SpanCount => "span_count",
            Self::EventCount => "event_count",
        }
    }
}

/// Problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the problem.
    pub kind: FindingKind,
    /// Path of the affected file, id of the affected process, or service and host.
    pub at: String,
    /// Description of the problem.
    pub detail: String,
    /// Description of the repair; `None` if the problem was not repaired.
    pub repair: Option<String>,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, at: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind,
            at: at.into(),
            detail: detail.into(),
            repair: None,
        }
    }
}

/// Size of a table that a check read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Table that was read.
    pub table: StoreTable,
    /// Number of the table's files.
    pub files: u64,
    /// Number of rows in the table's intact files.
    pub rows: u64,
    /// Size of the table's files, in bytes.
    pub bytes: u64,
}

/// Result of a check: the data that it read, and the problems that it found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Sizes of the tables that were read.
    pub tables: Vec<TableSize>,
    /// Number of log segments that the checkpoint does not cover.
    pub log_segments: u64,
    /// Number of holes in the ledger: batches that were not stored although later ones were. They
    /// count as losses, not as findings.
    pub holes: u64,
    /// True if another process, such as a collector, holds the lock of the data directory.
    pub is_in_use: bool,
    /// Number of hours of the table of spans with thinned files.
    pub thinned_hours: u64,
    /// Problems found.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Reports whether all problems were repaired.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.repair.is_some())
    }
}
