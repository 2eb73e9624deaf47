//! A place for one span that any thread can read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::SpanContext;
use crate::span::Span;

/// One span of ours, taken apart. Made of atomics rather than guarded by a lock: `tracing` enters and leaves spans on
/// any thread, far more often than it makes them.
///
/// The loads and stores are relaxed; whoever owns the cell publishes it, see [`slab`](super::slab) and
/// [`table`](super::table).
#[derive(Debug)]
pub(super) struct SpanCell([AtomicU64; 4]);

impl SpanCell {
    pub(super) const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }

    /// Keeps a span that was taken apart.
    #[inline(always)]
    pub(super) fn put(&self, span: [u64; 4]) {
        for (there, word) in self.0.iter().zip(span) {
            there.store(word, Relaxed);
        }
    }

    /// The span that is kept, see [`Span::into_words`].
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

    /// The context of the span that is kept.
    #[inline]
    pub(super) fn context(&self) -> SpanContext {
        Span::context_in(self.words())
    }

    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        Span::is_recorded_in(self.words())
    }

    /// Ends the span, which is not in here any more then, if it is the innermost and that is all there is to do.
    #[inline(always)]
    pub(super) fn end_quickly(&self) -> Option<()> {
        let [_, _, span_id, word] = &self.0;
        Span::end_quickly(span_id.load(Relaxed), word.load(Relaxed))
    }

    /// Takes the span out; it ends when the result is dropped. To be called once for each [`put`](Self::put).
    #[inline]
    pub(super) fn take(&self) -> Span {
        let words = self.words();
        self.0[3].store(0, Relaxed);
        Span::from_words(words)
    }
}
