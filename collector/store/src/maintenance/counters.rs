//! Counters of store maintenance.

use std::sync::atomic::AtomicU64;

/// Counters of the maintenance by one process, since it started.
#[derive(Debug, Default)]
pub struct MaintenanceCounters {
    /// Number of merges whose files have become visible.
    pub compactions: AtomicU64,
    /// Number of merges that failed.
    pub compaction_failures: AtomicU64,
    /// Size of the files that were merged, in bytes.
    pub compaction_read_bytes: AtomicU64,
    /// Size of the merged files, in bytes.
    pub compaction_written_bytes: AtomicU64,
    /// Number of rows in merged files.
    pub compacted_rows: AtomicU64,
    /// Number of files that merged or thinned files replaced.
    pub files_replaced: AtomicU64,
    /// Number of rows that merges dropped as retries, because equal rows remain. OTLP, for example,
    /// has no sequence numbers that identify retries when they arrive.
    pub otlp_retries_dropped: AtomicU64,
    /// Number of hours deleted because of their age.
    pub hours_deleted_for_age: AtomicU64,
    /// Number of hours deleted because of the size limit.
    pub hours_deleted_for_size: AtomicU64,
    /// Number of hours that were thinned.
    pub hours_thinned: AtomicU64,
    /// Number of failed attempts to thin an hour.
    pub thinning_failures: AtomicU64,
    /// Number of requests that thinning dropped.
    pub requests_thinned: AtomicU64,
    /// Number of spans that thinning dropped.
    pub spans_thinned: AtomicU64,
    /// Size by which thinning reduced files, in bytes.
    pub thinned_bytes: AtomicU64,
    /// Size of the files of deleted hours, in bytes.
    pub deleted_bytes: AtomicU64,
    /// Number of updates of a table's Delta log that failed.
    pub delta_log_failures: AtomicU64,
    /// Size of the files that the last purge left in `replaced/`, in bytes. Queries in progress may
    /// still read these files.
    pub replaced_bytes: AtomicU64,
}
