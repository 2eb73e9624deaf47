//! Tower layers that propagate the context between processes, copy requests, or queue them by
//! slack: for tonic, axum, hyper, and any other library based on `http::Request`.

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

/// Layer that opens a server span for each request, in the trace that its headers name. A request
/// without a trace, or from a [public caller](crate::Builder::public_callers), is an ingress.
///
/// The span ends with the response's body, so that it covers a streamed response. It carries the
/// response's status: a failure by OpenTelemetry's rules has the attribute `error`, and for a gRPC
/// call its message. Put other layers, such as tower-http's `TraceLayer`, inside this one: a span
/// that they open outside of it becomes a separate request. The span is named
/// `package.Service/Method` for gRPC, and `GET /user/{id}` for other requests, after the path with
/// `{id}` in place of parts that look like ids.
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

/// Function that returns a request's route from the extensions set by the web framework.
type RouteOf = fn(&Extensions) -> Option<&str>;

/// Returns the callsite of a request: gRPC's `package.Service/Method`, as OpenTelemetry names it;
/// for others `GET /user/{id}`.
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
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self { route_of: None }
    }

    /// Names spans, except those of gRPC calls, after the route that the web framework has stored
    /// in the request's extensions. With axum,
    /// `.route_by(|extensions| extensions.get::<MatchedPath>().map(MatchedPath::as_str))` results
    /// in `GET /user/{name}`. If the function returns `None`, the path is used.
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

/// Service created by [`ServerLayer`].
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
    type Future = ResponseFuture<InContext<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let incoming = extract(request.headers());
        let span = incoming.begin_as(|| callsite_of(&request, self.route_of));
        let _carried = CarriedScope::enter(Some(Arc::clone(incoming.carried())));
        // The inner service may do work while it creates its future; that work belongs to the
        // request, too.
        let _scope = Scope::enter(span.context());
        ResponseFuture {
            future: self.inner.call(request).in_current_span(),
            outcome: Some(Outcome::of_server(span)),
        }
    }
}

/// Layer that opens a client span for each request and writes the context into its headers. The
/// span is named after the path, like spans of [`ServerLayer`]. It ends with the response's body,
/// and carries the response's status.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientLayer(());

impl ClientLayer {
    /// Creates the layer, which has no settings.
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

/// Service created by [`ClientLayer`].
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
    type Future = ResponseFuture<S::Future>;

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
            // A request that is not recorded here keeps its trace; each call has its own parent id,
            // as W3C requires.
            outer.child(thread::span_id())
        } else if !outer.is_valid() && foresight::opens_soon() {
            // A request without ids gets ids now: if a window opens at the callee, the callee's
            // records are then known to be only a part of a request.
            unseen_request()
        } else {
            SpanContext::NONE
        };
        inject_from(sent, carried().as_deref(), request.headers_mut());
        ResponseFuture {
            future: self.inner.call(request),
            outcome: Some(Outcome::of_client(span)),
        }
    }
}

pin_project_lite::pin_project! {
    /// Response future that records the outcome of the request in its span.
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        future: F,
        outcome: Option<Outcome>,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
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
