//! Metrics of the maintenance of the store's files.

use std::sync::atomic::Ordering::Relaxed;

use super::Text;
use stroboscope_store::maintenance::MaintenanceCounters;

pub(super) fn render(counters: &MaintenanceCounters, text: &mut Text) {
    text.counters(&[
        (
            "compactions_total",
            "Compactions of small files of the store into a large one.",
            &counters.compactions,
        ),
        (
            "compaction_failures_total",
            "Failed compactions, due to a damaged file or a disk error.",
            &counters.compaction_failures,
        ),
        (
            "compaction_read_bytes_total",
            "Bytes of compactions' input files.",
            &counters.compaction_read_bytes,
        ),
        (
            "compaction_written_bytes_total",
            "Bytes of compactions' output files.",
            &counters.compaction_written_bytes,
        ),
        (
            "replaced_files_total",
            "Files replaced by compacted ones.",
            &counters.files_replaced,
        ),
        (
            "otlp_retries_dropped_total",
            "Duplicate OTLP spans and events removed: OTLP has no sequence numbers to recognize retries by.",
            &counters.otlp_retries_dropped,
        ),
        (
            "delta_log_failures_total",
            "Failed updates of the tables' Delta logs.",
            &counters.delta_log_failures,
        ),
        (
            "thinned_hours_total",
            "Hours of the store that were thinned.",
            &counters.hours_thinned,
        ),
        (
            "thinned_requests_total",
            "Requests that thinning of old hours dropped.",
            &counters.requests_thinned,
        ),
        (
            "thinned_spans_total",
            "Spans that thinning of old hours dropped.",
            &counters.spans_thinned,
        ),
        (
            "thinned_bytes_total",
            "Bytes by which thinning of old hours reduced files.",
            &counters.thinned_bytes,
        ),
        (
            "thinning_failures_total",
            "Failed thinnings of old hours, due to a damaged file or a disk error.",
            &counters.thinning_failures,
        ),
        (
            "deleted_bytes_total",
            "Bytes of deleted hours.",
            &counters.deleted_bytes,
        ),
    ]);
    let deleted = [
        ("age", counters.hours_deleted_for_age.load(Relaxed)),
        ("size", counters.hours_deleted_for_size.load(Relaxed)),
    ];
    let help = "Hours of the store that were deleted, by cause.";
    text.labelled("deleted_hours_total", help, "cause", deleted);
    text.single(
        "replaced_bytes",
        "gauge",
        "Bytes of replaced or deleted files that are kept for active readers.",
        counters.replaced_bytes.load(Relaxed),
    );
}
