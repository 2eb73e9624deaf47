//! Spans and contexts that go along with futures.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use super::{Span, quick};
use crate::captured::{Captured, InContext, capture, unseen_request};
use crate::{context, gate, marker, thread};

/// Carries spans through futures.
pub trait FutureExt: Future + Sized {
    /// Makes `span` the current one whenever this future is polled, on whichever thread, and ends it when the future
    /// is done or dropped.
    #[inline]
    fn in_span(self, span: Span) -> InSpan<Self> {
        InSpan {
            future: self,
            span: Kept::of(span),
        }
    }

    /// Keeps the context this is called in, for a future that is going to run as a task of its own:
    /// `tokio::spawn(work().in_current_span())`.
    fn in_current_span(self) -> InContext<Self> {
        InContext::new(self, capture())
    }

    /// Runs this future in a context that was captured elsewhere: where an item was put into a channel, say.
    fn in_context(self, captured: Captured) -> InContext<Self> {
        InContext::new(self, captured)
    }
}

impl<F: Future> FutureExt for F {}

pin_project_lite::pin_project! {
    /// See [`FutureExt::in_span`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InSpan<F> {
        #[pin]
        future: F,
        // None while nothing is recorded, and once the future is done.
        span: Option<Kept>,
    }
}

/// A [`Span`] that is not empty: where there is none, one word is written and asked for, and not four.
#[derive(Debug)]
struct Kept {
    ids: [u64; 3],
    word: NonZeroU64,
}

impl Kept {
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

impl Drop for Kept {
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

/// For `#[trace]`: [`FutureExt::in_span`] of a span without fields, which begins at the first poll. So the gate is asked
/// once there, and where it is shut, nothing is written but that.
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
        // As in `InSpan`.
        span: Option<Kept>,
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

/// What was current before a span was entered, as [`Span::into_words`] has contexts; it is so again when this is dropped.
/// Atomics for the reason that [`Handed`](super::Handed) gives.
struct Entered([AtomicU64; 4]);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let words = self.0.each_ref().map(|word| word.load(Relaxed));
        if thread::enter_quickly(words[2], words[3]).is_none() {
            context::set(Span::context_in(words));
        }
    }
}

// What follows is away from the code that is annotated, and generic for the reason that `quick` gives.

#[inline(never)]
fn begin_and_enter<B: Fn() -> Span>(span: &mut Option<Kept>, begin: &B) -> Option<Entered> {
    *span = Kept::of(begin());
    enter_here(span)
}

/// Makes a span current for the length of one poll, if there is a context to hand on.
#[inline(never)]
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere"
)]
fn enter<Here>(span: &mut Option<Kept>) -> Option<Entered> {
    enter_here(span)
}

#[inline(always)]
fn enter_here(span: &mut Option<Kept>) -> Option<Entered> {
    if span.is_none() {
        *span = Kept::of(cut_span());
    }
    let [high, low, span_id, word] = span.as_ref()?.words();
    let quickly = if marker::is_on() {
        None
    } else {
        thread::enter_quickly(span_id, word)
    };
    Some(Entered(match quickly {
        // Of the same request.
        Some(outer_id) => [high, low, outer_id, word].map(AtomicU64::new),
        None => quick::enter_slowly(high, low, span_id, word).0,
    }))
}

/// After a poll; after the last one, the span ends.
#[inline(never)]
#[allow(clippy::extra_unused_type_parameters, reason = "as above")]
fn leave<Here>(entered: Entered, span: &mut Option<Kept>, is_last: bool) {
    if is_last && leave_quickly(&entered, span.as_ref()).is_some() {
        // Both is done.
        std::mem::forget((entered, span.take()));
        return;
    }
    drop(entered);
    if is_last {
        *span = None;
    }
}

/// Leaves and ends the span, if it was entered from another of its request and nothing is unusual. `None`: nothing was done.
#[inline(always)]
fn leave_quickly(entered: &Entered, span: Option<&Kept>) -> Option<()> {
    let [_, _, outer_id, word] = &entered.0;
    let span = span.filter(|span| span.word.get() == word.load(Relaxed))?;
    let is_quick = !std::thread::panicking();
    if is_quick {
        quick::leave_to(outer_id.load(Relaxed), span.ids[2], span.word.get())
    } else {
        None
    }
}

/// For a span that began while nothing was recorded, and now something is: what begins inside it must not be taken for a
/// request of its own, so it gets a context that says "part of a request that began earlier".
#[cold]
#[inline(never)]
fn cut_span() -> Span {
    if context::current().is_valid() {
        Span::NONE
    } else {
        Span::unrecorded(unseen_request())
    }
}
