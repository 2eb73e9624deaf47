//! What `#[trace]` keeps while the annotated function runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Span, end};
use crate::callsite::Callsite;
use crate::context::{self, SpanContext};
use crate::value::Values;

/// A span that was begun and entered: what was current before it, its id and its state. In the frame of the function,
/// not in its registers, so that they stay its own where nothing is recorded. Atomics for the reason that [`context`]
/// gives.
#[doc(hidden)]
#[derive(Debug)]
pub struct Frame([AtomicU64; 6]);

impl Frame {
    /// Begins a span and enters it. Away from the code that is annotated.
    #[inline(never)]
    #[must_use]
    #[allow(
        clippy::needless_pass_by_value,
        reason = "a reference would keep the caller's variables in memory"
    )]
    pub fn begin<V: Values>(callsite: &'static Callsite, values: V) -> Self {
        let previous = context::current();
        let span = Span::begin_under(previous, callsite, 0, |writer| values.write(writer));
        if span.has_context() {
            context::set(span.context);
        }
        let [high, low, outer_id, flags] = previous.to_words();
        let [_, _, span_id, state] = span.into_words();
        Self([high, low, outer_id, flags, span_id, state].map(AtomicU64::new))
    }
}

/// Leaves and ends the span of a frame when dropped.
#[doc(hidden)]
#[derive(Debug)]
pub struct InFrame<'a>(pub &'a Frame);

impl Drop for InFrame<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        leave(self.0);
    }
}

#[inline(never)]
fn leave(Frame([high, low, outer_id, flags, span_id, state]): &Frame) {
    let state = state.load(Relaxed);
    if Span::has_context_in(state) {
        // First: what ends the span is no longer inside it.
        context::set(SpanContext::from_words([
            high.load(Relaxed),
            low.load(Relaxed),
            outer_id.load(Relaxed),
            flags.load(Relaxed),
        ]));
    }
    end(span_id.load(Relaxed), state);
}
