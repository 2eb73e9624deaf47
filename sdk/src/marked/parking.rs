//! Lock for threads, based on `parking_lot`.

#![allow(unsafe_code)]

use parking_lot::lock_api;

use super::Waiters;

/// Lock like [`parking_lot::Mutex`], without its fair and timed methods, that writes markers when
/// threads have to wait for it.
pub type ParkingLotMutex<T> = lock_api::Mutex<RawParkingLotMutex, T>;

/// Guard of a [`ParkingLotMutex`], which it releases when dropped.
pub type ParkingLotMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawParkingLotMutex, T>;

/// Raw lock of a [`ParkingLotMutex`], for `lock_api`'s other types.
#[allow(missing_debug_implementations)] // the inner lock has none
pub struct RawParkingLotMutex {
    waiters: Waiters,
    inner: parking_lot::RawMutex,
}

// SAFETY: a holder of this lock also holds the inner lock and vice versa; the inner lock ensures
// exclusion.
unsafe impl lock_api::RawMutex for RawParkingLotMutex {
    // The trait requires a constant; each use creates a separate lock, as intended.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self {
        waiters: Waiters::new(),
        inner: parking_lot::RawMutex::INIT,
    };

    type GuardMarker = <parking_lot::RawMutex as lock_api::RawMutex>::GuardMarker;

    fn lock(&self) {
        if !self.inner.try_lock() {
            let waiting = self.waiters.begin();
            self.inner.lock();
            waiting.acquired();
        }
    }

    fn try_lock(&self) -> bool {
        self.inner.try_lock()
    }

    unsafe fn unlock(&self) {
        // Written while the lock is still held.
        self.waiters.releases();
        // SAFETY: the caller holds this lock and therefore the inner one.
        unsafe { self.inner.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_as_the_one_inside() {
        static COUNTER: ParkingLotMutex<u64> = ParkingLotMutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *COUNTER.lock() += 1;
                    }
                });
            }
        });
        let held = COUNTER.lock();
        assert!(COUNTER.try_lock().is_none() && COUNTER.is_locked());
        assert_eq!(*held, 40_000);
    }
}
