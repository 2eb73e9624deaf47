//! Bodies of originals; those to be copied are stored while they are read.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::copy::CopyState;

pin_project_lite::pin_project! {
    /// Body of an original request. If the request is to be copied, the body stores the bytes that
    /// the service reads.
    #[derive(Debug)]
    pub struct OriginalBody<B> {
        #[pin]
        inner: B,
        copying: Option<CopyState>,
    }
}

impl<B: Body> OriginalBody<B> {
    pub(super) fn new(inner: B, copying: Option<CopyState>) -> Self {
        let mut this = Self { inner, copying };
        // A reader need not poll a body that reports that it is empty.
        if this.inner.is_end_stream()
            && let Some(copying) = this.copying.take()
        {
            copying.complete(HeaderMap::new());
        }
        this
    }
}

impl<B> Body for OriginalBody<B>
where
    B: Body,
    B::Data: AsRef<[u8]>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let polled = this.inner.as_mut().poll_frame(cx);
        let Some(copying) = this.copying else {
            return polled;
        };
        let is_over = match &polled {
            Poll::Pending => return polled,
            Poll::Ready(Some(Ok(frame))) => match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) if !copying.keep(data.as_ref()) => {
                    *this.copying = None;
                    return polled;
                }
                (None, Some(_)) => true,
                // Readers need not poll once more.
                _ => this.inner.is_end_stream(),
            },
            Poll::Ready(None) => true,
            Poll::Ready(Some(Err(_))) => {
                // The body failed: the copy is dropped and counted.
                *this.copying = None;
                return polled;
            }
        };
        if is_over && let Some(copying) = this.copying.take() {
            let trailers = match &polled {
                Poll::Ready(Some(Ok(frame))) => frame.trailers_ref().cloned(),
                _ => None,
            };
            copying.complete(trailers.unwrap_or_default());
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
