//! Body of a copied request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use prost::bytes::Bytes;

/// Bytes of a copy in one piece, and its trailers.
#[derive(Debug, Default)]
pub struct CopiedBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl CopiedBody {
    pub(super) fn new(bytes: Vec<u8>, trailers: HeaderMap) -> Self {
        Self {
            data: (!bytes.is_empty()).then(|| Bytes::from(bytes)),
            trailers: (!trailers.is_empty()).then_some(trailers),
        }
    }
}

impl Body for CopiedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.data.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(bytes as u64)
    }
}
