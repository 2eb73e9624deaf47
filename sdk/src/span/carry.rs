//! Attaches spans and contexts to futures.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use super::{Span, quick};
use crate::captured::{CapturedContext, InContext, capture, unseen_request};
use crate::{context, gate, marker, thread};

/// Extension trait that attaches spans to futures.
pub trait FutureExt: Future + Sized {
    /// Makes `span` the current one whenever this future is polled, on any thread, and ends it when
    /// the future completes or is dropped.
    #[inline]
    fn in_span(self, span: Span) -> InSpan<Self> {
        InSpan {
            future: self,
            span: NonEmptySpan::of(span),
        }
    }

    /// Runs this future in the current context. Use it for a future that will run as a separate
    /// task: `tokio::spawn(work().in_current_span())`.
    fn in_current_span(self) -> InContext<Self> {
        InContext::new(self, capture())
    }

    /// Runs this future in a captured context, for example one captured where an item was sent
    /// through a channel.
    fn in_context(self, captured: CapturedContext) -> InContext<Self> {
        InContext::new(self, captured)
    }
}

impl<F: Future> FutureExt for F {}

pin_project_lite::pin_project! {
    /// Future returned by [`FutureExt::in_span`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InSpan<F> {
        #[pin]
        future: F,
        // `None` if there is no span, and after the future is done.
        span: Option<NonEmptySpan>,
    }
}

/// Span other than [`Span::NONE`]. In an `Option`, the absence of a span takes one word to write
/// and check, instead of four.
#[derive(Debug)]
struct NonEmptySpan {
    ids: [u64; 3],
    word: NonZeroU64,
}

impl NonEmptySpan {
    #[inline(always)]
    fn of(span: Span) -> Option<Self> {
        let [high, low, span_id, word] = span.into_words();
        NonZeroU64::new(word).map(|word| Self {
            ids: [high, low, span_id],
            word,
        })
    }

    #[inline(always)]
    fn words(&self) -> [u64; 4] {
        let [high, low, span_id] = self.ids;
        [high, low, span_id, self.word.get()]
    }
}

impl Drop for NonEmptySpan {
    #[inline]
    fn drop(&mut self) {
        drop(Span::from_words(self.words()));
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_quiet = this.span.is_none() && gate::is_idle();
        let entered = if is_quiet {
            None
        } else {
            enter::<()>(this.span)
        };
        let polled = this.future.poll(cx);
        if let Some(entered) = entered {
            leave::<()>(entered, this.span, polled.is_ready());
        }
        polled
    }
}

/// Runs a future like [`FutureExt::in_span`], with a span without fields that begins at the first
/// poll; used by `#[trace]`. If nothing can be recorded at that poll, the future stores only that
/// the poll has happened.
#[doc(hidden)]
pub fn in_span_from_first_poll<F: Future, B: Fn() -> Span>(
    future: F,
    begin: B,
) -> FromFirstPoll<F, B> {
    FromFirstPoll {
        future,
        begin,
        is_begun: false,
        span: None,
    }
}

pin_project_lite::pin_project! {
    #[doc(hidden)]
    #[must_use = "futures do nothing unless polled"]
    pub struct FromFirstPoll<F, B> {
        #[pin]
        future: F,
        begin: B,
        is_begun: bool,
        // `None` before the first poll, and in the cases of `InSpan`.
        span: Option<NonEmptySpan>,
    }
}

impl<F: Future, B: Fn() -> Span> Future for FromFirstPoll<F, B> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_first = !std::mem::replace(this.is_begun, true);
        let is_quiet = this.span.is_none() && gate::is_idle();
        let entered = match (is_quiet, is_first) {
            (true, _) => None,
            (false, true) => begin_and_enter(this.span, this.begin),
            (false, false) => enter::<()>(this.span),
        };
        let polled = this.future.poll(cx);
        if let Some(entered) = entered {
            leave::<()>(entered, this.span, polled.is_ready());
        }
        polled
    }
}

/// Context before a span was entered, as words of [`Span::into_words`]; restored when this is
/// dropped. The words are atomics for the reason given in [`SpanWords`](super::SpanWords).
struct PreviousContext([AtomicU64; 4]);

impl Drop for PreviousContext {
    #[inline]
    fn drop(&mut self) {
        let words = self.0.each_ref().map(|word| word.load(Relaxed));
        if thread::enter_quickly(words[2], words[3]).is_none() {
            context::set(Span::context_in(words));
        }
    }
}

// The following functions are outside of the annotated code, and generic for the reason given in
// `quick`.

#[inline(never)]
fn begin_and_enter<B: Fn() -> Span>(
    span: &mut Option<NonEmptySpan>,
    begin: &B,
) -> Option<PreviousContext> {
    *span = NonEmptySpan::of(begin());
    enter_here(span)
}

/// Makes a span current during one poll. If there is none, stores the result of [`cut_span`] in its
/// place first. Returns `None` if there is still no span.
#[inline(never)]
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere"
)]
fn enter<ThreadRef>(span: &mut Option<NonEmptySpan>) -> Option<PreviousContext> {
    enter_here(span)
}

#[inline(always)]
fn enter_here(span: &mut Option<NonEmptySpan>) -> Option<PreviousContext> {
    if span.is_none() {
        *span = NonEmptySpan::of(cut_span());
    }
    let [high, low, span_id, word] = span.as_ref()?.words();
    let quickly = if marker::is_on() {
        None
    } else {
        thread::enter_quickly(span_id, word)
    };
    Some(PreviousContext(match quickly {
        // The previous context belongs to the same request.
        Some(outer_id) => [high, low, outer_id, word].map(AtomicU64::new),
        None => quick::enter_slowly(high, low, span_id, word).0,
    }))
}

/// Leaves a span after a poll; ends it after the last one.
#[inline(never)]
#[allow(clippy::extra_unused_type_parameters, reason = "as above")]
fn leave<ThreadRef>(entered: PreviousContext, span: &mut Option<NonEmptySpan>, is_last: bool) {
    if is_last && leave_quickly(&entered, span.as_ref()).is_some() {
        // Both the scope and the span have ended.
        std::mem::forget((entered, span.take()));
        return;
    }
    drop(entered);
    if is_last {
        *span = None;
    }
}

/// Leaves and ends the span on the fast path, if it was entered from another span of its request
/// and the thread does not panic. Returns `None` if it did nothing.
#[inline(always)]
fn leave_quickly(entered: &PreviousContext, span: Option<&NonEmptySpan>) -> Option<()> {
    let [_, _, outer_id, word] = &entered.0;
    let span = span.filter(|span| span.word.get() == word.load(Relaxed))?;
    let is_quick = !std::thread::panicking();
    if is_quick {
        quick::leave_to(outer_id.load(Relaxed), span.ids[2], span.word.get())
    } else {
        None
    }
}

/// Creates the context for a span that began while nothing was recorded, once recording is on.
/// Spans inside must not become requests of their own, so the context marks them as parts of a
/// request that began earlier. Returns an empty span if the thread already has a context.
#[cold]
#[inline(never)]
fn cut_span() -> Span {
    if context::current().is_valid() {
        Span::NONE
    } else {
        Span::unrecorded(unseen_request())
    }
}
