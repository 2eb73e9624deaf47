//! Ring, usually of one thread: a single producer writes records of 64-bit words, and a single
//! consumer (the drain) reads them.
//!
//! ```text
//!  words[0 .. capacity]                       words[capacity .. capacity + RECORD_WORDS_MAX]
//!  ├──────────────────────────────────────────┼──────────────┤
//!  a record starts at `head & mask` and may run past `capacity` into the slack, so it is never split
//! ```
//!
//! `head` and `tail` count words without wrapping to the ring's size. The producer publishes a
//! whole record by storing `head` (release); the consumer frees it by storing `tail` (release).
//! Neither waits: a full ring takes no record. Positions advance by a record's length even if the
//! record ran into the slack. The next round then leaves as many words at the front unused as the
//! record took in the slack. This avoids special cases in the position arithmetic.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(test, stroboscope_loom)))]
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicPtr, AtomicUsize},
};

use crossbeam_utils::CachePadded;
#[cfg(all(test, stroboscope_loom))]
use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize},
};
#[cfg(not(all(test, stroboscope_loom)))]
pub(crate) use stack::ConsumerStack;
use words::{PlacePointer, Words};

// Included by path, because a test compiles this file again from another directory.
#[cfg(not(all(test, stroboscope_loom)))]
#[path = "ring/stack.rs"]
mod stack;
#[cfg(all(test, stroboscope_loom))]
#[path = "ring/watched_words.rs"]
mod words;
#[cfg(not(all(test, stroboscope_loom)))]
#[path = "ring/words.rs"]
mod words;

/// Maximum length of a record, in words of 8 bytes. It is tiny under loom, which explores every
/// interleaving.
pub(crate) const RECORD_WORDS_MAX: usize = if cfg!(all(test, stroboscope_loom)) {
    2
} else {
    512
};
/// Minimum size of a ring, in records of maximum length.
const RECORDS_MIN: usize = if cfg!(all(test, stroboscope_loom)) {
    2
} else {
    4
};

/// Bounded queue of records between one producer and one consumer.
pub(crate) struct Ring {
    words: Words,
    mask: usize,
    /// Number of words written since the ring was created or renewed. While there is a producer,
    /// only it stores this.
    head: CachePadded<AtomicUsize>,
    /// Number of words read since the ring was created or renewed. Only the consumer stores it.
    tail: CachePadded<AtomicUsize>,
    /// True once the producer is gone: the remaining records may be read, then the ring may be
    /// renewed or dropped.
    retired: AtomicBool,
    /// Ring below this one in a [`ConsumerStack`].
    #[cfg(not(all(test, stroboscope_loom)))]
    below: AtomicPtr<Ring>,
}

// SAFETY: `words` is the only part that is not `Sync`. `Producer::write_unasked` is the only writer
// and touches only words in [head, tail + capacity); `Consumer::read` is the only reader and
// touches only words in [tail, head). The release stores and acquire loads of `head` and `tail`
// order the accesses. `Ring::of` returns one producer and one consumer, and neither can be cloned.
// The tests below check interleavings with `loom`.
unsafe impl Sync for Ring {}

/// Writing end of a ring, laid out for the fast path: a write reaches the record's location and the
/// ring's `head` without following the pointer to the ring.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Producer {
    head: usize,
    /// Position from which on [`look`](Self::look) is required before writing. 0 without a ring, so
    /// one comparison covers both.
    limit: usize,
    mask: usize,
    /// Pointers into `ring`, which keeps their targets alive.
    place: PlacePointer,
    published: *const AtomicUsize,
    ring: Option<Arc<Ring>>,
}

/// Available space for a record, as found by [`Producer::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A record fits.
    Enough,
    /// A record fits, but more than half of the ring is full.
    Half,
    /// A record of maximum length does not fit.
    None,
}

