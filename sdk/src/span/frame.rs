//! What `#[trace]` keeps while the annotated function runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Span, quick};
use crate::callsite::Callsite;
use crate::context::{self, SpanContext};
use crate::marker;
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
    pub fn begin<V: Values>(callsite: &'static Callsite, values: V) -> Self {
        let previous = context::current();
        if marker::is_followed() {
            return Self::begin_slowly(callsite, values);
        }
        match quick::begin(previous, callsite, &values) {
            Some(context) => {
                context::put(context);
                Self::new(previous, context.span_id(), quick::STATE)
            }
            None => Self::begin_slowly(callsite, values),
        }
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value, reason = "what was handed over is handed on")]
    fn begin_slowly<V: Values>(callsite: &'static Callsite, values: V) -> Self {
        let previous = context::current();
        let span = Span::begin_under(previous, callsite, 0, |writer| values.write(writer));
        if span.has_context() {
            context::set(span.context);
        }
        let [_, _, span_id, state] = span.into_words();
        Self::new(previous, span_id, state)
    }

    #[inline(always)]
    fn new(previous: SpanContext, span_id: u64, state: u64) -> Self {
        let [high, low, outer_id, flags] = previous.to_words();
        Self([high, low, outer_id, flags, span_id, state].map(AtomicU64::new))
    }

    #[inline(always)]
    fn words(&self) -> ([u64; 4], u64, u64) {
        let [high, low, outer_id, flags, span_id, state] = self.0.each_ref().map(|word| word.load(Relaxed));
        ([high, low, outer_id, flags], span_id, state)
    }
}

/// Leaves and ends the span of a frame when dropped.
#[doc(hidden)]
#[derive(Debug)]
pub struct InFrame<'a>(pub &'a Frame);

impl Drop for InFrame<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            leave_slowly(self.0);
        } else {
            leave::<()>(self.0);
        }
    }
}

#[inline(never)]
#[allow(clippy::extra_unused_type_parameters, reason = "as in `quick`")]
fn leave<Here>(frame: &Frame) {
    let (outer, span_id, state) = frame.words();
    if quick::leave_to(outer, span_id, state).is_none() {
        leave_slowly(frame);
    }
}

#[cold]
#[inline(never)]
fn leave_slowly(frame: &Frame) {
    let ([high, low, outer_id, flags], span_id, state) = frame.words();
    if Span::has_context_in(state) {
        quick::leave_slowly(high, low, outer_id, flags, span_id, state);
    }
}
