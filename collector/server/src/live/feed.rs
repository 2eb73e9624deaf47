//! The live model's thread, how it is fed, and how it is looked at.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::clock::Resolution;

use super::observer::{Live, LiveCounts, Snapshot};
use super::recent::{ProcessWindows, RecentRequests};
use stroboscope_store::flush::Arrivals;
use stroboscope_store::record::Rows;

/// Log segments that may wait for the model. Each is rows, some ten times as large as in the log.
const QUEUE: usize = 1;

enum Message {
    /// Rows, and when the last of them was received.
    Arrived(Box<Rows>, i64),
    AllArrivedUntil(i64),
}

/// What feeds the model. With the last of them gone, the model's thread ends.
#[derive(Clone, Debug)]
pub struct Feed {
    sender: SyncSender<Message>,
    model: LiveModel,
}

impl Arrivals for Feed {
    /// Hands over rows of which the last was received at `received_ns`. Never waits: what finds no room is counted.
    fn arrived(&self, rows: Box<Rows>, received_ns: i64) {
        if let Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) =
            self.sender.try_send(Message::Arrived(rows, received_ns))
            && let Message::Arrived(rows, _) = message
        {
            self.model
                .live()
                .skipped((rows.spans.len() + rows.events.len()) as u64);
        }
    }

    /// Moves the watermark: everything received before `now_ns` has been handed over.
    fn all_arrived_until(&self, now_ns: i64) {
        // If there is no room, there is work, and the next time is soon enough.
        let _ = self.sender.try_send(Message::AllArrivedUntil(now_ns));
    }
}

/// The model of a running collector, to look at. Clones are the same.
#[derive(Clone, Debug)]
pub struct LiveModel(Arc<Mutex<Live>>);

impl LiveModel {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of what arrived; and the segments known.
    #[must_use]
    pub fn counts(&self) -> (LiveCounts, usize) {
        let live = self.live();
        (live.counts(), live.segments())
    }

    /// The requests by root operation, as of now.
    #[must_use]
    pub fn roots(&self) -> ByRoot {
        self.live().roots().clone()
    }

    /// The requests that became whole in the last minutes. Takes some milliseconds; not for async code.
    #[must_use]
    pub fn recent(&self, now_ns: i64) -> RecentRequests {
        self.live().recent(now_ns)
    }

    /// What is known of these processes on these hosts, in their order.
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

    /// The model as it is now. Takes some milliseconds; not for async code.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.live().snapshot()
    }
}

/// Starts the model's thread. A trace is whole after so much quiet; so many records of open traces have room.
/// Spans of `requests` are requests wherever they are.
///
/// # Errors
/// When the system has no thread left.
pub fn start(
    quiet: Duration,
    records_open_max: usize,
    requests: Vec<String>,
) -> std::io::Result<(LiveModel, Feed, JoinHandle<()>)> {
    let quiet_ns = i64::try_from(quiet.as_nanos()).unwrap_or(i64::MAX);
    let model = LiveModel(Arc::new(Mutex::new(
        Live::with_room(quiet_ns, records_open_max).with_requests(requests),
    )));
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
