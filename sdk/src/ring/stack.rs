//! Lock-free stack of rings' reading ends: recording threads push, the drain takes all.
//!
//! A pushing thread never waits, neither for a lock whose holder the system has suspended nor for
//! memory: each ring contains the link to the ring below it.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{Consumer, Ring};

/// Stack of rings that wait for their reader. Dropping the stack leaks the rings in it; outside of
/// tests, its one use is a static.
#[derive(Debug)]
pub(crate) struct ConsumerStack {
    /// Topmost ring, as `Arc::into_raw` returned it; null if the stack is empty.
    top: AtomicPtr<Ring>,
}

impl ConsumerStack {
    pub(crate) const fn new() -> Self {
        Self {
            top: AtomicPtr::new(null_mut()),
        }
    }

    pub(crate) fn push(&self, consumer: Consumer) {
        let ring = Arc::into_raw(consumer.ring);
        let mut top = self.top.load(Relaxed);
        loop {
            // SAFETY: the reference that `into_raw` released keeps the ring alive. No other thread
            // takes that reference before the exchange below has succeeded.
            unsafe { &*ring }.below.store(top, Relaxed);
            let pushed = self
                .top
                .compare_exchange_weak(top, ring.cast_mut(), Release, Relaxed);
            match pushed {
                Ok(_) => return,
                Err(changed) => top = changed,
            }
        }
    }

    /// Removes all rings and returns them in the order in which they were pushed.
    pub(crate) fn take_all(&self) -> Vec<Consumer> {
        let mut next = self.top.swap(null_mut(), Acquire);
        let mut taken = Vec::new();
        while !next.is_null() {
            // SAFETY: `push` got the pointer from `Arc::into_raw`. The swap above removed it, so
            // this is the only use of that reference.
            let ring = unsafe { Arc::from_raw(next) };
            next = ring.below.load(Relaxed);
            taken.push(Consumer { ring });
        }
        taken.reverse();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets threads push rings while this thread takes them. Checks that each ring arrives once,
    /// and those of each thread in order.
    #[test]
    fn each_pushed_ring_is_taken_once_and_in_order() {
        let rings_per_thread = if cfg!(miri) { 20 } else { 2_000 };
        let stack = ConsumerStack::new();
        let mut seen = [0; 4];
        std::thread::scope(|scope| {
            let pushing = [0, 1, 2, 3].map(|thread| {
                let stack = &stack;
                scope.spawn(move || {
                    for number in 0..rings_per_thread {
                        let (mut producer, consumer) = Ring::with_promised_bytes(0);
                        producer.write(|place| {
                            place[..2].copy_from_slice(&[thread, number]);
                            2
                        });
                        stack.push(consumer);
                    }
                })
            });
            loop {
                let is_last = pushing.iter().all(|thread| thread.is_finished());
                for mut consumer in stack.take_all() {
                    consumer.read(|words| {
                        let expected = &mut seen[words[0] as usize];
                        assert_eq!(words[1], *expected);
                        *expected += 1;
                        2
                    });
                }
                if is_last {
                    break;
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(seen, [rings_per_thread; 4]);
    }
}
