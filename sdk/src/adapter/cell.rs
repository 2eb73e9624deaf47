//! Storage for one span that any thread can read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::SpanContext;
use crate::span::Span;

/// One span of the SDK as separate words. It consists of atomics instead of being guarded by a
/// lock, because `tracing` enters and leaves spans on any thread far more often than it creates
/// them.
///
/// Loads and stores are relaxed; the owner of the cell publishes it, see [`slab`](super::slab) and
/// [`table`](super::table).
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

    /// Ends the stored span and returns `Some` if it is the innermost one and no other work is
    /// needed. The cell then no longer owns it.
    #[inline(always)]
    pub(super) fn end_quickly(&self) -> Option<()> {
        let [_, _, span_id, word] = &self.0;
        Span::end_quickly(span_id.load(Relaxed), word.load(Relaxed))
    }

    /// Removes the span from the cell; it ends when the result is dropped. Call it once for each
    /// [`put`](Self::put).
    #[inline]
    pub(super) fn take(&self) -> Span {
        let words = self.words();
        self.0[3].store(0, Relaxed);
        Span::from_words(words)
    }
}
