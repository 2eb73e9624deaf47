//! Registry of the process's rings: new rings, free rings, and the memory of all rings.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ring::{Consumer, ConsumerStack, Producer, Ring};

/// Registry of the process's rings.
pub(crate) static RINGS: Rings = Rings {
    made: ConsumerStack::new(),
    free: Mutex::new([const { Vec::new() }; SIZES]),
    bytes: AtomicUsize::new(0),
    ring_bytes: AtomicUsize::new(1 << 20),
    bytes_max: AtomicUsize::new(64 << 20),
};

/// Number of ring sizes: small, medium and the configured size.
const SIZES: usize = 3;
const SMALL_BYTES: usize = 16 << 10;
const MIDDLING_BYTES: usize = 128 << 10;
/// Maximum number of free rings kept of each size. Short-lived threads use many small ones.
const FREE_MAX: [usize; SIZES] = [64, 4, 1];

/// Both ends of a ring that no thread writes to.
type Free = (Producer, Consumer);

/// Guard of the free rings.
pub(crate) type FreeLock<'a> = MutexGuard<'a, [Vec<Free>; SIZES]>;

/// Rings handed out since the drain's last reading, free rings, and the memory of all rings.
pub(crate) struct Rings {
    /// Rings handed out since the drain's last reading.
    made: ConsumerStack,
    /// Free rings by size. The drain prepares one of each size with its pages: a thread that fills
    /// its ring has no time for some hundred page faults.
    free: Mutex<[Vec<Free>; SIZES]>,
    bytes: AtomicUsize,
    ring_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

/// Purpose of memory, ordered by the share of memory it may use, smallest first.
#[derive(Clone, Copy)]
enum Purpose {
    /// Another ring for a thread that has one, or a spare.
    Growth,
    /// A ring of its own for a thread that has none.
    Thread,
    /// A ring shared by threads that have none of their own.
    Shared,
}

impl Rings {
    /// Sets the largest size of rings created from now on, and the limit of all rings' memory.
    pub(crate) fn configure(&self, ring_bytes: usize, bytes_max: usize) {
        self.ring_bytes.store(ring_bytes, Relaxed);
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Returns the capacity to request, in bytes, for a ring of a size class: 0 is small, 1 is
    /// medium, 2 is the configured size, which also limits the others.
    fn room(&self, number: usize) -> usize {
        let largest = self.ring_bytes.load(Relaxed);
        match number {
            0 => largest.min(SMALL_BYTES),
            1 => largest.min(MIDDLING_BYTES),
            _ => largest,
        }
    }

    /// Returns the memory of a ring of a size class, in bytes.
    fn size(&self, number: usize) -> usize {
        Ring::bytes_for(self.room(number))
    }

    /// Returns the total memory of all rings, in bytes, up to which rings may be created for this
    /// purpose. This is 3/4 of the limit for growth, 15/16 for threads without a ring, all of it
    /// for shared rings.
    fn bytes_max(&self, purpose: Purpose) -> usize {
        let max = self.bytes_max.load(Relaxed);
        match purpose {
            Purpose::Growth => max / 4 * 3,
            Purpose::Thread => max / 16 * 15,
            Purpose::Shared => max,
        }
    }

    /// Returns a ring for a thread that has none; `None` if the memory limit allows none.
    pub(super) fn make(&self) -> Option<Producer> {
        self.take(0, Purpose::Thread)
    }

    /// Returns a ring of the next larger size for a thread that has filled at least half of a ring
    /// of this memory size, in bytes. Returns `None` if there is no larger size, or no memory for
    /// it.
    pub(super) fn take_larger(&self, bytes: usize) -> Option<Producer> {
        let number = (0..SIZES).find(|&number| self.size(number) > bytes)?;
        self.take(number, Purpose::Growth)
    }

    /// Returns a ring for a thread that has filled a ring of this memory size, in bytes, before the
    /// drain read it. The ring has the next larger size or is, failing that, the largest available
    /// one of at most this size. Returns `None` if neither is available.
    pub(super) fn take_other(&self, bytes: usize) -> Option<Producer> {
        let larger = self.take_larger(bytes);
        let same = (0..SIZES)
            .rev()
            .filter(|&number| self.size(number) <= bytes);
        let mut others = same.map(|number| self.take(number, Purpose::Growth));
        larger.or_else(|| others.find_map(|other| other))
    }

    /// Returns a ring that threads without a ring share; `None` if the memory limit allows none.
    pub(super) fn make_shared(&self) -> Option<Producer> {
        self.take(1, Purpose::Shared)
    }

    /// Returns a free ring or a new one. The pages of a thread's new ring are allocated at their
    /// first use, those of a new shared ring at once: while a thread waits for a page, no other
    /// thread can use the ring. A free ring may have pages to be allocated. Returns `None` if the
    /// memory limit allows no new ring.
    fn take(&self, number: usize, purpose: Purpose) -> Option<Producer> {
        let free = loop {
            // The caller does not wait while another thread uses the list.
            let free = self
                .free
                .try_lock()
                .ok()
                .and_then(|mut free| free[number].pop());
            match free {
                // The ring was created for another configuration.
                Some((_, consumer)) if consumer.bytes() != self.size(number) => {
                    self.forget(&consumer);
                }
                free => break free,
            }
        };
        let make = match purpose {
            Purpose::Growth | Purpose::Thread => Ring::with_promised_bytes,
            Purpose::Shared => Ring::with_bytes,
        };
        let (producer, consumer) = free.or_else(|| self.make_counted(number, purpose, make))?;
        self.made.push(consumer);
        Some(producer)
    }

    /// Creates a ring and counts its memory. Returns `None` if the limit for this purpose would be
    /// exceeded.
    fn make_counted(
        &self,
        number: usize,
        purpose: Purpose,
        make: fn(usize) -> Free,
    ) -> Option<Free> {
        let (bytes, max) = (self.size(number), self.bytes_max(purpose));
        let with = |taken: usize| taken.checked_add(bytes).filter(|&sum| sum <= max);
        self.bytes.fetch_update(Relaxed, Relaxed, with).ok()?;
        Some(make(self.room(number)))
    }

    /// Creates a free ring of each size that has none, if the memory limit allows it. Not for
    /// recording threads, because it touches all of the rings' memory.
    pub(crate) fn prepare_spares(&self) {
        for number in 0..SIZES {
            let has_spare = |free: &[Vec<Free>; SIZES]| !free[number].is_empty();
            if has_spare(&self.lock_free()) {
                continue;
            }
            let made = self.make_counted(number, Purpose::Growth, Ring::with_bytes);
            if let Some(made) = made {
                self.lock_free()[number].push(made);
            }
        }
    }

    /// Locks the free rings. Meanwhile, threads that need a ring get no free one.
    pub(crate) fn lock_free(&self) -> FreeLock<'_> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rings handed out since the last call.
    pub(crate) fn take_made(&self) -> Vec<Consumer> {
        self.made.take_all()
    }

    /// Keeps a finished ring for reuse if it has one of the current sizes, fewer than [`FREE_MAX`]
    /// rings of that size are free, and its producer no longer exists. Otherwise frees it.
    pub(crate) fn recycle(&self, ring: Consumer) {
        let bytes = ring.bytes();
        let mut free = self.lock_free();
        let has_place =
            |&number: &usize| self.size(number) == bytes && free[number].len() < FREE_MAX[number];
        if let Some(number) = (0..SIZES).find(has_place)
            && let Some(ring) = ring.renew()
        {
            free[number].push(ring);
            return;
        }
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Stops counting the memory of a ring that is no longer read.
    pub(crate) fn forget(&self, ring: &Consumer) {
        self.bytes.fetch_sub(ring.bytes(), Relaxed);
    }

    /// Returns the size, in bytes, relative to which the fill of a ring is measured. If there is
    /// memory for a ring of the largest size, it is that size, because a thread that fills a
    /// smaller ring of its own then gets a larger one. Otherwise, it is the ring's own size.
    pub(crate) fn bytes_to_fill(&self, ring: &Consumer) -> usize {
        let largest = self.size(SIZES - 1);
        if self.bytes().saturating_add(largest) <= self.bytes_max(Purpose::Growth) {
            largest
        } else {
            ring.bytes()
        }
    }

    /// Reports whether the rings take more memory than growth may use. Threads will then soon need
    /// shared rings.
    pub(super) fn nears_limit(&self) -> bool {
        self.bytes() > self.bytes_max(Purpose::Growth)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}
