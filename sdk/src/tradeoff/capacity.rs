//! Notifies the service when adding or removing an instance would increase the utility.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stroboscope_tradeoff::{Capacity, UtilityDecision};

use super::in_force;

type Callback = dyn Fn(&str, Capacity, UtilityDecision) + Send + Sync;

static CALLBACK: Mutex<Option<Arc<Callback>>> = Mutex::new(None);

/// Guard of the callback.
pub(super) type CallbackLock = MutexGuard<'static, Option<Arc<Callback>>>;

/// Prevents threads from setting or taking the callback until the result is dropped.
pub(super) fn lock() -> CallbackLock {
    CALLBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a callback for advice to add or remove an instance, which follows from the utility of a
/// point's goal (§4.3.3.3). The callback receives the point's name, the advised change, and the
/// decision with the utilities.
///
/// It is called when the advice has been the same in 30 consecutive measurements of the load (about
/// three seconds while requests arrive), and again only after other advice, or none, has lasted as
/// long. It runs in a separate thread, and [`stats`](super::stats) counts its panics. A new
/// callback replaces the previous one.
pub fn on_capacity(callback: impl Fn(&str, Capacity, UtilityDecision) + Send + Sync + 'static) {
    *lock() = Some(Arc::new(callback));
}

/// Number of measurements of the load in which the advice must stay the same before the callback is
/// called.
const HELD: u32 = 30;

/// Advice of one point over time.
#[derive(Debug)]
pub(super) struct Advice {
    last: Option<Capacity>,
    slices: u32,
    /// Last advice that was the same in [`HELD`] measurements; `None` if there was none for as
    /// long, or if the callback's thread could not be created.
    told: Option<Capacity>,
}

impl Advice {
    pub(super) const fn new() -> Self {
        Self {
            last: None,
            slices: 0,
            told: None,
        }
    }

    /// Returns the advice if the callback must be called now, otherwise `None`. The advice must
    /// have been the same in [`HELD`] measurements, and differ from the last one given.
    fn hold(&mut self, advised: Option<Capacity>) -> Option<Capacity> {
        if advised == self.last {
            self.slices = self.slices.saturating_add(1);
        } else {
            (self.last, self.slices) = (advised, 1);
        }
        if self.slices < HELD || advised == self.told {
            return None;
        }
        self.told = advised;
        advised
    }

    pub(super) fn slice(&mut self, point: &'static str, decided: UtilityDecision) {
        let Some(change) = self.hold(decided.advised()) else {
            return;
        };
        let Some(callback) = lock().clone() else {
            return;
        };
        let call = move || {
            if catch_unwind(AssertUnwindSafe(|| callback(point, change, decided))).is_err() {
                in_force::count_panicked();
            }
        };
        let thread = std::thread::Builder::new().name("strobe-capacity".to_owned());
        if thread.spawn(call).is_err() {
            // Retries at the next slice, if the advice is still the same.
            self.told = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_once_it_stands_and_once() {
        let mut advice = Advice::new();
        let mut given = Vec::new();
        let mut slices = |count: u32, advised: Option<Capacity>| {
            for _ in 0..count {
                given.extend(advice.hold(advised));
            }
        };
        slices(HELD - 1, Some(Capacity::Add));
        slices(1, None);
        slices(100, Some(Capacity::Add));
        slices(100, None);
        slices(HELD, Some(Capacity::Add));
        slices(HELD, Some(Capacity::Remove));
        assert_eq!(given, [Capacity::Add, Capacity::Add, Capacity::Remove]);
    }
}
