//! The rings of the process: those made, the spare one, and the memory all of them take.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ring::{Consumer, Producer, Ring};

/// All rings of the process.
pub(crate) static RINGS: Rings = Rings {
    made: Mutex::new(Vec::new()),
    spare: Mutex::new(None),
    bytes: AtomicUsize::new(0),
    ring_bytes: AtomicUsize::new(1 << 20),
    bytes_max: AtomicUsize::new(64 << 20),
};

/// The rings made since the drain last looked, and the memory all of them take.
pub(crate) struct Rings {
    /// Locked for a push or a take only, so that no thread waits for a drain.
    made: Mutex<Vec<Consumer>>,
    /// A ring for the next thread that records, or whose ring is full: its pages are there already, so that no record
    /// pays for some hundred page faults.
    spare: Mutex<Option<(Producer, Consumer)>>,
    bytes: AtomicUsize,
    ring_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

/// Both locks of [`Rings`]; nobody else takes one while holding the other.
pub(crate) struct RingsLock<'a> {
    _made: MutexGuard<'a, Vec<Consumer>>,
    _spare: MutexGuard<'a, Option<(Producer, Consumer)>>,
}

impl Rings {
    /// Sizes of rings made from now on.
    pub(crate) fn configure(&self, ring_bytes: usize, bytes_max: usize) {
        self.ring_bytes.store(ring_bytes, Relaxed);
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// For a thread's first record.
    pub(super) fn make(&self) -> Option<Producer> {
        self.take_spare()
            .or_else(|| self.make_counted())
            .map(|ring| self.announce(ring))
    }

    /// For a thread that has no time to wait for a ring's memory.
    pub(super) fn take_other(&self) -> Option<Producer> {
        self.take_spare().map(|ring| self.announce(ring))
    }

    fn announce(&self, (producer, consumer): (Producer, Consumer)) -> Producer {
        // A poisoned list is still a list: nothing is half-done inside a push.
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(consumer);
        producer
    }

    /// A ring whose memory is counted, if there may be one more.
    fn make_counted(&self) -> Option<(Producer, Consumer)> {
        let ring_bytes = self.ring_bytes.load(Relaxed);
        if self.bytes.load(Relaxed) + ring_bytes > self.bytes_max.load(Relaxed) {
            return None;
        }
        let (producer, consumer) = Ring::with_bytes(ring_bytes);
        self.bytes.fetch_add(consumer.bytes(), Relaxed);
        Some((producer, consumer))
    }

    fn take_spare(&self) -> Option<(Producer, Consumer)> {
        let (producer, consumer) = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        if consumer.bytes() == Ring::bytes_for(self.ring_bytes.load(Relaxed)) {
            return Some((producer, consumer));
        }
        // Made for another configuration.
        self.forget(&consumer);
        None
    }

    /// Makes the spare ring if there is none. Not for recording threads: it touches all of the ring's memory.
    pub(crate) fn prepare_spare(&self) {
        let has_spare = || {
            self.spare
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some()
        };
        if !has_spare() {
            let made = self.make_counted();
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = made;
        }
    }

    /// The rings made since the last call.
    pub(crate) fn take_made(&self) -> Vec<Consumer> {
        std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps rings from being handed out until the result is dropped.
    pub(crate) fn lock(&self) -> RingsLock<'_> {
        RingsLock {
            _made: self.made.lock().unwrap_or_else(PoisonError::into_inner),
            _spare: self.spare.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// A ring is finished: it becomes the spare one, or is given back.
    pub(crate) fn recycle(&self, ring: Consumer) {
        let bytes = ring.bytes();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = ring.renew();
            if spare.is_some() {
                return;
            }
        }
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// A ring is no longer read.
    pub(crate) fn forget(&self, ring: &Consumer) {
        self.bytes.fetch_sub(ring.bytes(), Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}
