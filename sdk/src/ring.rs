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

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;

/// The longest record, in words of 8 bytes.
pub(crate) const RECORD_WORDS_MAX: usize = 512;

/// A bounded queue of records between one producer and one consumer.
pub(crate) struct Ring {
    words: Box<[UnsafeCell<u64>]>,
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
// `Ring::new` handing out one handle of each, neither of which can be cloned.
unsafe impl Sync for Ring {}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: std::sync::Arc<Ring>,
    head: usize,
    /// `tail` as last seen: reading the consumer's cache line only when the ring looks full.
    tail_seen: usize,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: std::sync::Arc<Ring>,
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
        // `vec![0]` is untouched zero pages from the kernel; writing ones' worth of them makes them present.
        let words: Box<[UnsafeCell<u64>]> =
            std::iter::repeat_with(|| UnsafeCell::new(u64::MAX)).take(capacity + RECORD_WORDS_MAX).collect();
        let ring = std::sync::Arc::new(Self {
            words,
            mask: capacity - 1,
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            retired: AtomicBool::new(false),
        });
        (Producer { ring: std::sync::Arc::clone(&ring), head: 0, tail_seen: 0 }, Consumer { ring })
    }
}

impl Ring {
    fn capacity_for(bytes: usize) -> usize {
        (bytes / 8).next_power_of_two().max(4 * RECORD_WORDS_MAX)
    }

    /// The memory of a ring made by [`with_bytes`](Self::with_bytes).
    pub(crate) fn bytes_for(bytes: usize) -> usize {
        (Self::capacity_for(bytes) + RECORD_WORDS_MAX) * 8
    }
}

impl Producer {
    /// Lets `fill` write one record into a place of [`RECORD_WORDS_MAX`] words and publishes the words it says it
    /// wrote. `false` when the ring has no room.
    #[inline]
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut [u64; RECORD_WORDS_MAX]) -> usize) -> bool {
        let ring = &*self.ring;
        let capacity = ring.mask + 1;
        if self.head.wrapping_sub(self.tail_seen) > capacity - RECORD_WORDS_MAX {
            self.tail_seen = ring.tail.load(Acquire);
            if self.head.wrapping_sub(self.tail_seen) > capacity - RECORD_WORDS_MAX {
                return false;
            }
        }
        let start = self.head & ring.mask;
        let first: *mut u64 = UnsafeCell::raw_get(ring.words[start..].as_ptr());
        // SAFETY: `start < capacity` and `words` has RECORD_WORDS_MAX more, so the place is in bounds. It is free: the
        // test above leaves RECORD_WORDS_MAX words between `head` and `tail + capacity`, and words run into beyond the
        // capacity belong to no other record (each record that starts below the capacity reads its own run). `u64`
        // has no invalid values, every word was initialised, and no other reference to these words exists.
        let place = unsafe { &mut *first.cast::<[u64; RECORD_WORDS_MAX]>() };
        let used = fill(place).min(RECORD_WORDS_MAX);
        self.head = self.head.wrapping_add(used);
        ring.head.store(self.head, Release);
        true
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
            let first: *const u64 = ring.words[start].get();
            // SAFETY: in bounds as in `write`. Words in [tail, head) were published by the release store of `head` and
            // are not written again before `tail` passes them. A shorter record's successors are in the slice too, or,
            // past the capacity, older words of the slack; either way they are initialised and not being written,
            // because the producer writes only from `head` on, which starts a whole record below or beyond them.
            let words = unsafe { std::slice::from_raw_parts(first, available) };
            let length = read_one(words).clamp(1, available);
            tail = tail.wrapping_add(length);
            // Freed record by record, so that a producer in a burst gets room early.
            ring.tail.store(tail, Release);
        }
    }

    /// Nothing will be written any more, and everything was read.
    pub(crate) fn is_finished(&self) -> bool {
        // `retired` first: it is stored after the last `head`.
        self.ring.retired.load(Acquire) && self.ring.head.load(Acquire) == self.ring.tail.load(Relaxed)
    }

    /// Memory of this ring.
    pub(crate) fn bytes(&self) -> usize {
        self.ring.words.len() * 8
    }
}

#[cfg(test)]
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
        for _ in 0..200 {
            while write(&mut producer, written, length_of(written)) {
                written += 1;
            }
            read = read_all(&mut consumer, read);
            assert_eq!(read, written);
        }
        assert!(written > 600, "{written}");
        assert!(!consumer.is_finished());
        drop(producer);
        assert!(consumer.is_finished());
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
