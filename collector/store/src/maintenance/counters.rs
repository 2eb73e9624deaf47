//! Counters of store maintenance.

use std::sync::atomic::AtomicU64;

/// Counters of one process, since it started.
#[derive(Debug, Default)]
pub struct MaintenanceCounters {
    /// Merges whose files have become visible.
    pub compactions: AtomicU64,
    /// Merges that failed.
    pub compaction_failures: AtomicU64,
    /// Bytes of files that were merged.
    pub compaction_read_bytes: AtomicU64,
    /// Bytes of merged files.
    pub compaction_written_bytes: AtomicU64,
    /// Rows in merged files.
    pub compacted_rows: AtomicU64,
    /// Files that merged files replaced.
    pub files_replaced: AtomicU64,
    /// Dropped rows of OTLP retries. They were stored twice, as OTLP has no sequence numbers that
    /// identify retries.
    pub otlp_retries_dropped: AtomicU64,
    /// Hours deleted because of their age.
    pub hours_deleted_for_age: AtomicU64,
    /// Hours deleted because of the size limit.
    pub hours_deleted_for_size: AtomicU64,
    /// Bytes of the files of deleted hours.
    pub deleted_bytes: AtomicU64,
    /// Bytes in `replaced/`, which current readers may still read.
    pub replaced_bytes: AtomicU64,
}
