//! The rings of the process: those made, those that nobody writes to, and the memory all of them take.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ring::{Consumer, Producer, Ring};

/// All rings of the process.
pub(crate) static RINGS: Rings = Rings {
    made: Mutex::new(Vec::new()),
    free: Mutex::new([const { Vec::new() }; SIZES]),
    bytes: AtomicUsize::new(0),
    ring_bytes: AtomicUsize::new(1 << 20),
    bytes_max: AtomicUsize::new(64 << 20),
};

/// Small ones, middling ones, and those of the configured size.
const SIZES: usize = 3;
const SMALL_BYTES: usize = 16 << 10;
const MIDDLING_BYTES: usize = 128 << 10;
/// Rings of each size that are kept for those who need one next. Threads that live shortly take many small ones.
const FREE_MAX: [usize; SIZES] = [64, 4, 1];

/// A ring that nobody writes to.
type Free = (Producer, Consumer);

/// The rings made since the drain last looked, those that wait for a thread, and the memory all of them take.
pub(crate) struct Rings {
    /// Locked for a push or a take only, so that no thread waits for a drain.
    made: Mutex<Vec<Consumer>>,
    /// By size. Of the larger ones one is made ahead, with its pages: a thread that fills its ring has no time to wait for
    /// some hundred page faults.
    free: Mutex<[Vec<Free>; SIZES]>,
    bytes: AtomicUsize,
    ring_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

/// Both locks of [`Rings`]; nobody else takes one while holding the other.
pub(crate) struct RingsLock<'a> {
    _made: MutexGuard<'a, Vec<Consumer>>,
    _free: MutexGuard<'a, [Vec<Free>; SIZES]>,
}

/// What memory is for, from what may take the least of it.
#[derive(Clone, Copy)]
enum Purpose {
    /// More room for a thread that has a ring.
    Growth,
    /// A thread's first ring.
    Thread,
    /// A ring for all who have none.
    Shared,
}

impl Rings {
    /// Sizes of rings made from now on.
    pub(crate) fn configure(&self, ring_bytes: usize, bytes_max: usize) {
        self.ring_bytes.store(ring_bytes, Relaxed);
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Room in rings of a size, by its number.
    fn room(&self, number: usize) -> usize {
        let largest = self.ring_bytes.load(Relaxed);
        match number {
            0 => largest.min(SMALL_BYTES),
            1 => largest.min(MIDDLING_BYTES),
            _ => largest,
        }
    }

    /// Memory of a ring of that size.
    fn size(&self, number: usize) -> usize {
        Ring::bytes_for(self.room(number))
    }

    /// The part of all memory up to which there may be rings for this.
    fn bytes_max(&self, purpose: Purpose) -> usize {
        let max = self.bytes_max.load(Relaxed);
        match purpose {
            Purpose::Growth => max / 4 * 3,
            Purpose::Thread => max / 16 * 15,
            Purpose::Shared => max,
        }
    }

    /// For a thread's first record.
    pub(super) fn make(&self) -> Option<Producer> {
        self.take(0, Purpose::Thread)
    }

    /// For a thread that has filled half of a ring of so many bytes; `None`: there is none that is larger.
    pub(super) fn take_larger(&self, bytes: usize) -> Option<Producer> {
        let number = (0..SIZES).find(|&number| self.size(number) > bytes)?;
        self.take(number, Purpose::Growth)
    }

    /// For a thread that has filled a ring of so many bytes before it was read: as large a one as can be had.
    pub(super) fn take_other(&self, bytes: usize) -> Option<Producer> {
        let larger = self.take_larger(bytes);
        let same = (0..SIZES)
            .rev()
            .filter(|&number| self.size(number) <= bytes);
        let mut others = same.map(|number| self.take(number, Purpose::Growth));
        larger.or_else(|| others.find_map(|other| other))
    }

    /// For all threads that have none.
    pub(super) fn make_shared(&self) -> Option<Producer> {
        let ring = self.make_counted(1, Purpose::Shared, Ring::with_bytes)?;
        Some(self.announce(ring))
    }

    fn announce(&self, (producer, consumer): Free) -> Producer {
        // A poisoned list is still a list: nothing is half-done inside a push.
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(consumer);
        producer
    }

    /// A ring that is free, or else a new one without pages: they come one by one.
    fn take(&self, number: usize, purpose: Purpose) -> Option<Producer> {
        let free = loop {
            // Who asks does not wait for others.
            let free = self
                .free
                .try_lock()
                .ok()
                .and_then(|mut free| free[number].pop());
            match free {
                // Made for another configuration.
                Some((_, consumer)) if consumer.bytes() != self.size(number) => {
                    self.forget(&consumer);
                }
                free => break free,
            }
        };
        free.or_else(|| self.make_counted(number, purpose, Ring::with_promised_bytes))
            .map(|ring| self.announce(ring))
    }

    /// A ring whose memory is counted, if there may be one more.
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

    /// Makes a ring of each size if there is none. Not for recording threads: it touches all of the rings' memory.
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

    fn lock_free(&self) -> MutexGuard<'_, [Vec<Free>; SIZES]> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rings made since the last call.
    pub(crate) fn take_made(&self) -> Vec<Consumer> {
        std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps rings from being handed out until the result is dropped.
    pub(crate) fn lock(&self) -> RingsLock<'_> {
        RingsLock {
            _made: self.made.lock().unwrap_or_else(PoisonError::into_inner),
            _free: self.lock_free(),
        }
    }

    /// A ring is finished: it waits for the next who needs one, or is given back.
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

    /// A ring is no longer read.
    pub(crate) fn forget(&self, ring: &Consumer) {
        self.bytes.fetch_sub(ring.bytes(), Relaxed);
    }

    /// What a ring is measured by that is so full: a thread that fills a smaller one gets this one, unless there is no
    /// memory for it.
    pub(crate) fn bytes_to_fill(&self, ring: &Consumer) -> usize {
        let largest = self.size(SIZES - 1);
        if self.bytes().saturating_add(largest) <= self.bytes_max(Purpose::Growth) {
            largest
        } else {
            ring.bytes()
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}
