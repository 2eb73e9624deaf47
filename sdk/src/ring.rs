//! One ring per thread: a single producer writes records of 64-bit words, a single consumer (the drain) reads them.
//!
//! ```text
//!  words[0 .. capacity]                       words[capacity .. capacity + RECORD_WORDS_MAX]
//!  ├──────────────────────────────────────────┼──────────────┤
//!  a record starts at `head & mask` and may run past `capacity` into the slack, so it is never split
//! ```
//!
//! `head` and `tail` count words for ever. The producer publishes a whole record by storing `head` (release); the
//! consumer frees it by storing `tail` (release). Neither waits: a full ring refuses the record, and the caller counts
//! it. Positions advance by a record's length also when it ran into the slack, so the words it would have taken at
//! the front stay unused for that round; that keeps position arithmetic free of special cases.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(test, stroboscope_loom)))]
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize},
};

use crossbeam_utils::CachePadded;
#[cfg(all(test, stroboscope_loom))]
use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize},
};
use words::Words;

/// The longest record, in words of 8 bytes. Tiny when every interleaving is tried.
pub(crate) const RECORD_WORDS_MAX: usize = if cfg!(all(test, stroboscope_loom)) { 2 } else { 512 };
/// The smallest ring, in longest records.
const RECORDS_MIN: usize = if cfg!(all(test, stroboscope_loom)) { 2 } else { 4 };

/// A bounded queue of records between one producer and one consumer.
pub(crate) struct Ring {
    words: Words,
    mask: usize,
    /// Words ever written. Only the producer stores it.
    head: CachePadded<AtomicUsize>,
    /// Words ever read. Only the consumer stores it.
    tail: CachePadded<AtomicUsize>,
    /// The producer is gone; what is left may be read, then the ring may be dropped.
    retired: AtomicBool,
}

// SAFETY: `words` is the only part that is not `Sync`. `Producer::write` is the only writer and touches only words in
// [head, tail + capacity), `Consumer::read` the only reader and touches only words in [tail, head); the release stores
// and acquire loads of `head` and `tail` order the accesses. That there is one producer and one consumer is ensured by
// `Ring::with_bytes` handing out one handle of each, neither of which can be cloned. `loom` tries all interleavings of
// this in the tests below.
unsafe impl Sync for Ring {}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: Arc<Ring>,
    head: usize,
    /// `tail` as last seen,
    looked_at: usize,
    /// and how far beyond it to write before it is looked at again.
    unlooked: usize,
}

/// Whether a record finds a place, for who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Yes.
    Enough,
    /// Yes, but half of the ring is taken. Said when that is first seen, and once more before it is full.
    Half,
    /// No.
    None,
}

/// The reading end.
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
    /// A ring of at least `bytes` bytes (a power of two, at least four of the longest records), its pages touched so
    /// that the producer never meets a page fault.
    pub(crate) fn with_bytes(bytes: usize) -> (Producer, Consumer) {
        let capacity = Self::capacity_for(bytes);
        let words = Words::present(capacity + RECORD_WORDS_MAX);
        let ring = Arc::new(Self {
            words,
            mask: capacity - 1,
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            retired: AtomicBool::new(false),
        });
        (Producer { ring: Arc::clone(&ring), head: 0, looked_at: 0, unlooked: 0 }, Consumer { ring })
    }
}

impl Ring {
    fn capacity_for(bytes: usize) -> usize {
        (bytes / 8).next_power_of_two().max(RECORDS_MIN * RECORD_WORDS_MAX)
    }

    /// The memory of a ring made by [`with_bytes`](Self::with_bytes).
    pub(crate) fn bytes_for(bytes: usize) -> usize {
        (Self::capacity_for(bytes) + RECORD_WORDS_MAX) * 8
    }
}

