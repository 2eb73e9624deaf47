//! Locks that write markers when somebody has to wait: then the timeline shows which request held the lock. And
//! connections that say for which request they read and write.
//!
//! A lock that is free costs one atomic load more than the lock inside. Those of `std` and tokio are always here, that of
//! `parking_lot` with the feature of its name.

mod asynchronous;
mod blocking;
#[cfg(feature = "tower")]
mod connection;
#[cfg(feature = "parking_lot")]
mod parking;

pub use asynchronous::{AsyncMutex, AsyncMutexGuard};
pub use blocking::{Mutex, MutexGuard};
#[cfg(feature = "tower")]
pub use connection::{ConnectionUsers, UsedStream, Using, UsingService};
#[cfg(feature = "parking_lot")]
pub use parking::{ParkingLotMutex, ParkingLotMutexGuard, RawParkingLotMutex};

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::context;
use crate::marker::{self, Kind};

/// How many wait. Only a hint for whether a release is worth a marker.
#[derive(Debug, Default)]
struct Waiters(AtomicU32);

/// One of them, until it has the lock or gives up.
struct Waiting<'a>(&'a Waiters);

impl Waiters {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The lock's number within the process.
    fn id(&self) -> u64 {
        (&raw const self.0).addr() as u64
    }

    fn say(&self, kind: Kind) {
        if marker::is_on() {
            marker::write(kind, context::current(), self.id(), 0);
        }
    }

    fn begin(&self) -> Waiting<'_> {
        // Said first: what is released from now on is released while this one waits.
        self.say(Kind::LockWait);
        self.0.fetch_add(1, Relaxed);
        Waiting(self)
    }

    fn releases(&self) {
        if self.0.load(Relaxed) > 0 {
            self.say(Kind::LockReleased);
        }
    }
}

impl Waiting<'_> {
    fn acquired(self) {
        self.0.say(Kind::LockAcquired);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
