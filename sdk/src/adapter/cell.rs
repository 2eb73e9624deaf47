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
pub(super) struct SpanCell {
    trace_id_high: AtomicU64,
    trace_id_low: AtomicU64,
    span_id: AtomicU64,
    /// The context's flags in the bits that a span's state leaves free.
    state: AtomicU64,
}

const FLAGS_SHIFT: u32 = 8;
const FLAGS: u64 = 0xff << FLAGS_SHIFT;

impl SpanCell {
    pub(super) const fn empty() -> Self {
        Self {
            trace_id_high: AtomicU64::new(0),
            trace_id_low: AtomicU64::new(0),
            span_id: AtomicU64::new(0),
            state: AtomicU64::new(0),
        }
    }

    /// Keeps a span.
    #[inline]
    pub(super) fn put(&self, span: Span) {
        let (context, state) = span.into_parts();
        self.trace_id_high.store((context.trace_id() >> 64) as u64, Relaxed);
        self.trace_id_low.store(context.trace_id() as u64, Relaxed);
        self.span_id.store(context.span_id(), Relaxed);
        self.state.store(state | u64::from(context.flags()) << FLAGS_SHIFT, Relaxed);
    }

    /// The context of the span that is kept.
    #[inline]
    pub(super) fn context(&self) -> SpanContext {
        self.context_with(self.state.load(Relaxed))
    }

    #[inline]
    fn context_with(&self, state: u64) -> SpanContext {
        let trace_id =
            u128::from(self.trace_id_high.load(Relaxed)) << 64 | u128::from(self.trace_id_low.load(Relaxed));
        SpanContext::with_flags(trace_id, self.span_id.load(Relaxed), (state >> FLAGS_SHIFT) as u8)
    }

    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        Span::is_recorded_in(self.state.load(Relaxed))
    }

    /// Takes the span out; it ends when the result is dropped. To be called once for each [`put`](Self::put).
    #[inline]
    pub(super) fn take(&self) -> Span {
        let state = self.state.load(Relaxed);
        self.state.store(0, Relaxed);
        Span::from_parts((self.context_with(state), state & !FLAGS))
    }
}
