//! Response body that carries its request's span until the body ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use super::outcome::{Outcome, poll_in};

pin_project_lite::pin_project! {
    /// Response body in its request's span. The span is current while the body is polled. It ends
    /// with the body's trailers, at its end, with an error, or when the body is dropped.
    #[derive(Debug)]
    pub struct TracedBody<B> {
        #[pin]
        inner: B,
        outcome: Option<Outcome>,
    }
}

impl<B> TracedBody<B> {
    pub(super) fn new(inner: B, outcome: Outcome) -> Self {
        Self {
            inner,
            outcome: Some(outcome),
        }
    }
}

/// Creates an empty body, as tonic needs for its own responses.
impl<B: Default> Default for TracedBody<B> {
    fn default() -> Self {
        Self {
            inner: B::default(),
            outcome: None,
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
        let inner = this.inner;
        let polled = poll_in(this.outcome, || inner.poll_frame(cx));
        let (is_last, trailers) = match &polled {
            Poll::Ready(Some(Err(_))) => {
                if let Some(outcome) = this.outcome.take() {
                    outcome.fail::<B::Error>();
                }
                (false, None)
            }
            // gRPC's trailers are the last frame.
            Poll::Ready(Some(Ok(frame))) => (frame.is_trailers(), frame.trailers_ref()),
            Poll::Ready(None) => (true, None),
            Poll::Pending => (false, None),
        };
        if is_last && let Some(outcome) = this.outcome.take() {
            outcome.complete(trailers);
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
