//! Queues requests in order of their deadlines, which follow from their slack.
//!
//! Source: Chow et al., "The Mystery Machine" (OSDI 2014), §5.2, differentiated service. A server
//! that is short of capacity should first do the work that a user waits for, and then the work that
//! has slack.

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

/// Layer that limits concurrent requests and queues the rest by deadline, earliest first (EDF). A
/// request's deadline is its arrival plus the slack predicted for this component, up to a maximum
/// wait. Requests with slack may therefore wait behind later ones without slack, but never behind
/// requests that arrive more than the maximum wait later.
///
/// The prediction comes from the request's baggage ([`baggage::slack`]). A request without one
/// counts as having no slack, because delaying requests of unknown slack would be the worse
/// mistake. A request occupies its place until the end of the response's body. Put this layer
/// inside [`ServerLayer`](super::ServerLayer), so that the request's span includes its wait.
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

/// Statistics of a [`SlackOrderLayer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlackOrderStats {
    /// Number of requests that wait for their turn.
    pub waiting: usize,
    /// Number of requests whose turn it is.
    pub running: usize,
    /// Number of requests that were queued so far.
    pub waited: u64,
}

impl SlackOrderLayer {
    /// Creates a layer for a component, named as in slack predictions. It runs `running_max`
    /// requests at a time, or 1 if that is 0. All services created by this layer or its clones
    /// share the limit.
    #[must_use]
    pub fn new(component: &str, running_max: usize) -> Self {
        Self {
            component: component.into(),
            queue: Arc::new(Queue::new(running_max.max(1))),
            longest_wait_ns: 1_000_000_000,
        }
    }

    /// Sets the maximum wait that slack may cause: no request waits behind requests that arrive
    /// more than this later. Default one second.
    #[must_use]
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Returns statistics of the layer.
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

/// Service created by [`SlackOrderLayer`].
#[derive(Clone, Debug)]
pub struct SlackOrderService<S> {
    inner: S,
    order: SlackOrderLayer,
}

impl<S> SlackOrderService<S> {
    /// Returns the time by which a request with these headers should begin, in ns on the monotonic
    /// clock. It is now plus the component's predicted slack (0 if unknown), or plus
    /// [`longest_wait`](SlackOrderLayer::longest_wait) if that is shorter.
    fn deadline_ns(&self, headers: &HeaderMap) -> i64 {
        // Parses the headers only if the current request's baggage, as parsed by an outer layer,
        // has no prediction.
        let slack = baggage::slack().or_else(|| propagation::callers_baggage(headers).slack());
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
        // The ready service may be called later; a clone replaces it.
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
            waiting: Some(WaitingRequest {
                turn: Queue::wait(&self.order.queue, deadline_ns),
                called: (inner, request),
                _span: span!("stroboscope.waiting"),
            }),
            turn: None,
            future: None,
        }
    }
}

/// Waiting request, with the service and request for its call.
#[derive(Debug)]
struct WaitingRequest<S, Q> {
    turn: queue::QueueTicket,
    called: (S, Q),
    /// Span that ends with the wait.
    _span: Span,
}

pin_project_lite::pin_project! {
    /// Response future that waits for its turn and then runs.
    #[must_use = "futures do nothing unless polled"]
    pub struct InTurn<S: Service<Q>, Q> {
        waiting: Option<WaitingRequest<S, Q>>,
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
            // Without a response, the turn is over.
            let turn = this.turn.take();
            result.map(|response| response.map(|inner| TurnBody { inner, turn }))
        })
    }
}

pin_project_lite::pin_project! {
    /// Response body at whose end its request's turn ends.
    #[derive(Debug)]
    pub struct TurnBody<B> {
        #[pin]
        inner: B,
        turn: Option<Turn>,
    }
}

/// Creates an empty body, as tonic needs for its own responses.
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
