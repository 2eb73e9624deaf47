//! What care did so far.

use std::sync::atomic::AtomicU64;

/// Counters of one process, since it started.
#[derive(Debug, Default)]
pub struct CareCounters {
    /// Merges whose files are seen.
    pub compactions: AtomicU64,
    /// Those that failed.
    pub compaction_failures: AtomicU64,
    /// Bytes of files that were merged.
    pub compaction_read_bytes: AtomicU64,
    /// Bytes of the files that they became.
    pub compaction_written_bytes: AtomicU64,
    /// Rows in these.
    pub compacted_rows: AtomicU64,
    /// Files that others took the place of.
    pub files_replaced: AtomicU64,
    /// Rows that were stored twice, as OTLP has no numbers by which retries are known, and are there once now.
    pub otlp_retries_dropped: AtomicU64,
    /// Hours that were deleted for their age.
    pub hours_deleted_for_age: AtomicU64,
    /// Hours that were deleted for want of room.
    pub hours_deleted_for_size: AtomicU64,
    /// Bytes of their files.
    pub deleted_bytes: AtomicU64,
    /// Bytes in `replaced/`, for those who still read them.
    pub replaced_bytes: AtomicU64,
}
