//! State that `#[trace]` keeps while the annotated function runs.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Span, SpanWord, quick};
use crate::callsite::Callsite;
use crate::value::Values;
use crate::{context, thread};

/// Storage for a span that was begun and entered: the previous context, and the span's id and word.
/// It is in the function's frame instead of its registers, which therefore stay available while
/// nothing is recorded. The words are atomics for the reason given in
/// [`SpanWords`](super::SpanWords). The frame is empty until [`begin`](Self::begin) fills it in
/// place. Returning a filled frame instead would prevent `begin` from ending in a jump to its slow
/// path.
#[doc(hidden)]
#[derive(Debug)]
pub struct Frame(MaybeUninit<[AtomicU64; 6]>);

impl Frame {
    /// Creates an empty frame.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::new_without_default, reason = "for the macro only")]
    pub const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Begins a span and enters it, outside of the annotated code.
    #[inline(never)]
    pub fn begin<V: Values>(&mut self, callsite: &'static Callsite, values: V) -> InFrame<'_> {
        match quick::begin(callsite, &values) {
            Some(begun) => {
                thread::set_context_span_id(begun.span_id);
                let [high, low] = thread::context_trace_id();
                // The previous context belongs to the same request.
                self.fill([
                    high,
                    low,
                    begun.outer_id,
                    begun.word,
                    begun.span_id,
                    begun.word,
                ])
            }
            None => self.begin_slowly(callsite, values),
        }
    }

    #[cold]
    #[inline(never)]
    #[allow(
        clippy::needless_pass_by_value,
        reason = "what was handed over is handed on"
    )]
    fn begin_slowly<V: Values>(&mut self, callsite: &'static Callsite, values: V) -> InFrame<'_> {
        let previous = context::current();
        let span = Span::begin_under(previous, callsite, 0, |writer| values.write(writer));
        if span.has_context() {
            context::set(span.context());
        }
        let [high, low, outer_id, _] = previous.to_words();
        let [_, _, span_id, word] = span.into_words();
        self.fill([
            high,
            low,
            outer_id,
            SpanWord::with_context(previous).0,
            span_id,
            word,
        ])
    }

    #[inline(always)]
    fn fill(&mut self, words: [u64; 6]) -> InFrame<'_> {
        InFrame(self.0.write(words.map(AtomicU64::new)))
    }
}

/// Leaves and ends a frame's span when dropped.
#[doc(hidden)]
#[derive(Debug)]
pub struct InFrame<'a>(&'a [AtomicU64; 6]);

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
fn leave<ThreadRef>(frame: &[AtomicU64; 6]) {
    let [_, _, outer_id, _, span_id, word] = frame;
    if quick::leave_to(
        outer_id.load(Relaxed),
        span_id.load(Relaxed),
        word.load(Relaxed),
    )
    .is_none()
    {
        leave_slowly(frame);
    }
}

#[cold]
#[inline(never)]
fn leave_slowly(frame: &[AtomicU64; 6]) {
    let [high, low, outer_id, outer_word, span_id, word] =
        frame.each_ref().map(|word| word.load(Relaxed));
    if SpanWord(word).has_context() {
        quick::leave_slowly(high, low, outer_id, outer_word, span_id, word);
    }
}
