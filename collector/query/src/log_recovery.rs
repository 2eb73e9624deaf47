//! Converts the write-ahead log that a killed collector left behind, before a query reads the
//! store.

use std::path::Path;
use std::sync::Arc;

use stroboscope_store::data_dir::DataDir;
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::flush::{Counters, Flusher};
use stroboscope_store::limits::Limits;
use stroboscope_store::tables::Store;
use stroboscope_store::wal::{
    HEADER_BYTES, Payload, PayloadKind, list_segments, read_segment, segment_path,
};

/// Size in bytes above which a log segment is assumed to have records, without reading it.
const QUIET_SEGMENT_BYTES_MAX: u64 = 4 << 20;

/// Reports whether a log segment contains anything other than batches without spans, events and
/// provenance. Returns true if it cannot be read.
fn has_records(segment: &Path) -> bool {
    let is_some = |payload: &Payload| {
        payload.kind != PayloadKind::Batch
            || CheckedBatch::from_bytes(&payload.bytes, &Limits::default()).map_or(true, |batch| {
                batch.records() > 0 || !batch.batch().provenance.is_empty()
            })
    };
    read_segment(segment).map_or(true, |scan| scan.payloads.iter().any(is_some))
}

/// Writes the content of the log to the tables of the store, if the directory can be locked.
/// A failure of this conversion is only reported by `tracing`, because a query without the log is
/// better than none. If the directory cannot be locked, mostly because a collector is running,
/// returns the size of the log in bytes, without headers and without small segments that have no
/// records. Returns 0 otherwise.
pub(super) fn put_log_into_store(data: &DataDir, store: &Store) -> u64 {
    let segments = list_segments(&data.wal()).unwrap_or_default();
    if segments.is_empty() {
        return 0;
    }
    // A running collector holds the lock. It writes the log to the tables itself.
    let Ok(_lock) = data.lock() else {
        let bytes_of = |number: u64| {
            let path = segment_path(&data.wal(), number);
            let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
            // Empty batches of idle services may stay in the log for long. Few queries need their
            // windows, loads and losses.
            if bytes <= QUIET_SEGMENT_BYTES_MAX && !has_records(&path) {
                0
            } else {
                bytes
            }
        };
        return segments
            .into_iter()
            .map(|number| bytes_of(number).saturating_sub(HEADER_BYTES as u64))
            .sum();
    };
    let recovered = Flusher::load(data, store.clone(), Arc::new(Counters::default()))
        .and_then(|mut flusher| flusher.recover());
    match recovered {
        Ok(segments) => {
            tracing::info!("put {segments} WAL segments of an earlier run into the store");
        }
        Err(error) => tracing::warn!("the content of the log is not part of the result: {error}"),
    }
    0
}
