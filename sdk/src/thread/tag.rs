//! Tags that identify the uninterrupted work of a thread for one request, in which a span began.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::span_context::SpanContext;
use crate::span_word::SpanWord;

/// Number of an interval in which a thread works for one request without interruption. It is unique
/// among all threads of this process, until they have used 2^28 blocks of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    /// Returns the word of spans that begin in this interval, below `context`.
    pub(crate) fn word(self, context: SpanContext) -> u64 {
        SpanWord::usual(self.0, context).0
    }
}

/// Generator of a thread's tags.
#[derive(Debug)]
pub(crate) struct Tags(Cell<u64>);

/// Number of bits that count the tags of a block. A thread allocates one block at a time.
const BLOCK_BITS: u32 = 16;
static BLOCKS: AtomicU64 = AtomicU64::new(0);

impl Tags {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(0))
    }

    /// Returns the next tag; never 0.
    pub(crate) fn next(&self) -> Tag {
        let mut next = self.0.get();
        if next & ((1 << BLOCK_BITS) - 1) == 0 {
            next = BLOCKS.fetch_add(1, Relaxed) << BLOCK_BITS | 1;
        }
        self.0.set(next + 1);
        Tag(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tags_differ_between_calls_and_threads() {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(|| {
                    let tags = Tags::new();
                    (0..100_000).map(|_| tags.next().0).collect::<Vec<_>>()
                })
            })
            .collect();
        let all: Vec<u64> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert!(!all.contains(&0));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