/// Reading end of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Arc<Ring>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("capacity_words", &(self.mask + 1))
            .field("head", &self.head.load(Relaxed))
            .field("tail", &self.tail.load(Relaxed))
            .field("retired", &self.retired.load(Relaxed))
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a ring of `bytes` bytes: whole words, rounded up to a power of two, at least four
    /// maximum records. Its pages are touched, so that the producer's first accesses cause no page
    /// faults.
    pub(crate) fn with_bytes(bytes: usize) -> (Producer, Consumer) {
        Self::of(Words::present, bytes)
    }

    /// Creates a ring like [`with_bytes`](Self::with_bytes), but faster: most pages are allocated
    /// only when they are written to.
    #[cfg(not(all(test, stroboscope_loom)))]
    pub(crate) fn with_promised_bytes(bytes: usize) -> (Producer, Consumer) {
        Self::of(Words::promised, bytes)
    }

    fn of(words: fn(usize) -> Words, bytes: usize) -> (Producer, Consumer) {
        let capacity = Self::capacity_for(bytes);
        let words = words(capacity + RECORD_WORDS_MAX);
        let ring = Arc::new(Self {
            words,
            mask: capacity - 1,
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            retired: AtomicBool::new(false),
            #[cfg(not(all(test, stroboscope_loom)))]
            below: AtomicPtr::default(),
        });
        (Producer::of(Arc::clone(&ring)), Consumer { ring })
    }

    fn capacity_for(bytes: usize) -> usize {
        (bytes / 8)
            .next_power_of_two()
            .max(RECORDS_MIN * RECORD_WORDS_MAX)
    }

    fn bytes(&self) -> usize {
        (self.mask + 1 + RECORD_WORDS_MAX) * 8
    }

    /// Returns the memory, in bytes, of a ring created by [`with_bytes`](Self::with_bytes).
    pub(crate) fn bytes_for(bytes: usize) -> usize {
        (Self::capacity_for(bytes) + RECORD_WORDS_MAX) * 8
    }
}

// SAFETY: the pointers lead into the ring, which its `Arc` keeps alive and which any thread may
// use.
unsafe impl Send for Producer {}

impl Producer {
    /// Producer without a ring; it never has space.
    pub(crate) const NONE: Self = Self {
        head: 0,
        limit: 0,
        mask: 0,
        place: PlacePointer::NONE,
        published: std::ptr::null(),
        ring: None,
    };

    /// Creates the producer of an empty ring.
    fn of(ring: Arc<Ring>) -> Self {
        let (mask, place, published) = (ring.mask, ring.words.place(), &raw const *ring.head);
        Self {
            head: 0,
            limit: 1,
            mask,
            place,
            published,
            ring: Some(ring),
        }
    }

    /// Reports whether a record of any length certainly fits. If not, call [`look`](Self::look).
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.head < self.limit
    }

    /// Returns the ring's memory in bytes; 0 without a ring.
    pub(crate) fn bytes(&self) -> usize {
        self.ring.as_ref().map_or(0, |ring| ring.bytes())
    }

    /// Returns the number of words written since the ring was created or renewed.
    #[inline(always)]
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    /// Returns the available space. It reads the consumer's cache line, so the fast path calls it
    /// only if [`has_room`](Self::has_room) is false, when the ring may be half full or full.
    #[cold]
    pub(crate) fn look(&mut self) -> Room {
        let Some(ring) = &self.ring else {
            return Room::None;
        };
        let capacity = self.mask + 1;
        let (half, used_max) = (capacity / 2, capacity - RECORD_WORDS_MAX);
        let tail = ring.tail.load(Acquire);
        let used = self.head.wrapping_sub(tail);
        let unlooked = if used <= half { half } else { used_max };
        // If 32-bit positions are about to overflow, this forces a look before every record until
        // they have.
        let record_end_max = tail.checked_add(unlooked + 1 + RECORD_WORDS_MAX);
        self.limit = record_end_max.map_or(0, |end| end - RECORD_WORDS_MAX);
        match used {
            used if used <= half => Room::Enough,
            used if used <= used_max => Room::Half,
            _ => Room::None,
        }
    }

    /// Lets `fill` write one record into a slice of [`RECORD_WORDS_MAX`] words, and publishes the
    /// number of words it returns. Returns `false` if the ring has no space.
    #[cfg(test)]
    pub(crate) fn write(
        &mut self,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
    ) -> bool {
        if !self.has_room() && self.look() == Room::None {
            return false;
        }
        // SAFETY: the check above found space.
        unsafe { self.write_unasked(fill) };
        true
    }

    /// Writes a record like [`write`](Self::write), without checking for space.
    ///
    /// # Safety
    /// Since the last record was written, [`has_room`](Self::has_room) or [`look`](Self::look) must
    /// have found space.
    #[inline(always)]
    pub(crate) unsafe fn write_unasked(
        &mut self,
        fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
    ) {
        let start = self.head & self.mask;
        // SAFETY: the caller found space, so there is a ring, which `self` keeps alive.
        // `start < capacity` and its words have RECORD_WORDS_MAX more, so the slice is in bounds.
        // It is free: the space found leaves RECORD_WORDS_MAX words between `head` and
        // `tail + capacity`, and only the last record of a round uses words beyond the capacity.
        let used = unsafe { self.place.write(start, fill) }.min(RECORD_WORDS_MAX);
        self.head = self.head.wrapping_add(used);
        // SAFETY: as above, there is a ring.
        unsafe { &*self.published }.store(self.head, Release);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            ring.retired.store(true, Release);
        }
    }
}

