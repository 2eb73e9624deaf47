//! Captures the current context, for work that continues in a task, on another thread or behind a
//! channel.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use crate::baggage::ambient::{CarriedScope, RequestContext, carried};
use crate::context::{self, Scope, SpanContext};
use crate::gate::{self, Hold};
use crate::thread;

/// Context at the moment of a [`capture`] call: the request and span that the thread worked for,
/// and the request's baggage.
///
/// Until the capture of a sampled request is dropped, annotations in this process check their
/// context even between windows. Drop it once its work is done.
#[derive(Debug)]
#[must_use = "a captured context does nothing until work runs in it"]
pub struct CapturedContext {
    context: SpanContext,
    carried: Option<Arc<RequestContext>>,
    hold: Option<Hold>,
    unseen: Option<Unseen>,
}

/// State of a capture without a request that was made while nothing was recorded.
#[derive(Debug)]
struct Unseen {
    /// Number of times that the gate opened before the capture.
    openings: u32,
    /// Context in which the work runs: that of an unrecorded request if the work may be in the
    /// middle of one, otherwise none. Decided when the work first runs after the gate opened.
    part: OnceLock<SpanContext>,
}

/// Captures the current context.
///
/// Use it for work that is neither one closure nor one future; for those, see
/// [`in_current_context`] and [`FutureExt::in_current_span`](crate::FutureExt::in_current_span). To
/// pass a capture through a channel, send it with the item:
///
/// ```
/// # fn work(item: u32) {}
/// let (sender, receiver) = std::sync::mpsc::channel();
/// sender.send((stroboscope::capture(), 7)).unwrap();
/// let (context, item) = receiver.recv().unwrap();
/// context.scope(|| work(item)); // or, in async code: `work(item).in_context(context).await`
/// ```
///
/// With rayon, all parts of the work share one capture:
///
/// ```ignore
/// let context = stroboscope::capture();
/// items.par_iter().map(|item| context.scope(|| work(item))).sum()
/// ```
pub fn capture() -> CapturedContext {
    let context = context::current();
    let idle = gate::is_idle() && !context.is_valid();
    CapturedContext {
        context,
        carried: carried(),
        hold: context.is_sampled().then(Hold::new),
        unseen: idle.then(|| Unseen {
            openings: gate::openings(),
            part: OnceLock::new(),
        }),
    }
}

impl CapturedContext {
    /// Runs `work` in this context, on any thread. If the capture belongs to no request, or is
    /// assumed to, the thread's current context stays.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        work()
    }

    /// Returns the context to run in.
    ///
    /// A capture made between the previous window and the current one may be in the middle of a
    /// request whose beginning was not recorded. A span that begins inside must then not become a
    /// separate request. An earlier capture, such as in a server's loop, is assumed to belong to no
    /// request, because most requests are shorter than the time between windows.
    fn context(&self) -> SpanContext {
        match &self.unseen {
            None => self.context,
            Some(unseen) => unseen.part.get().copied().unwrap_or_else(|| unseen.look()),
        }
    }

    fn enter(&self) -> (Option<Scope>, Option<CarriedScope>) {
        let carried = self
            .carried
            .as_ref()
            .map(|carried| CarriedScope::enter(Some(Arc::clone(carried))));
        let context = self.context();
        (context.is_valid().then(|| Scope::enter(context)), carried)
    }
}

impl Unseen {
    #[inline]
    fn look(&self) -> SpanContext {
        if gate::is_idle() {
            SpanContext::NONE
        } else {
            self.decide()
        }
    }

    #[cold]
    fn decide(&self) -> SpanContext {
        let openings = gate::openings().wrapping_sub(self.openings);
        if openings == 0 {
            // No window has opened since: only another request is recorded.
            return SpanContext::NONE;
        }
        *self.part.get_or_init(|| {
            if openings == 1 {
                unseen_request()
            } else {
                SpanContext::NONE
            }
        })
    }
}

/// Creates ids for a request that has none and is not recorded.
pub(crate) fn unseen_request() -> SpanContext {
    unrecorded_request().unseen()
}

/// Creates ids like [`unseen_request`], except that the request's calls always carry them.
pub(crate) fn unrecorded_request() -> SpanContext {
    let (trace_id, span_id) = thread::root_ids();
    SpanContext::new(trace_id, span_id, false).random().cut()
}

/// Wraps work for another thread so that it runs in the current context:
/// `std::thread::spawn(stroboscope::in_current_context(move || work()))`.
pub fn in_current_context<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let captured = capture();
    move || captured.scope(work)
}

pin_project_lite::pin_project! {
    /// Future that runs in a captured context, see [`FutureExt`](crate::FutureExt).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InContext<F> {
        #[pin]
        future: F,
        captured: CapturedContext,
    }
}

impl<F> InContext<F> {
    pub(crate) fn new(future: F, captured: CapturedContext) -> Self {
        Self { future, captured }
    }
}

impl<F: Future> Future for InContext<F> {
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
