//! Rings being read. They outlive the drain: a thread keeps its ring when recording stops and
//! starts again, and across a fork.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::record::{self, Lineage};
use crate::ring::Consumer;
use crate::thread::{self, RINGS};

/// Ring with the state needed to decode its records.
struct Read {
    ring: Consumer,
    /// Trace and spans of the records read so far, which later records may omit.
    lineage: Lineage,
}

impl Read {
    fn new(ring: Consumer) -> Self {
        Self {
            ring,
            lineage: Lineage::UNKNOWN,
        }
    }

    /// Passes each available record to `take`. Returns the number of words read.
    fn read(&mut self, mut take: impl FnMut(&[u64])) -> usize {
        let (lineage, mut words_read) = (&mut self.lineage, 0);
        self.ring.read(|words| {
            let length = record::length(words);
            let record = &words[..length];
            lineage.follow(record);
            take(record);
            words_read += length;
            length
        });
        words_read
    }
}

/// Rings that this process reads, and its state after a fork.
pub(crate) struct DrainedRings {
    rings: Vec<Read>,
    /// Thread that survived in a forked child, until recording next starts.
    survivor: Option<ThreadId>,
}

impl DrainedRings {
    fn take_made(&mut self) {
        self.rings
            .extend(RINGS.take_made().into_iter().map(Read::new));
    }

    /// Records the surviving thread in the child of a fork.
    pub(crate) fn forked(&mut self) {
        self.survivor = Some(std::thread::current().id());
    }
}

static KNOWN: Mutex<DrainedRings> = Mutex::new(DrainedRings {
    rings: Vec::new(),
    survivor: None,
});

pub(crate) fn lock() -> MutexGuard<'static, DrainedRings> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Discards the rings' contents when recording starts.
///
/// In the thread that survived a fork, this also forgets the rings of threads that exist only in
/// the parent. Their memory is not freed, and no longer counts against the limit. Any other thread
/// keeps all rings, because it cannot tell which ring belongs to which thread.
pub(crate) fn start_anew() {
    let mut known = lock();
    let known = &mut *known;
    known.take_made();
    for ring in &mut known.rings {
        ring.read(|_| {});
    }
    if known.survivor.take() == Some(std::thread::current().id()) {
        // The ring in which this thread's test record appears is the thread's own, or a shared one
        // that the thread uses.
        thread::forget_shared();
        let probed = thread::write(|place, lineage| record::write_end(place, lineage, 0, 0, 0));
        known.take_made();
        known.rings.retain_mut(|read| {
            let own = probed && read.read(|_| {}) > 0;
            if !own {
                RINGS.forget(&read.ring);
            }
            own
        });
    }
}

/// Appends the words of all available records to `raw`, the words of each ring after a CONTEXT
/// record. Returns how full the fullest ring was, in 1/256 of `RINGS.bytes_to_fill`.
pub(crate) fn read_all(raw: &mut Vec<u64>) -> usize {
    let mut known = lock();
    known.take_made();
    let mut fullest = 0;
    for ring in &mut known.rings {
        if ring.ring.is_empty() {
            continue;
        }
        raw.extend_from_slice(&ring.lineage.as_record());
        let words_read = ring.read(|record| raw.extend_from_slice(record));
        fullest = fullest.max(words_read * 8 * 256 / RINGS.bytes_to_fill(&ring.ring));
    }
    fullest
}

/// Releases empty rings to which no thread will write again.
pub(crate) fn forget_finished() {
    let finished: Vec<Read> = lock()
        .rings
        .extract_if(.., |read| read.ring.is_finished())
        .collect();
    for read in finished {
        RINGS.recycle(read.ring);
    }
}

