//! Spans and contexts that go along with futures, tasks and threads.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Span, unseen_request};
use crate::baggage::ambient::{Carried, CarriedScope, carried};
use crate::context::{self, Scope, SpanContext};
use crate::gate::{self, Hold};

/// Carries spans through futures.
pub trait FutureExt: Future + Sized {
    /// Makes `span` the current one whenever this future is polled, on whichever thread, and ends it when the future
    /// is done or dropped.
    fn in_span(self, span: Span) -> InSpan<Self> {
        InSpan { future: self, span: Some(span) }
    }

    /// Keeps the context this is called in, for a future that is going to run as a task of its own:
    /// `tokio::spawn(work().in_current_span())`.
    fn in_current_span(self) -> InCurrentSpan<Self> {
        InCurrentSpan { future: self, captured: Captured::now() }
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
        span: Option<Span>,
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let scope = this.span.as_mut().and_then(|span| {
            span.notice_recording();
            span.scope_of_poll()
        });
        let polled = this.future.poll(cx);
        drop(scope);
        if polled.is_ready() {
            *this.span = None;
        }
        polled
    }
}

/// The context of one moment, for work that goes on elsewhere.
#[derive(Debug)]
pub(crate) struct Captured {
    context: SpanContext,
    carried: Option<Arc<Carried>>,
    hold: Option<Hold>,
    /// Windows opened by then, if nothing was recorded at that moment.
    unseen_since: Option<u32>,
}

impl Captured {
    fn now() -> Self {
        let context = context::current();
        let idle = gate::is_idle() && !context.is_valid();
        Self {
            context,
            carried: carried(),
            hold: context.is_sampled().then(Hold::new),
            unseen_since: idle.then(gate::openings),
        }
    }

    /// Was captured shortly before the window that is open now? Then it may be the middle of a request that nobody saw
    /// begin, and what begins inside must not be taken for a request of its own. What was captured longer ago, such as
    /// a server's loop, is taken for no request at all: requests are shorter than the time between windows.
    fn notice_recording(&mut self) {
        if let Some(openings) = self.unseen_since
            && !gate::is_idle()
        {
            self.unseen_since = None;
            if gate::openings() == openings.wrapping_add(1) {
                self.context = unseen_request();
            }
        }
    }

    fn enter(&mut self) -> (Option<Scope>, Option<CarriedScope>) {
        self.notice_recording();
        let carried = self.carried.as_ref().map(|carried| CarriedScope::enter(Some(Arc::clone(carried))));
        (self.context.is_valid().then(|| Scope::enter(self.context)), carried)
    }
}

pin_project_lite::pin_project! {
    /// See [`FutureExt::in_current_span`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InCurrentSpan<F> {
        #[pin]
        future: F,
        captured: Captured,
    }
}

impl<F: Future> Future for InCurrentSpan<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = this.captured.enter();
        let polled = this.future.poll(cx);
        drop(entered);
        if polled.is_ready() {
            this.captured.hold = None;
        }
        polled
    }
}

/// Wraps work for another thread so that it runs in the context this is called in:
/// `std::thread::spawn(stroboscope::in_current_context(move || work()))`.
pub fn in_current_context<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let mut captured = Captured::now();
    move || {
        let _entered = captured.enter();
        work()
    }
}
