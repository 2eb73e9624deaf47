//! Spans and contexts that go along with futures.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Span;
use crate::captured::{Captured, InContext, capture};

/// Carries spans through futures.
pub trait FutureExt: Future + Sized {
    /// Makes `span` the current one whenever this future is polled, on whichever thread, and ends it when the future
    /// is done or dropped.
    fn in_span(self, span: Span) -> InSpan<Self> {
        InSpan { future: self, span }
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
        // Empty once the future is done.
        span: Span,
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.span.notice_recording();
        let scope = this.span.scope_of_poll();
        let polled = this.future.poll(cx);
        drop(scope);
        if polled.is_ready() {
            *this.span = Span::NONE;
        }
        polled
    }
}
