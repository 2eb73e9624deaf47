//! Tower layers that pass the context between processes, as the usual crates for tonic and axum do.

use std::task::{Context, Poll};

use http::{Request, Response};
use opentelemetry::global::get_text_map_propagator;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use tower::{Layer, Service};
use tracing::Instrument as _;
use tracing::instrument::Instrumented;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

fn name_of<B>(request: &Request<B>) -> &str {
    request.uri().path().trim_start_matches('/')
}

pub use crate::tradeoff::{CopiedBody, DuplicateLayer, SlackOrderLayer};

/// Opens a span for each incoming request. Its parent is the span that the request's headers name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerLayer(());

impl ServerLayer {
    /// Makes the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for ServerLayer {
    type Service = ServerService<S>;

    fn layer(&self, inner: S) -> ServerService<S> {
        ServerService { inner }
    }
}

/// The service that [`ServerLayer`] makes.
#[derive(Clone, Debug)]
pub struct ServerService<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for ServerService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let span = tracing::info_span!(
            "request",
            otel.name = name_of(&request),
            otel.kind = "server"
        );
        let parent =
            get_text_map_propagator(|from| from.extract(&HeaderExtractor(request.headers())));
        // Fails if the span is filtered out. There is no span then that needs a parent.
        let _ = span.set_parent(parent);
        let future = span.in_scope(|| self.inner.call(request));
        future.instrument(span)
    }
}

/// Opens a span for each outgoing request and writes the span's context into the headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientLayer(());

impl ClientLayer {
    /// Makes the layer.
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

/// The service that [`ClientLayer`] makes.
#[derive(Clone, Debug)]
pub struct ClientService<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for ClientService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let span = tracing::info_span!("call", otel.name = name_of(&request), otel.kind = "client");
        let context = span.context();
        get_text_map_propagator(|into| {
            into.inject_context(&context, &mut HeaderInjector(request.headers_mut()));
        });
        let future = span.in_scope(|| self.inner.call(request));
        future.instrument(span)
    }
}
