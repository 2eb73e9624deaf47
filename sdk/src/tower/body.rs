//! A response's body that carries its span to the end.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use crate::span::Span;

pin_project_lite::pin_project! {
    /// A body in a span: the span is current while the body is polled, and ends with its last frame, with an error, or
    /// when the body is dropped.
    #[derive(Debug)]
    pub struct TracedBody<B> {
        #[pin]
        inner: B,
        span: Option<Span>,
    }
}

impl<B> TracedBody<B> {
    pub(crate) fn new(inner: B, span: Span) -> Self {
        Self {
            inner,
            span: Some(span),
        }
    }
}

/// An empty body, as tonic makes for its own answers.
impl<B: Default> Default for TracedBody<B> {
    fn default() -> Self {
        Self {
            inner: B::default(),
            span: None,
        }
    }
}

impl<B: Body> Body for TracedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let scope = this.span.as_ref().and_then(Span::scope_of_poll);
        let polled = this.inner.poll_frame(cx);
        drop(scope);
        match &polled {
            Poll::Ready(None | Some(Err(_))) => *this.span = None,
            // gRPC's trailers are the last frame.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => *this.span = None,
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
