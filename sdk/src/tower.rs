//! Tower layers that carry the context from process to process: for tonic, axum, hyper, and whatever else speaks
//! `http::Request`.

mod body;
#[cfg(feature = "duplicate")]
mod duplicate;
mod outcome;
#[cfg(feature = "slack_order")]
mod slack_order;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{Extensions, Request, Response};
use stroboscope_proto::v1::SpanFlag;
use tower::{Layer, Service};

pub use body::TracedBody;
#[cfg(feature = "duplicate")]
pub use duplicate::{
    CopiedBody, DuplicateAnswer, DuplicateLayer, DuplicateRate, DuplicateService, DuplicateStats,
    Original, OriginalBody,
};
#[cfg(feature = "slack_order")]
pub use slack_order::{InTurn, SlackOrderLayer, SlackOrderService, SlackOrderStats, TurnBody};

use self::outcome::{Outcome, poll_in};
use crate::baggage::ambient::{CarriedScope, carried};
use crate::callsite::{self, Callsite};
use crate::captured::{InContext, unseen_request};
use crate::context::{self, Scope, SpanContext};
use crate::gate::{self, foresight};
use crate::propagation::{extract, inject_from};
use crate::span::{FutureExt, Span};
use crate::{request, thread};

/// Opens a server span for each request, in the trace its headers name; a request without a trace is an ingress. The span
/// ends with the response's body, so that a streamed response is inside it, and has the response's status: a failure by
/// OpenTelemetry's rules has the attribute `error`, and a gRPC call's message. Put other layers, such as tower-http's `TraceLayer`,
/// inside of it: a span that they open outside of this one becomes a request of its own. It is named `package.Service/Method` for gRPC;
/// for other requests `GET /user/{id}`, after the path with what looks like an id left out.
///
/// ```no_run
/// # fn axum() {}
/// // tonic:  Server::builder().layer(stroboscope::tower::ServerLayer::new()).add_service(…)
/// // axum:   Router::new().route(…).layer(stroboscope::tower::ServerLayer::new())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerLayer {
    route_of: Option<RouteOf>,
}

/// Function that finds a request's route in the extensions that the web framework has set.
type RouteOf = fn(&Extensions) -> Option<&str>;

/// Returns the callsite of a request: gRPC's `package.Service/Method`, as OpenTelemetry names it; for others `GET /user/{id}`.
fn callsite_of<B>(request: &Request<B>, route_of: Option<RouteOf>) -> &'static Callsite {
    let path = request.uri().path();
    let kind = request.headers().get(CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return callsite::named_after_path(path);
    }
    let route = route_of.and_then(|of| of(request.extensions()));
    request::callsite(request.method().as_str(), route, path)
}

impl ServerLayer {
    /// The layer.
    #[must_use]
    pub const fn new() -> Self {
        Self { route_of: None }
    }

    /// Names spans after the route that the web framework has put beside the request: with axum
    /// `.route_by(|extensions| extensions.get::<MatchedPath>().map(MatchedPath::as_str))` gives `GET /user/{name}`. Where
    /// this finds nothing, the path is taken.
    #[must_use]
    pub const fn route_by(mut self, route_of: fn(&http::Extensions) -> Option<&str>) -> Self {
        self.route_of = Some(route_of);
        self
    }
}

impl<S> Layer<S> for ServerLayer {
    type Service = ServerService<S>;

    fn layer(&self, inner: S) -> ServerService<S> {
        ServerService {
            inner,
            route_of: self.route_of,
        }
    }
}

/// See [`ServerLayer`].
#[derive(Clone, Debug)]
pub struct ServerService<S> {
    inner: S,
    route_of: Option<RouteOf>,
}

impl<S, B, R> Service<Request<B>> for ServerService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<TracedBody<R>>;
    type Error = S::Error;
    type Future = Responding<InContext<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let incoming = extract(request.headers());
        let span = incoming.begin_as(|| callsite_of(&request, self.route_of));
        let _carried = CarriedScope::enter(Some(Arc::clone(incoming.carried())));
        // The inner service may do work while it makes its future; that belongs to the request, too.
        let _scope = Scope::enter(span.context());
        Responding {
            future: self.inner.call(request).in_current_span(),
            outcome: Some(Outcome::of_server(span)),
        }
    }
}

/// Opens a client span for each request, named as [`ServerLayer`] names it by its path, and writes the context into its
/// headers. The span ends with the response's body, and has the response's status.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientLayer(());

impl ClientLayer {
    /// The layer; it has no settings.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, inner: S) -> ClientService<S> {
        ClientService { inner }
    }
}

/// See [`ClientLayer`].
#[derive(Clone, Debug)]
pub struct ClientService<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for ClientService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<TracedBody<R>>;
    type Error = S::Error;
    type Future = Responding<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let outer = context::current();
        let span = if gate::is_idle() {
            Span::NONE
        } else {
            Span::begin_under(
                outer,
                callsite_of(&request, None),
                SpanFlag::Client as u16,
                |_| {},
            )
        };
        let sent = if span.context().is_valid() {
            span.context()
        } else if outer.is_valid() && (!outer.is_unseen() || foresight::opens_soon()) {
            // A request that is not recorded here keeps its trace; each call has a parent id of its own, as W3C asks.
            outer.child(thread::span_id())
        } else if !outer.is_valid() && foresight::opens_soon() {
            // One that nobody has named gets a name now: should a window open where it goes, what is recorded there is a
            // part, and no request of its own.
            unseen_request()
        } else {
            SpanContext::NONE
        };
        inject_from(sent, carried().as_deref(), request.headers_mut());
        Responding {
            future: self.inner.call(request),
            outcome: Some(Outcome::of_client(span)),
        }
    }
}

pin_project_lite::pin_project! {
    /// A response on its way, and its span.
    #[derive(Debug)]
    pub struct Responding<F> {
        #[pin]
        future: F,
        outcome: Option<Outcome>,
    }
}

impl<F, R, E> Future for Responding<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<TracedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let future = this.future;
        let polled = poll_in(this.outcome, || future.poll(cx));
        polled.map(|result| {
            let mut outcome = this.outcome.take().unwrap_or(Outcome::none());
            match result {
                Ok(response) => {
                    outcome.see_head(&response);
                    Ok(response.map(|body| TracedBody::new(body, outcome)))
                }
                Err(error) => {
                    outcome.fail::<E>();
                    Err(error)
                }
            }
        })
    }
}
