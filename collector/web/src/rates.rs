//! Requests over time, read when the store's files change. Each file is read once, unless it is
//! damaged, has spans that start more than a minute after the present, or the store's settings for
//! connections change.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stroboscope_query::{QueryError, RequestRate, RequestRates, Source};
use tokio::sync::Notify;

/// Time after which damaged files are read again, even if the store has not changed.
const DAMAGED_FOR: Duration = Duration::from_secs(10);

/// Cache of requests over time: counts of each file, and the sum for the last state of the store.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    reading: Mutex<RequestRates>,
    known: Mutex<Option<KnownRates>>,
    /// Notifies those who wait for the end of a reading.
    read: Notify,
}

/// Requests over time, for one state of the store's files.
#[derive(Clone, Debug)]
struct KnownRates {
    state: String,
    whole: Arc<RequestRate>,
    by_file: Arc<RequestRates>,
    /// Time from which damaged files are read again; `None` if no file is damaged.
    expires: Option<Instant>,
}

impl Rates {
    /// Returns requests over time for the store's files in `state`. Reads them from the store that
    /// `open` returns, unless they are cached. Returns `None` if `open` or the reading fails.
    pub(crate) fn of(
        &self,
        state: &str,
        open: impl FnOnce() -> Result<Arc<Source>, QueryError>,
    ) -> Option<Arc<RequestRate>> {
        self.of_state(state).or_else(|| {
            let rate = self.read(state, open);
            self.read.notify_waiters();
            rate
        })
    }

    fn of_state(&self, state: &str) -> Option<Arc<RequestRate>> {
        let known = lock(&self.known);
        let is_fresh = |known: &&KnownRates| {
            known.state == state && known.expires.is_none_or(|at| Instant::now() < at)
        };
        let known = known.as_ref().filter(is_fresh);
        known.map(|known| known.whole.clone())
    }

    fn read(
        &self,
        state: &str,
        open: impl FnOnce() -> Result<Arc<Source>, QueryError>,
    ) -> Option<Arc<RequestRate>> {
        let mut reading = lock(&self.reading);
        // Another page may have read the rate meanwhile.
        if let Some(rate) = self.of_state(state) {
            return Some(rate);
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        // The content of the page reports why a store cannot be read, and which of its files are
        // damaged.
        let damage = reading.refresh(&*open().ok()?, now_ns).ok()?;
        let whole = Arc::new(reading.rate(i64::MIN..i64::MAX));
        *lock(&self.known) = Some(KnownRates {
            state: state.to_owned(),
            whole: whole.clone(),
            by_file: Arc::new(reading.clone()),
            expires: (!damage.is_empty()).then(|| Instant::now() + DAMAGED_FOR),
        });
        Some(whole)
    }

    /// Waits for the end of the reading that is under way, if one is.
    pub(crate) async fn wait(&self) {
        let end = self.read.notified();
        if self.is_being_read() {
            end.await;
        }
    }

    /// Returns the rate that was read last; `None` before the first reading.
    pub(crate) fn known(&self) -> Option<Arc<RequestRate>> {
        lock(&self.known).as_ref().map(|known| known.whole.clone())
    }

    /// Returns the rate that was read last, between two instants in ns since the Unix epoch; `None`
    /// before the first reading.
    pub(crate) fn known_between(&self, between_ns: Range<i64>) -> Option<RequestRate> {
        let by_file = lock(&self.known).as_ref()?.by_file.clone();
        Some(by_file.rate(between_ns))
    }

    /// Reports whether the rate is being read.
    pub(crate) fn is_being_read(&self) -> bool {
        matches!(self.reading.try_lock(), Err(TryLockError::WouldBlock))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
