//! Generates trace ids, and span ids outside of the fast path. Trace ids are random; span ids count
//! up below a random prefix.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of bits for the counter below a span id's random prefix, which takes the rest of 64 bits.
const COUNTER_BITS: u32 = 20;

/// Generator of ids and random numbers for one thread. It has no destructor, as thread-locals of
/// the fast path require.
#[derive(Debug)]
pub(crate) struct IdSource {
    state: Cell<u64>,
    next_span: Cell<u64>,
}

impl IdSource {
    /// Creates a generator that seeds itself at its first use.
    pub(crate) const fn unseeded() -> Self {
        Self {
            state: Cell::new(0),
            next_span: Cell::new(0),
        }
    }

    /// Resets the generator to its unseeded state.
    pub(crate) fn forget(&self) {
        self.state.set(0);
        self.next_span.set(0);
    }

    /// Returns a new span id, never 0. About a million successive ids share a random prefix of 44
    /// bits and count up below it. Two ids collide only if their prefixes are equal.
    #[inline(always)]
    pub(crate) fn span_id(&self) -> u64 {
        let mut id = self.next_span.get();
        if id & ((1 << COUNTER_BITS) - 1) == 0 {
            id = self.new_prefix();
        }
        self.next_span.set(id.wrapping_add(1));
        id
    }

    /// Returns a new trace id. Its bits are random; its lower half is never 0.
    #[inline]
    pub(crate) fn trace_id(&self) -> u128 {
        (u128::from(self.random()) << 64) | u128::from(self.random().max(1))
    }

    #[cold]
    #[inline(never)]
    fn new_prefix(&self) -> u64 {
        // The counter starts at 1, so that its bits are all zero only when it overflows, and no id
        // is 0.
        (self.random() << COUNTER_BITS) | 1
    }

    #[inline]
    pub(crate) fn random(&self) -> u64 {
        if self.state.get() == 0 {
            self.state.set(thread_seed());
        }
        self.state
            .set(self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        splitmix(self.state.get())
    }
}

/// Mixes the bits of a state (`SplitMix64`): Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators" (OOPSLA 2014).
fn splitmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cold]
fn thread_seed() -> u64 {
    // If the system provides no randomness, the clock, the address-space layout, the process id and
    // a counter still distinguish threads.
    static THREADS: AtomicU64 = AtomicU64::new(1);
    let fallback = || {
        let here = &raw const THREADS as u64;
        crate::sys::wall_ns().cast_unsigned() ^ here.rotate_left(32) ^ u64::from(std::process::id())
    };
    let seed = getrandom::u64().unwrap_or_else(|_| fallback());
    splitmix(seed ^ THREADS.fetch_add(1, Relaxed).rotate_left(48)) | 1
}

/// Returns 16 random bytes that identify one recording of one process.
pub(crate) fn incarnation() -> [u8; 16] {
    let source = IdSource::unseeded();
    source.trace_id().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_between_calls_and_threads() {
        let ids: Vec<u64> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let source = IdSource::unseeded();
                    (0..10_000).map(|_| source.span_id()).collect::<Vec<_>>()
                })
            })
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert!(!ids.contains(&0));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn the_prefix_changes_when_the_counter_is_used_up() {
        let source = IdSource::unseeded();
        let first = source.span_id();
        source
            .next_span
            .set((first >> COUNTER_BITS << COUNTER_BITS) | ((1 << COUNTER_BITS) - 1));
        let last = source.span_id();
        let next = source.span_id();
        assert_eq!(last >> COUNTER_BITS, first >> COUNTER_BITS);
        assert_ne!(next >> COUNTER_BITS, first >> COUNTER_BITS);
    }

    #[test]
    fn trace_ids_are_never_zero_and_differ() {
        let source = IdSource::unseeded();
        let ids: HashSet<u128> = (0..1_000).map(|_| source.trace_id()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(!ids.contains(&0));
        for bit in 0..u128::BITS {
            let set = ids.iter().filter(|id| *id >> bit & 1 == 1).count();
            assert!(set.abs_diff(500) < 150, "bit {bit}: {set}"); // 9 standard deviations
        }
    }
}