impl Producer {
    /// Is there surely room for a record of any length? If not, [`look`](Self::look).
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.head.wrapping_sub(self.looked_at) <= self.unlooked
    }

    /// Looks at the consumer's cache line: only when the ring may be half full, and when it may be full.
    #[cold]
    pub(crate) fn look(&mut self) -> Room {
        let capacity = self.ring.mask + 1;
        let (half, used_max) = (capacity / 2, capacity - RECORD_WORDS_MAX);
        self.looked_at = self.ring.tail.load(Acquire);
        let used = self.head.wrapping_sub(self.looked_at);
        self.unlooked = if used <= half { half } else { used_max };
        match used {
            used if used <= half => Room::Enough,
            used if used <= used_max => Room::Half,
            _ => Room::None,
        }
    }

    /// Lets `fill` write one record into a place of [`RECORD_WORDS_MAX`] words and publishes the words it says it
    /// wrote. `false` when the ring has no room.
    #[cfg(test)]
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize) -> bool {
        if !self.has_room() && self.look() == Room::None {
            return false;
        }
        // SAFETY: there is room.
        unsafe { self.write_unasked(fill) };
        true
    }

    /// [`write`](Self::write) for who has asked already.
    ///
    /// # Safety
    /// Since the last record was written, [`has_room`](Self::has_room) or [`look`](Self::look) found room.
    #[inline(always)]
    pub(crate) unsafe fn write_unasked(&mut self, fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize) {
        let ring = &*self.ring;
        let start = self.head & ring.mask;
        // SAFETY: `start < capacity` and `words` has RECORD_WORDS_MAX more, so the place is in bounds. It is free: that
        // there is room leaves RECORD_WORDS_MAX words between `head` and `tail + capacity`, and words run into beyond the
        // capacity belong to no other record (each record that starts below the capacity reads its own run).
        let used = unsafe { ring.words.write(start, fill) }.min(RECORD_WORDS_MAX);
        self.head = self.head.wrapping_add(used);
        ring.head.store(self.head, Release);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.ring.retired.store(true, Release);
    }
}

impl Consumer {
    /// Reads what is there now. `read_one` is handed all unread words of the stretch that are contiguous from a
    /// record's start, and says how long that record is.
    pub(crate) fn read(&mut self, mut read_one: impl FnMut(&[u64]) -> usize) {
        let ring = &*self.ring;
        let head = ring.head.load(Acquire);
        let mut tail = ring.tail.load(Relaxed);
        while tail != head {
            let start = tail & ring.mask;
            let available = head.wrapping_sub(tail).min(RECORD_WORDS_MAX);
            // SAFETY: in bounds as in `write`. Words in [tail, head) were published by the release store of `head` and
            // are not written again before `tail` passes them. A shorter record's successors are in the slice too, or,
            // past the capacity, older words of the slack; either way they are not being written, because the producer
            // writes only from `head` on, which starts a whole record below or beyond them.
            let length = unsafe { ring.words.read(start, available, &mut read_one) }.clamp(1, available);
            tail = tail.wrapping_add(length);
            // Freed record by record, so that a producer in a burst gets room early.
            ring.tail.store(tail, Release);
        }
    }

    /// Nothing is there to be read now.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.head.load(Acquire) == self.ring.tail.load(Relaxed)
    }

    /// Nothing will be written any more, and everything was read.
    pub(crate) fn is_finished(&self) -> bool {
        // `retired` first: it is stored after the last `head`.
        self.ring.retired.load(Acquire) && self.is_empty()
    }

    /// A new ring of the memory of one that is [finished](Self::is_finished), whose pages are there already.
    pub(crate) fn renew(self) -> Option<(Producer, Self)> {
        let mut ring = self.ring;
        // None while the producer, which is retired, is not quite gone yet.
        let unshared = Arc::get_mut(&mut ring)?;
        *unshared.head = AtomicUsize::new(0);
        *unshared.tail = AtomicUsize::new(0);
        unshared.retired = AtomicBool::new(false);
        Some((Producer { ring: Arc::clone(&ring), head: 0, looked_at: 0, unlooked: 0 }, Self { ring }))
    }

    /// Memory of this ring.
    pub(crate) fn bytes(&self) -> usize {
        (self.ring.mask + 1 + RECORD_WORDS_MAX) * 8
    }
}

/// The memory of a ring.
#[cfg(not(all(test, stroboscope_loom)))]
mod words {
    use std::cell::UnsafeCell;

    use super::RECORD_WORDS_MAX;

    pub(super) struct Words(Box<[UnsafeCell<u64>]>);

