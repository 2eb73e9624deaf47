//! Locks and connections that write markers: locks show which request a waiting request waits for,
//! and connections show which request they read and write for.
//!
//! A free lock costs one atomic load more than the inner lock. The locks of `std` and tokio are
//! always available, the lock of `parking_lot` with the feature of its name.

mod asynchronous;
mod blocking;
#[cfg(feature = "tower")]
mod connection;
#[cfg(feature = "parking_lot")]
mod parking;

pub use asynchronous::{AsyncMutex, AsyncMutexGuard};
pub use blocking::{Mutex, MutexGuard};
#[cfg(feature = "tower")]
pub use connection::{ConnectionUse, ConnectionUsers, UsedStream, UsingService};
#[cfg(feature = "parking_lot")]
pub use parking::{ParkingLotMutex, ParkingLotMutexGuard, RawParkingLotMutex};

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::context;
use crate::marker::{self, Kind};

/// Number of waiters. It is only a hint on whether a release needs a marker.
#[derive(Debug, Default)]
struct Waiters(AtomicU32);

/// Registration of a waiter until it acquires the lock or gives up.
struct Waiter<'a>(&'a Waiters);

impl Waiters {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns an address inside the lock, which markers use as its number.
    fn id(&self) -> u64 {
        (&raw const self.0).addr() as u64
    }

    fn say(&self, kind: Kind) {
        if marker::is_on() {
            marker::write(kind, context::current(), self.id(), 0);
        }
    }

    fn begin(&self) -> Waiter<'_> {
        // Writes the marker first, so that no waiter is counted before its marker.
        self.say(Kind::LockWait);
        self.0.fetch_add(1, Relaxed);
        Waiter(self)
    }

    fn releases(&self) {
        if self.0.load(Relaxed) > 0 {
            self.say(Kind::LockReleased);
        }
    }
}

impl Waiter<'_> {
    fn acquired(self) {
        self.0.say(Kind::LockAcquired);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
