//! A place for one span that any thread can read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::SpanContext;
use crate::span::{Span, SpanParts};

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
    flags: AtomicU64,
}

const RECORDED: u64 = 1;
const HAS_CONTEXT: u64 = 2;
const HELD: u64 = 4;
const SAMPLED: u64 = 8;
const CUT: u64 = 16;
/// Above the bits: the generation of processes that the hold belongs to.
const GENERATION_SHIFT: u32 = 32;

fn bit(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

impl SpanCell {
    pub(super) const fn empty() -> Self {
        Self {
            trace_id_high: AtomicU64::new(0),
            trace_id_low: AtomicU64::new(0),
            span_id: AtomicU64::new(0),
            flags: AtomicU64::new(0),
        }
    }

    /// Keeps a span.
    #[inline]
    pub(super) fn put(&self, span: Span) {
        let SpanParts { context, recorded, has_context, held } = span.into_parts();
        self.trace_id_high.store((context.trace_id() >> 64) as u64, Relaxed);
        self.trace_id_low.store(context.trace_id() as u64, Relaxed);
        self.span_id.store(context.span_id(), Relaxed);
        let flags = bit(recorded, RECORDED)
            | bit(has_context, HAS_CONTEXT)
            | held.map_or(0, |generation| HELD | u64::from(generation) << GENERATION_SHIFT)
            | bit(context.is_sampled(), SAMPLED)
            | bit(context.is_cut(), CUT);
        self.flags.store(flags, Relaxed);
    }

    /// The context of the span that is kept.
    #[inline]
    pub(super) fn context(&self) -> SpanContext {
        let trace_id =
            u128::from(self.trace_id_high.load(Relaxed)) << 64 | u128::from(self.trace_id_low.load(Relaxed));
        let flags = self.flags.load(Relaxed);
        let context = SpanContext::new(trace_id, self.span_id.load(Relaxed), flags & SAMPLED != 0);
        if flags & CUT != 0 { context.cut() } else { context }
    }

    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        self.flags.load(Relaxed) & RECORDED != 0
    }

    /// Takes the span out; it ends when the result is dropped. To be called once for each [`put`](Self::put).
    #[inline]
    pub(super) fn take(&self) -> Span {
        let flags = self.flags.load(Relaxed);
        let parts = SpanParts {
            context: self.context(),
            recorded: flags & RECORDED != 0,
            has_context: flags & HAS_CONTEXT != 0,
            held: (flags & HELD != 0).then_some((flags >> GENERATION_SHIFT) as u32),
        };
        self.flags.store(0, Relaxed);
        Span::from_parts(parts)
    }
}
