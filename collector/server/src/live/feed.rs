//! The live model's thread, its feed and its read access.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::clock::Resolution;

use super::observer::{Live, LiveCounts, Snapshot, Totals};
use super::recent::{ProcessWindows, RecentRequests};
use stroboscope_store::flush::Arrivals;
use stroboscope_store::record::Rows;

/// Maximum log segments waiting for the model. Their rows take about twelve times as much memory as
/// in the log.
const QUEUE: usize = 1;

enum Message {
    /// Rows of a segment, and the time when its latest record was received.
    Arrived(Box<Rows>, i64),
    AllArrivedUntil(i64),
}

/// Feed of the model. Dropping the last clone ends the model's thread.
#[derive(Clone, Debug)]
pub struct Feed {
    sender: SyncSender<Message>,
    model: LiveModel,
}

impl Arrivals for Feed {
    /// Passes on the rows of a segment, whose latest record was received at `received_ns`. If the
    /// queue is full or the thread has ended, skips them instead, and counts the skipped spans and
    /// events.
    fn arrived(&self, rows: Box<Rows>, received_ns: i64) {
        if let Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) =
            self.sender.try_send(Message::Arrived(rows, received_ns))
            && let Message::Arrived(rows, _) = message
        {
            let records = (rows.spans.len() + rows.events.len()) as u64;
            self.model.skipped_records.fetch_add(records, Relaxed);
        }
    }

    /// Notifies the model that the caller has passed on all records received before `now_ns`. Does
    /// nothing if the queue is full.
    fn all_arrived_until(&self, now_ns: i64) {
        // A full queue means there is work; the next call is soon enough.
        let _ = self.sender.try_send(Message::AllArrivedUntil(now_ns));
    }
}

/// Read access to the model of a running collector. Clones share it.
#[derive(Clone, Debug)]
pub struct LiveModel {
    live: Arc<Mutex<Live>>,
    /// Number of records that the feed skipped. It is outside the lock, because the feed must not
    /// wait for the model.
    skipped_records: Arc<AtomicU64>,
}

impl LiveModel {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_skipped(&self, counts: LiveCounts) -> LiveCounts {
        LiveCounts {
            skipped_records: self.skipped_records.load(Relaxed),
            ..counts
        }
    }

    /// Returns the counts of records and traces, and a lower bound on the number of segments.
    #[must_use]
    pub fn counts(&self) -> (LiveCounts, usize) {
        let live = self.live();
        (self.with_skipped(live.counts()), live.segments())
    }

    /// Returns the statistics of the window's requests, by root operation.
    #[must_use]
    pub fn roots(&self) -> ByRoot {
        self.live().roots()
    }

    /// Returns the totals since the collector started. Copies up to a few megabytes, so async code
    /// must not call it.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.live().totals()
    }

    /// Returns the latest complete requests of the last five minutes, and the outcomes of all
    /// requests of about that time. Takes milliseconds or longer, so async code must not call it.
    #[must_use]
    pub fn recent(&self, now_ns: i64) -> RecentRequests {
        self.live().recent(now_ns)
    }

    /// Returns the recording windows of each process and the clock resolution of its host, in the
    /// order of `processes`. The windows are `None` if none has reached the model, or if they have
    /// been evicted.
    #[must_use]
    pub fn of_processes<'a>(
        &self,
        processes: impl Iterator<Item = (u128, &'a str)>,
    ) -> Vec<(Option<ProcessWindows>, Resolution)> {
        let live = self.live();
        processes
            .map(|(process, host)| live.of_process(process, host))
            .collect()
    }

    /// Returns the current model. Takes milliseconds or longer, so async code must not call it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.live().snapshot();
        Snapshot {
            counts: self.with_skipped(snapshot.counts),
            ..snapshot
        }
    }
}

/// Starts the model's thread. A trace counts as fully arrived after the time `quiet` without a
/// record. The model covers a sliding window of the length `window`, and distinguishes at most
/// `max_segments` segments. Open traces hold at most `records_open_max` records. Spans of the
/// operations `requests` are requests wherever they occur.
///
/// # Errors
/// Returns an error if the system cannot start another thread.
pub fn start(
    (quiet, window): (Duration, Duration),
    (records_open_max, max_segments): (usize, usize),
    requests: Vec<String>,
) -> std::io::Result<(LiveModel, Feed, JoinHandle<()>)> {
    let ns = |of: Duration| i64::try_from(of.as_nanos()).unwrap_or(i64::MAX);
    let live = Live::with_room(ns(quiet), records_open_max);
    let live = live
        .with_window(ns(window), max_segments)
        .with_requests(requests);
    let model = LiveModel {
        live: Arc::new(Mutex::new(live)),
        skipped_records: Arc::default(),
    };
    let (sender, messages) = sync_channel(QUEUE);
    let of_thread = model.clone();
    let body = move || {
        for message in messages {
            match message {
                Message::Arrived(rows, received_ns) => of_thread.live().arrived(&rows, received_ns),
                Message::AllArrivedUntil(now_ns) => of_thread.live().all_arrived_until(now_ns),
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("live-model".to_owned())
        .spawn(body)?;
    Ok((model.clone(), Feed { sender, model }, thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_store::record::SpanRow;

    #[test]
    fn records_skipped_while_the_model_is_busy_are_counted() {
        let second = Duration::from_secs(1);
        let (model, feed, thread) = start((second, second), (1_000, 1_000), Vec::new()).unwrap();
        let busy = model.live();
        let segments = QUEUE as u64 + 3;
        for at in 1..=segments {
            let mut rows = Rows::default();
            let shop = rows.strings.intern("shop");
            rows.spans.push(SpanRow {
                trace_id: 1,
                trace_name: None,
                span_id: at,
                parent_id: 0,
                service: shop,
                name: shop,
                host: shop,
                process: 0,
                start_ns: 1,
                end_ns: 2,
                flags: 0,
                attributes: None,
            });
            feed.arrived(Box::new(rows), at as i64);
        }
        drop(busy);
        drop(feed);
        thread.join().unwrap();
        let skipped = model.counts().0.skipped_records;
        // The thread may hold one segment while it waits for the model.
        assert!((2..=3).contains(&skipped), "{skipped} of {segments}");
        assert_eq!(model.snapshot().counts.skipped_records, skipped);
    }
}