    impl Words {
        /// So many words, written once, so that their pages are there: `vec![0]` would be the kernel's promise of pages.
        pub(super) fn present(length: usize) -> Self {
            Self(std::iter::repeat_with(|| UnsafeCell::new(u64::MAX)).take(length).collect())
        }

        /// Lends the [`RECORD_WORDS_MAX`] words from `start` to `fill`.
        ///
        /// # Safety
        /// They are in bounds, and nobody else reads or writes them meanwhile.
        #[inline(always)]
        pub(super) unsafe fn write(
            &self,
            start: usize,
            fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
        ) -> usize {
            debug_assert!(start + RECORD_WORDS_MAX <= self.0.len());
            // SAFETY: in bounds, as the caller ensures.
            let first: *mut u64 = UnsafeCell::raw_get(unsafe { self.0.as_ptr().add(start) });
            // SAFETY: in bounds and unshared, as the caller ensures. `u64` has no invalid values and every word was
            // initialised. The pointer comes from the whole slice, so it may reach all of the place.
            fill(unsafe { &mut *first.cast::<[u64; RECORD_WORDS_MAX]>() })
        }

        /// Lends the `length` words from `start` to `look`.
        ///
        /// # Safety
        /// They are in bounds, and nobody writes them meanwhile.
        #[inline]
        pub(super) unsafe fn read(
            &self,
            start: usize,
            length: usize,
            look: &mut impl FnMut(&[u64]) -> usize,
        ) -> usize {
            let first: *const u64 = UnsafeCell::raw_get(self.0[start..].as_ptr());
            // SAFETY: in bounds and not being written, as the caller ensures; every word was initialised. The pointer
            // comes from the slice from `start` on, so it may reach all of the words.
            look(unsafe { std::slice::from_raw_parts(first, length) })
        }
    }
}

/// The same, watched by `loom`: it reports an access to a word that another thread may be writing.
#[cfg(all(test, stroboscope_loom))]
mod words {
    use loom::cell::UnsafeCell;

    use super::RECORD_WORDS_MAX;

    pub(super) struct Words(Box<[UnsafeCell<u64>]>);

    impl Words {
        pub(super) fn present(length: usize) -> Self {
            Self(std::iter::repeat_with(|| UnsafeCell::new(u64::MAX)).take(length).collect())
        }

        /// Claims the whole place, as the real one does.
        pub(super) unsafe fn write(
            &self,
            start: usize,
            fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize,
        ) -> usize {
            let mut place = [u64::MAX; RECORD_WORDS_MAX];
            let used = fill(&mut place);
            for (cell, word) in self.0[start..start + RECORD_WORDS_MAX].iter().zip(place) {
                // SAFETY: `loom` checks that nobody else has the word.
                cell.with_mut(|there| unsafe { *there = word });
            }
            used
        }

        pub(super) unsafe fn read(
            &self,
            start: usize,
            length: usize,
            look: &mut impl FnMut(&[u64]) -> usize,
        ) -> usize {
            // SAFETY: `loom` checks that nobody writes the word.
            let words: Vec<u64> = self.0[start..start + length]
                .iter()
                .map(|cell| cell.with(|there| unsafe { *there }))
                .collect();
            look(&words)
        }
    }
}

/// Every interleaving of a producer and a consumer:
/// `RUSTFLAGS="--cfg stroboscope_loom" cargo test -p stroboscope --release --test ring_model`.
#[cfg(all(test, stroboscope_loom))]
mod ring_loom {
    use super::*;

    /// Records of these lengths, whose first word is number and length; all arrive, in order, whole. With at most so
    /// many preemptions, or any number of them.
    fn check(preemptions: Option<usize>, lengths: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let (mut producer, mut consumer) = Ring::with_bytes(0);
            assert_eq!(producer.ring.mask + 1, RECORDS_MIN * RECORD_WORDS_MAX);
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
                // Asked first: what is finished before a reading is empty after it.
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
        // The producer may be gone before the consumer looks.
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

    /// A record of `length` words: its length, then its number and a pattern made of both.
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
                assert_eq!(*word, next.wrapping_mul(31).wrapping_add(i as u64), "record {next}");
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
            assert!(consumer.is_empty() && !consumer.is_finished() && producer.look() != Room::None);
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
