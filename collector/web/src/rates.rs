//! Requests over time: of each state of the store once, and of each of its files once.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use stroboscope_query::{QueryError, RequestRate, RequestRates, Source};

/// The files that were read, and the rate as of the last state of the store.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    reading: Mutex<RequestRates>,
    known: Mutex<Option<KnownRates>>,
}

/// What was read of a state of the store.
#[derive(Clone, Debug)]
struct KnownRates {
    state: String,
    whole: Arc<RequestRate>,
    by_file: Arc<RequestRates>,
}

impl Rates {
    /// Returns the rate of the store in this state, which `open` opens unless the rate is known.
    pub(crate) fn of(
        &self,
        state: &str,
        open: impl FnOnce() -> Result<Arc<Source>, QueryError>,
    ) -> Option<Arc<RequestRate>> {
        let of_state = || {
            let known = lock(&self.known);
            let known = known.as_ref().filter(|known| known.state == state);
            known.map(|known| known.whole.clone())
        };
        if let Some(rate) = of_state() {
            return Some(rate);
        }
        let mut reading = lock(&self.reading);
        // Another page had it read meanwhile.
        if let Some(rate) = of_state() {
            return Some(rate);
        }
        // The content of the page says why a store cannot be read.
        reading.refresh(&*open().ok()?).ok()?;
        let whole = Arc::new(reading.rate(i64::MIN..i64::MAX));
        *lock(&self.known) = Some(KnownRates {
            state: state.to_owned(),
            whole: whole.clone(),
            by_file: Arc::new(reading.clone()),
        });
        Some(whole)
    }

    /// Returns the rate that was read last.
    pub(crate) fn known(&self) -> Option<Arc<RequestRate>> {
        lock(&self.known).as_ref().map(|known| known.whole.clone())
    }

    /// Returns the rate that was read last, between two instants.
    pub(crate) fn known_between(&self, between_ns: Range<i64>) -> Option<RequestRate> {
        let by_file = lock(&self.known).as_ref()?.by_file.clone();
        Some(by_file.rate(between_ns))
    }

    /// True while the rate is being read.
    pub(crate) fn is_being_read(&self) -> bool {
        matches!(self.reading.try_lock(), Err(TryLockError::WouldBlock))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
