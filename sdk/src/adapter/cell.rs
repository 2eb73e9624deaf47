//! Storage for one span that any thread can read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::SpanContext;
use crate::span::Span;

/// Span of the SDK as four atomic words. Access takes no lock: `tracing` may enter and leave a span
/// on any thread, and often.
///
/// Loads and stores are relaxed. The module that contains the cell, [`slab`](super::slab) or
/// [`table`](super::table), publishes it to other threads.
#[derive(Debug)]
pub(super) struct SpanCell([AtomicU64; 4]);

impl SpanCell {
    pub(super) const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }

    /// Stores the words of a span.
    #[inline(always)]
    pub(super) fn put(&self, span: [u64; 4]) {
        for (there, word) in self.0.iter().zip(span) {
            there.store(word, Relaxed);
        }
    }

    /// Returns the stored words, see [`Span::into_words`].
    #[inline(always)]
    pub(super) fn words(&self) -> [u64; 4] {
        let [high, low, span_id, state] = &self.0;
        [
            high.load(Relaxed),
            low.load(Relaxed),
            span_id.load(Relaxed),
            state.load(Relaxed),
        ]
    }

    /// Returns the stored span's context.
    #[inline]
    pub(super) fn context(&self) -> SpanContext {
        Span::context_in(self.words())
    }

    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        Span::is_recorded_in(self.words())
    }

    /// Ends the stored span if it is the innermost one and recording its end is the only work
    /// needed; the cell then no longer owns it. Returns `None` if it did nothing.
    #[inline(always)]
    pub(super) fn end_quickly(&self) -> Option<()> {
        let [_, _, span_id, word] = &self.0;
        Span::end_quickly(span_id.load(Relaxed), word.load(Relaxed))
    }

    /// Removes the span from the cell; it ends when the result is dropped. Call it at most once for
    /// each [`put`](Self::put), and not after [`end_quickly`](Self::end_quickly) ended the span.
    #[inline]
    pub(super) fn take(&self) -> Span {
        let words = self.words();
        self.0[3].store(0, Relaxed);
        Span::from_words(words)
    }
}