impl Consumer {
    /// Reads the available records. `read_one` receives at most [`RECORD_WORDS_MAX`] words from a
    /// record's start, which may include other words after the record. It returns the length of
    /// that record in words.
    pub(crate) fn read(&mut self, mut read_one: impl FnMut(&[u64]) -> usize) {
        let ring = &*self.ring;
        let head = ring.head.load(Acquire);
        let mut tail = ring.tail.load(Relaxed);
        while tail != head {
            let start = tail & ring.mask;
            let available = head.wrapping_sub(tail).min(RECORD_WORDS_MAX);
            // SAFETY: in bounds as in `write_unasked`. Words in [tail, head) were published by the
            // release store of `head` and are not written again before `tail` passes them. The
            // slice also contains a shorter record's successors or, past the capacity, older words
            // of the slack. No thread is writing these either: the producer writes one record's
            // place from `head` on, which lies wholly before or after the slice.
            let length =
                unsafe { ring.words.read(start, available, &mut read_one) }.clamp(1, available);
            tail = tail.wrapping_add(length);
            // Frees each record separately, so that a producer in a burst gets space early.
            ring.tail.store(tail, Release);
        }
    }

    /// Reports whether there is currently nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.head.load(Acquire) == self.ring.tail.load(Relaxed)
    }

    /// Reports whether the producer is gone and all records were read.
    pub(crate) fn is_finished(&self) -> bool {
        // `retired` is loaded first, because it is stored after the last `head`.
        self.ring.retired.load(Acquire) && self.is_empty()
    }

    /// Creates a new ring from the memory of a [finished](Self::is_finished) one. Returns `None`
    /// while the old producer is still being dropped.
    pub(crate) fn renew(self) -> Option<(Producer, Self)> {
        let mut ring = self.ring;
        // Fails while the retired producer still has its reference.
        let unshared = Arc::get_mut(&mut ring)?;
        *unshared.head = AtomicUsize::new(0);
        *unshared.tail = AtomicUsize::new(0);
        unshared.retired = AtomicBool::new(false);
        Some((Producer::of(Arc::clone(&ring)), Self { ring }))
    }

    /// Returns the ring's memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.ring.bytes()
    }
}

/// Checks interleavings of a producer and a consumer:
/// `RUSTFLAGS="--cfg stroboscope_loom" cargo test -p stroboscope --release --test ring_model`.
#[cfg(all(test, stroboscope_loom))]
mod ring_loom {
    use super::*;

