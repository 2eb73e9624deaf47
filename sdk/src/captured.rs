//! The context of one moment, for work that goes on elsewhere: in a task, on a thread, behind a channel.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use crate::baggage::ambient::{Carried, CarriedScope, carried};
use crate::context::{self, Scope, SpanContext};
use crate::gate::{self, Hold};
use crate::thread;

/// The context of the moment in which [`capture`] was called: which request and span the thread worked for, and what
/// travels with the request.
///
/// While it lives, a sampled request stays open in this process, so do not keep it longer than its work.
#[derive(Debug)]
#[must_use = "a captured context does nothing until work runs in it"]
pub struct Captured {
    context: SpanContext,
    carried: Option<Arc<Carried>>,
    hold: Option<Hold>,
    unseen: Option<Unseen>,
}

/// Nothing was recorded at that moment.
#[derive(Debug)]
struct Unseen {
    /// Windows opened by then.
    openings: u32,
    /// Once something is recorded: what the work is a part of, if it may be the middle of a request.
    part: OnceLock<SpanContext>,
}

/// Captures the context this is called in.
///
/// For work that is not one closure or one future, which [`in_current_context`] and
/// [`FutureExt::in_current_span`](crate::FutureExt::in_current_span) are for. Through a channel, it travels beside the
/// item:
///
/// ```
/// # fn work(item: u32) {}
/// let (sender, receiver) = std::sync::mpsc::channel();
/// sender.send((stroboscope::capture(), 7)).unwrap();
/// let (context, item) = receiver.recv().unwrap();
/// context.scope(|| work(item)); // or, in async code: `work(item).in_context(context).await`
/// ```
///
/// With rayon, all parts of the work share it:
///
/// ```ignore
/// let context = stroboscope::capture();
/// items.par_iter().map(|item| context.scope(|| work(item))).sum()
/// ```
pub fn capture() -> Captured {
    let context = context::current();
    let idle = gate::is_idle() && !context.is_valid();
    Captured {
        context,
        carried: carried(),
        hold: context.is_sampled().then(Hold::new),
        unseen: idle.then(|| Unseen {
            openings: gate::openings(),
            part: OnceLock::new(),
        }),
    }
}

impl Captured {
    /// Runs `work` in this context, on whichever thread.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        work()
    }

    /// Was it captured shortly before the window that is open now? Then it may be the middle of a request that nobody
    /// saw begin, and what begins inside must not be taken for a request of its own. What was captured longer ago, such
    /// as a server's loop, is taken for no request at all: requests are shorter than the time between windows.
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
        let is_next = gate::openings() == self.openings.wrapping_add(1);
        *self.part.get_or_init(|| {
            if is_next {
                unseen_request()
            } else {
                SpanContext::NONE
            }
        })
    }
}

/// Ids for a request that nobody named and that began while nothing was recorded.
pub(crate) fn unseen_request() -> SpanContext {
    unrecorded_request().unseen()
}

/// Ids for such a request that its calls carry in any case.
pub(crate) fn unrecorded_request() -> SpanContext {
    let (trace_id, span_id) = thread::root_ids();
    SpanContext::new(trace_id, span_id, false).random().cut()
}

/// Wraps work for another thread so that it runs in the context this is called in:
/// `std::thread::spawn(stroboscope::in_current_context(move || work()))`.
pub fn in_current_context<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let captured = capture();
    move || captured.scope(work)
}

pin_project_lite::pin_project! {
    /// A future in a captured context: see [`FutureExt`](crate::FutureExt).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InContext<F> {
        #[pin]
        future: F,
        captured: Captured,
    }
}

impl<F> InContext<F> {
    pub(crate) fn new(future: F, captured: Captured) -> Self {
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
