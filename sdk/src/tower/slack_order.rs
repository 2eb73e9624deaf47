//! Requests wait in order of their slack.
//!
//! Source: Chow et al., "The Mystery Machine" (OSDI 2014), §6, differentiated service: a server that is short of capacity
//! should first do what somebody waits for, and later what has slack.

mod queue;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower::{Layer, Service};

use crate::span::Span;
use crate::{baggage, propagation, span, sys};
use queue::{Queue, Turn};

/// At most so many requests at a time; those that have to wait go by deadline, earliest first (EDF): a request's deadline is
/// its arrival and the slack that was predicted for this component, up to a longest wait. So the slack-rich stand behind those
/// without slack, and behind nobody who comes later than the bound.
///
/// The prediction is what the request carries ([`baggage::slack`]). Without one a request counts as having no slack: to delay
/// those of whom nothing is known would be the worse mistake. A turn ends with the response's body. Put it inside
/// [`ServerLayer`](super::ServerLayer), so that the time a request waits is in its span.
///
/// ```no_run
/// # use std::time::Duration;
/// use stroboscope::tower::{ServerLayer, SlackOrderLayer};
/// let order = SlackOrderLayer::new("ranker", 8).longest_wait(Duration::from_millis(500));
/// // tonic: Server::builder().layer(ServerLayer::new()).layer(order)…
/// ```
#[derive(Clone, Debug)]
pub struct SlackOrderLayer {
    component: Arc<str>,
    queue: Arc<Queue>,
    longest_wait_ns: u64,
}

/// What waits at a [`SlackOrderLayer`], and has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlackOrderStats {
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Requests whose turn it is.
    pub running: usize,
    /// Requests that had to wait, so far.
    pub waited: u64,
}

impl SlackOrderLayer {
    /// For a component, by its name in predictions of slack; `running_max` requests at a time, 1 if it is 0. All services
    /// that this layer, or a clone of it, makes share the limit.
    #[must_use]
    pub fn new(component: &str, running_max: usize) -> Self {
        Self {
            component: component.into(),
            queue: Arc::new(Queue::new(running_max.max(1))),
            longest_wait_ns: 1_000_000_000,
        }
    }

    /// No slack lets a request wait behind those that came so much later; a second, unless said otherwise.
    #[must_use]
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// What waits, and has waited.
    #[must_use]
    pub fn stats(&self) -> SlackOrderStats {
        self.queue.stats()
    }
}

impl<S> Layer<S> for SlackOrderLayer {
    type Service = SlackOrderService<S>;

    fn layer(&self, inner: S) -> SlackOrderService<S> {
        SlackOrderService {
            inner,
            order: self.clone(),
        }
    }
}

/// See [`SlackOrderLayer`].
#[derive(Clone, Debug)]
pub struct SlackOrderService<S> {
    inner: S,
    order: SlackOrderLayer,
}

impl<S> SlackOrderService<S> {
    /// When a request of these headers has to begin.
    fn deadline_ns(&self, headers: &HeaderMap) -> i64 {
        // Nobody before has read what it carries.
        let slack = baggage::slack().or_else(|| propagation::baggage_of(headers).slack());
        let slack_ns = slack.and_then(|slack| slack.slack_ns(&self.order.component));
        let wait_ns = slack_ns.unwrap_or(0).min(self.order.longest_wait_ns);
        sys::monotonic_ns().saturating_add(i64::try_from(wait_ns).unwrap_or(i64::MAX))
    }
}

impl<S, B, R> Service<Request<B>> for SlackOrderService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<TurnBody<R>>;
    type Error = S::Error;
    type Future = InTurn<S, Request<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is called, later; a clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if let Some(turn) = Queue::take_free(&self.order.queue) {
            return InTurn {
                waiting: None,
                turn: Some(turn),
                future: Some(inner.call(request)),
            };
        }
        let deadline_ns = self.deadline_ns(request.headers());
        InTurn {
            waiting: Some(Waiting {
                turn: Queue::wait(&self.order.queue, deadline_ns),
                called: (inner, request),
                _span: span!("stroboscope.waiting"),
            }),
            turn: None,
            future: None,
        }
    }
}

/// A request that waits, with all it needs to go on.
#[derive(Debug)]
struct Waiting<S, Q> {
    turn: queue::Waiting,
    called: (S, Q),
    /// Ends with the wait.
    _span: Span,
}

pin_project_lite::pin_project! {
    /// A response that waits for its turn, and then is on its way.
    #[must_use = "futures do nothing unless polled"]
    pub struct InTurn<S: Service<Q>, Q> {
        waiting: Option<Waiting<S, Q>>,
        turn: Option<Turn>,
        #[pin]
        future: Option<S::Future>,
    }
}

impl<S: Service<Q>, Q> std::fmt::Debug for InTurn<S, Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InTurn").finish_non_exhaustive()
    }
}

impl<S, Q, R> Future for InTurn<S, Q>
where
    S: Service<Q, Response = Response<R>>,
{
    type Output = Result<Response<TurnBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(mut waiting) = this.waiting.take() {
            match waiting.turn.poll(cx) {
                Some(turn) => {
                    *this.turn = Some(turn);
                    let (mut inner, request) = waiting.called;
                    this.future.set(Some(inner.call(request)));
                }
                None => {
                    *this.waiting = Some(waiting);
                    return Poll::Pending;
                }
            }
        }
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        future.poll(cx).map(|result| {
            // Without an answer the turn is over.
            let turn = this.turn.take();
            result.map(|response| response.map(|inner| TurnBody { inner, turn }))
        })
    }
}

pin_project_lite::pin_project! {
    /// A body whose end is the end of its request's turn.
    #[derive(Debug)]
    pub struct TurnBody<B> {
        #[pin]
        inner: B,
        turn: Option<Turn>,
    }
}

/// An empty body, as tonic makes for its own answers.
impl<B: Default> Default for TurnBody<B> {
    fn default() -> Self {
        Self {
            inner: B::default(),
            turn: None,
        }
    }
}

impl<B: Body> Body for TurnBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let polled = this.inner.poll_frame(cx);
        match &polled {
            Poll::Ready(None | Some(Err(_))) => *this.turn = None,
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => *this.turn = None,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