    /// Writes records of these lengths, whose first word has number and length, and checks that all
    /// arrive whole and in order. `preemptions` limits the preemptions; `None` allows any number.
    fn check(preemptions: Option<usize>, lengths: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let (mut producer, mut consumer) = Ring::with_bytes(0);
            assert_eq!(producer.mask + 1, RECORDS_MIN * RECORD_WORDS_MAX);
            let writer = loom::thread::spawn(move || {
                for (number, &length) in lengths.iter().enumerate() {
                    let fill = |place: &mut [u64; RECORD_WORDS_MAX]| {
                        place.fill(number as u64);
                        place[0] = (number << 8 | length) as u64;
                        length
                    };
                    while !producer.write(fill) {
                        loom::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            loop {
                // Checked first: a finished ring has nothing left to read.
                let finished = consumer.is_finished();
                consumer.read(|words| {
                    assert!(!finished, "finished, yet there was more");
                    let length = words[0] as usize & 0xff;
                    assert_eq!((words[0] as usize >> 8, length), (next, lengths[next]));
                    assert!(words[1..length].iter().all(|&word| word == next as u64));
                    next += 1;
                    length
                });
                if finished {
                    break;
                }
                loom::thread::yield_now();
            }
            assert_eq!(next, lengths.len());
            writer.join().unwrap();
        });
    }

    #[test]
    fn few_records_in_every_interleaving() {
        // The producer may end before the consumer looks.
        check(None, &[1]);
        check(None, &[1, 2]);
        check(None, &[2, 2, 2]);
        check(None, &[1, 2, 2]);
        check(None, &[2, 1, 2]);
        check(None, &[1, 2, 1, 2]);
    }

    #[test]
    fn more_records_in_most_interleavings() {
        check(Some(3), &[1, 1, 1, 1, 1, 1]);
        check(Some(3), &[2, 2, 2, 2]);
        check(Some(3), &[1, 2, 2, 1, 2]);
        check(Some(3), &[2, 1, 2, 2]);
    }
}

#[cfg(all(test, not(stroboscope_loom)))]
mod tests {
    use super::*;

    /// Writes a record of `length` words: its length, then a pattern of number and position.
    fn write(producer: &mut Producer, number: u64, length: usize) -> bool {
        producer.write(|place| {
            place[0] = length as u64;
            for (i, word) in place[1..length].iter_mut().enumerate() {
                *word = number.wrapping_mul(31).wrapping_add(i as u64);
            }
            length
        })
    }

    fn read_all(consumer: &mut Consumer, mut next: u64) -> u64 {
        consumer.read(|words| {
            let length = words[0] as usize;
            for (i, word) in words[1..length].iter().enumerate() {
                assert_eq!(
                    *word,
                    next.wrapping_mul(31).wrapping_add(i as u64),
                    "record {next}"
                );
            }
            next += 1;
            length
        });
        next
    }

    fn length_of(number: u64) -> usize {
        2 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (RECORD_WORDS_MAX - 2)
    }

    #[test]
    fn refuses_when_full_and_goes_on_when_read() {
        let (mut producer, mut consumer) = Ring::with_bytes(0);
        let (mut written, mut read) = (0, 0);
        let rounds = if cfg!(miri) { 3 } else { 200 };
        for _ in 0..rounds {
            while write(&mut producer, written, length_of(written)) {
                written += 1;
            }
            read = read_all(&mut consumer, read);
            assert_eq!(read, written);
        }
        assert!(written > 3 * rounds, "{written}");
        assert!(!consumer.is_finished());
        drop(producer);
        assert!(consumer.is_finished());
    }

    #[test]
    fn a_finished_ring_is_made_new() {
        let (mut producer, mut consumer) = Ring::with_bytes(0);
        for round in 0..3 {
            let mut written = 0;
            while write(&mut producer, written, length_of(written)) {
                written += 1;
            }
            assert!(!producer.has_room() && producer.look() == Room::None);
            assert_eq!(read_all(&mut consumer, 0), written);
            assert_ne!(producer.look(), Room::None);
            drop(producer);
            assert!(consumer.is_finished() && written > 0, "round {round}");
            (producer, consumer) = consumer.renew().expect("nobody else has it");
            assert!(
                consumer.is_empty() && !consumer.is_finished() && producer.look() != Room::None
            );
        }
    }

    #[test]
    fn two_threads_see_every_record_in_order() {
        let (mut producer, mut consumer) = Ring::with_bytes(32 << 10);
        let total = if cfg!(miri) { 300 } else { 200_000 };
        let writer = std::thread::spawn(move || {
            for number in 0..total {
                while !write(&mut producer, number, length_of(number)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut read = 0;
        while !consumer.is_finished() {
            read = read_all(&mut consumer, read);
        }
        writer.join().unwrap();
        assert_eq!(read, total);
    }
}