/// Returns the number of rings being read.
#[cfg(test)]
pub(crate) fn count() -> usize {
    lock().rings.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::callsite::Callsite;
    use crate::clock_steps::TURN;
    use crate::loss::{LOSSES, LossCause};
    use crate::record::{Head, Record, RecordKind};

    static CALLSITE: Callsite = Callsite::new("event", &[], file!(), line!());

    fn try_event(trace_id: u128, ticks: u64) -> bool {
        let head = Head {
            kind: RecordKind::Event,
            flags: 0,
            ticks,
            callsite: &CALLSITE,
            trace_id,
            span_id: 3,
            parent_id: 0,
        };
        thread::write(|place, lineage| record::write(place, lineage, &head, |_| {}))
    }

    fn write_event(trace_id: u128, ticks: u64) {
        assert!(try_event(trace_id, ticks));
    }

    /// Returns trace ids and ticks of this test's events.
    fn read() -> Vec<(u128, u64)> {
        let (mut raw, mut seen, mut lineage) = (Vec::new(), Vec::new(), Lineage::UNKNOWN);
        read_all(&mut raw);
        let mut rest = raw.as_slice();
        while !rest.is_empty() {
            let (this, others) = rest.split_at(record::length(rest));
            match record::read(this, &mut lineage) {
                Record::Full { head, .. } if std::ptr::eq(head.callsite, &raw const CALLSITE) => {
                    seen.push((head.trace_id, head.ticks));
                }
                _ => {}
            }
            rest = others;
        }
        seen
    }

    /// Checks that each ring keeps its own last context between readings and across skipped
    /// records.
    #[test]
    fn events_keep_their_spans_from_reading_to_reading() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (ask, asked) = std::sync::mpsc::channel::<u64>();
        let (answer, answered) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            for ticks in asked {
                write_event(7, ticks);
                answer.send(()).unwrap();
            }
        });
        let both = |ticks| {
            write_event(5, ticks);
            ask.send(ticks).unwrap();
            answered.recv().unwrap();
        };
        both(1);
        start_anew();
        for ticks in 2..5 {
            both(ticks);
            both(ticks + 10);
            let mut seen = read();
            seen.sort_unstable();
            assert_eq!(
                seen,
                [(5, ticks), (5, ticks + 10), (7, ticks), (7, ticks + 10)]
            );
        }
        drop(ask);
        other.join().unwrap();
    }

    #[test]
    fn a_ring_that_is_filled_makes_way_for_a_larger_one() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        start_anew();
        RINGS.prepare_spares();
        let before = RINGS.bytes();
        // Each event takes 3 words: the small ring holds a few hundred, the medium one some
        // thousands.
        let count = 40_000;
        let recording = std::thread::spawn(move || {
            write_event(9, 0);
            let first = RINGS.bytes();
            (1..count).for_each(|ticks| write_event(9, ticks));
            (first, RINGS.bytes())
        });
        let (first, last) = recording.join().unwrap();
        assert_eq!(first, before, "the first one was there");
        assert_eq!(last, before, "and the larger ones");
        let expected: Vec<_> = (0..count).map(|ticks| (9, ticks)).collect();
        assert_eq!(read(), expected);
        // Released rings wait for the next thread.
        forget_finished();
        assert_eq!(RINGS.bytes(), before);
    }

    /// Checks that threads without memory for a ring, and threads being torn down, share rings.
    #[test]
    fn threads_without_a_ring_share_some_and_count_what_is_lost() {
        const THREADS: u64 = 200;
        struct AtEnd;
        impl Drop for AtEnd {
            fn drop(&mut self) {
                try_event(11, 1_000);
            }
        }
        thread_local!(static AT_END: AtEnd = const { AtEnd });
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        start_anew();
        // Leaves memory for about forty more threads of 20 KiB each, and for some shared rings.
        RINGS.configure(16 << 10, RINGS.bytes() + (1 << 20));
        let lost_before = LOSSES.get(LossCause::NoRing);
        let all_are_there = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            let recording = (0..THREADS).map(|thread| {
                let all_are_there = &all_are_there;
                scope.spawn(move || {
                    AT_END.with(|_| ());
                    for n in 0..4 {
                        try_event(10, thread * 4 + n);
                    }
                    all_are_there.wait();
                })
            });
            // A scope ends before its threads' locals are dropped; joined threads are fully gone.
            let recording: Vec<_> = recording.collect();
            recording
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        });
        let bytes = RINGS.bytes();
        RINGS.configure(1 << 20, 64 << 20);
        let lost = LOSSES.get(LossCause::NoRing) - lost_before;
        let seen = read();
        let mut once: BTreeSet<_> = seen.iter().filter(|(which, _)| *which == 10).collect();
        let ends = seen.iter().filter(|seen| **seen == (11, 1_000)).count();
        assert_eq!(
            once.len() + ends,
            seen.len(),
            "nothing else, and nothing twice"
        );
        once.retain(|(_, ticks)| *ticks < THREADS * 4);
        assert_eq!((once.len() + ends) as u64 + lost, THREADS * 5);
        // If the system interrupts as many threads within a record as there are shared rings,
        // writers drop records instead of waiting.
        assert!(lost <= THREADS * 5 / 100, "{lost}");
        assert!(bytes < (20 << 10) * THREADS as usize, "{bytes}");
        forget_finished();
    }
}
