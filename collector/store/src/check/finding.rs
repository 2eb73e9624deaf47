//! Findings of a check.

use crate::tables::StoreTable;

/// Kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A file of the store is unreadable or truncated, or its order or statistics are wrong.
    DamagedFile,
    /// A file comes from a later version of this program.
    NewerFile,
    /// A file in a table's directory does not belong to the store.
    StrangeFile,
    /// A crash left files of a compaction, which readers ignore.
    InterruptedCompaction,
    /// The write-ahead log is damaged.
    DamagedLog,
    /// A store with flushed data has no checkpoint.
    MissingCheckpoint,
    /// The checkpoint is unreadable.
    DamagedCheckpoint,
    /// The store has segments that neither the checkpoint nor the log contains.
    CheckpointBehind,
    /// A batch is in the store twice.
    DoubledBatch,
    /// A batch that was stored is missing.
    MissingBatch,
    /// The store has a batch that the ledger does not know: a retry would be stored again.
    UnknownBatch,
    /// The number of a process's spans in the store differs from the sum in its batches.
    SpanCount,
}

impl FindingKind {
    /// Returns the machine-readable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DamagedFile => "damaged_file",
            Self::NewerFile => "newer_file",
            Self::StrangeFile => "strange_file",
            Self::InterruptedCompaction => "interrupted_compaction",
            Self::DamagedLog => "damaged_log",
            Self::MissingCheckpoint => "missing_checkpoint",
            Self::DamagedCheckpoint => "damaged_checkpoint",
            Self::CheckpointBehind => "checkpoint_behind",
            Self::DoubledBatch => "doubled_batch",
            Self::MissingBatch => "missing_batch",
            Self::UnknownBatch => "unknown_batch",
            Self::SpanCount => "span_count",
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the problem.
    pub kind: FindingKind,
    /// Affected file or process.
    pub at: String,
    /// Details for people.
    pub detail: String,
    /// Repair that was done, if any.
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

/// Size of a table's readable part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// The table.
    pub table: StoreTable,
    /// Number of its files.
    pub files: u64,
    /// Number of its readable rows.
    pub rows: u64,
    /// Size of its files, in bytes.
    pub bytes: u64,
}

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Sizes of the tables that were read.
    pub tables: Vec<TableSize>,
    /// Number of log segments that are not in the store.
    pub log_segments: u64,
    /// Number of batches that never arrived from processes in the ledger. These are counted losses,
    /// not findings.
    pub holes: u64,
    /// True if a collector is running.
    pub is_in_use: bool,
    /// Problems found.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Reports whether no problem is left unrepaired.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.repair.is_some())
    }
}
