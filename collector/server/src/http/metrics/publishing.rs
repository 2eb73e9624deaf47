//! Metrics of publishing to an object store.

use std::sync::atomic::Ordering::Relaxed;

use super::Text;
use stroboscope_store::publishing::{PublishCounters, PublishFailure};

pub(super) fn render(counters: &PublishCounters, text: &mut Text) {
    let counts = [
        (
            "published_files_total",
            "counter",
            "Files of the store that were published to the object store.",
            &counters.files,
        ),
        (
            "published_bytes_total",
            "counter",
            "Their bytes.",
            &counters.bytes,
        ),
        (
            "publish_behind_files",
            "gauge",
            "Files that are not published yet.",
            &counters.files_behind,
        ),
        (
            "publish_behind_bytes",
            "gauge",
            "Their bytes.",
            &counters.bytes_behind,
        ),
        (
            "publish_missed_files_total",
            "counter",
            "Files that --keep-bytes deleted unpublished; counted until publish_fenced is 1.",
            &counters.files_missed,
        ),
        (
            "publish_deleted_objects_total",
            "counter",
            "Unreferenced objects that were deleted from the object store.",
            &counters.objects_deleted,
        ),
        (
            "publish_fenced",
            "gauge",
            "1 if another collector publishes under this one's name in the object store.",
            &counters.fenced,
        ),
    ];
    for (name, kind, help, value) in counts {
        text.single(name, kind, help, value.load(Relaxed));
    }
    text.family(
        "publish_failures_total",
        "counter",
        "Rounds of publishing that failed, by cause; each but a fenced one is tried again.",
    );
    for cause in PublishFailure::ALL {
        let count = counters.failures(cause).load(Relaxed);
        text.sample("publish_failures_total", &[("cause", cause.name())], count);
    }
    text.single(
        "publish_last_success_seconds",
        "gauge",
        "When publishing was last complete, seconds since the Unix epoch; 0: never.",
        counters.last_success_ns.load(Relaxed) as f64 / 1e9,
    );
}
