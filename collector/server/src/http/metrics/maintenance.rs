//! Metrics of the maintenance of the store's files.

use std::sync::atomic::Ordering::Relaxed;

use super::Text;
use stroboscope_store::maintenance::MaintenanceCounters;

pub(super) fn render(counters: &MaintenanceCounters, text: &mut Text) {
    text.counters(&[
        (
            "compactions_total",
            "Times that small files of the store became a large one.",
            &counters.compactions,
        ),
        (
            "compaction_failures_total",
            "Times that they did not, as one is damaged or the disk failed.",
            &counters.compaction_failures,
        ),
        (
            "compaction_read_bytes_total",
            "Bytes of files that were merged.",
            &counters.compaction_read_bytes,
        ),
        (
            "compaction_written_bytes_total",
            "Bytes of the files that they became.",
            &counters.compaction_written_bytes,
        ),
        (
            "replaced_files_total",
            "Files that others took the place of.",
            &counters.files_replaced,
        ),
        (
            "otlp_retries_dropped_total",
            "Spans and events of OTLP that were stored twice, as it has no numbers by which retries are known, and are there once now.",
            &counters.otlp_retries_dropped,
        ),
        (
            "deleted_bytes_total",
            "Bytes of the hours that were deleted.",
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
        "Bytes of files that were replaced or deleted and are kept for those who still read them.",
        counters.replaced_bytes.load(Relaxed),
    );
}
