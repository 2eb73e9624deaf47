//! What is found.

use crate::tables::StoreTable;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A file of the store that cannot be read, or not to its end, or whose order or statistics are wrong.
    DamagedFile,
    /// A file of a later version of this program.
    NewerFile,
    /// A file in a table's folder that is none of the store's.
    StrangeFile,
    /// What a crash left of a compaction. Nobody reads it.
    InterruptedCompaction,
    /// Damage in the write-ahead log.
    DamagedLog,
    /// There is no checkpoint beside a store that is flushed.
    MissingCheckpoint,
    /// It cannot be read.
    DamagedCheckpoint,
    /// The store has segments that the checkpoint does not know, and the log does not have.
    CheckpointBehind,
    /// A batch is in the store twice.
    DoubledBatch,
    /// A batch that was stored is not there.
    MissingBatch,
    /// A batch is there that the ledger does not know: a retry would be stored again.
    UnknownBatch,
    /// A process has other spans in the store than its batches say.
    SpanCount,
}

impl FindingKind {
    /// Its name for machines.
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

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The file or process.
    pub at: String,
    /// More of it, for people.
    pub detail: String,
    /// What was done about it.
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

/// A table, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Which.
    pub table: StoreTable,
    /// Its files that are read.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What was read.
    pub tables: Vec<TableSize>,
    /// Segments of the log that are not in the store.
    pub log_segments: u64,
    /// Batches that never came, of processes that the ledger knows: losses that were counted, and no findings.
    pub holes: u64,
    /// Whether a collector is running.
    pub is_in_use: bool,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether nothing is wrong any more.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.repair.is_some())
    }
}
