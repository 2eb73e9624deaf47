//! Decompresses gRPC messages before tonic sees them: tonic would not reserve their bytes first.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{HeaderName, Request};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body::Frame;
use tonic::Status;
use tonic::codegen::BoxFuture;

use super::body::BodyShare;
use super::unpack::{ContentCoding, UnpackError, unpack_beside};

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Length in bytes of a message's prefix: a flag and the message's length.
const HEAD_BYTES: usize = 5;
const IS_PACKED: u8 = 1;
/// A message that decompresses to at most this many bytes is decompressed in place, which costs
/// less than another thread.
const IN_PLACE_BYTES_MAX: usize = 256 << 10;

/// Decompresses the messages of a request as they arrive, each to at most `limit` bytes. Messages
/// in an unknown encoding pass unchanged: tonic rejects them and lists the supported encodings.
pub(crate) fn unpack_messages(mut request: Request<Body>, limit: usize) -> Request<Body> {
    let name = request.headers().get(ENCODING);
    let Some(packing) = name.and_then(|name| ContentCoding::of_name(name.as_bytes())) else {
        return request;
    };
    request.headers_mut().remove(ENCODING);
    let reading = request.extensions().get::<BodyShare>().cloned();
    request.map(|body| {
        Body::new(Messages {
            body,
            packing,
            limit,
            reading,
            arrived: BytesMut::new(),
            unpacking: None,
            unpacked: None,
        })
    })
}

struct Messages {
    body: Body,
    packing: ContentCoding,
    limit: usize,
    reading: Option<BodyShare>,
    /// Received bytes that are neither passed on nor being decompressed yet.
    arrived: BytesMut,
    unpacking: Option<BoxFuture<Vec<u8>, UnpackError>>,
    /// Decompressed message, to be handed over after its prefix.
    unpacked: Option<Bytes>,
}

type NextFrame = Option<Result<Frame<Bytes>, axum::Error>>;

impl Messages {
    /// Hands over a decompressed message: its prefix now, the rest at the next poll. tonic copies
    /// the message, so it counts twice.
    fn hand_over(&mut self, unpacked: Result<Vec<u8>, UnpackError>) -> NextFrame {
        let unpacked = unpacked.map_err(|error| match error {
            UnpackError::TooLarge { limit } => Status::resource_exhausted(format!(
                "the message unpacks to more than the limit of {limit} bytes: send smaller ones"
            )),
            UnpackError::Damaged(error) => {
                Status::internal(format!("the packed message is damaged: {error}"))
            }
            UnpackError::Full(denied) => denied.status(),
        });
        let held = unpacked.and_then(|bytes| {
            let held = self.hold(2 * bytes.len());
            held.map(|()| bytes)
        });
        Some(held.map_err(axum::Error::new).map(|bytes| {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let mut head = BytesMut::with_capacity(HEAD_BYTES);
            head.put_u8(0);
            head.put_u32(length);
            self.unpacked = Some(bytes.into());
            Frame::data(head.freeze())
        }))
    }

    fn hold(&self, bytes: usize) -> Result<(), Status> {
        let reading = self.reading.as_ref();
        let held = reading.map_or(Ok(()), |reading| {
            reading.at_least(self.arrived.len() + bytes)
        });
        held.map_err(|denied| denied.status())
    }

    /// Returns the next frame, made of the bytes that have arrived. Returns `None` if more bytes
    /// have to arrive, or if it has started to decompress a message on another thread.
    fn next(&mut self) -> Option<NextFrame> {
        let head: &[u8; HEAD_BYTES] = self.arrived.first_chunk()?;
        let [flag, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if flag != IS_PACKED {
            // Passes an uncompressed message on unchanged, even if it is invalid: tonic reports the
            // error.
            let here = self.arrived.len().min(HEAD_BYTES + length);
            let is_whole = here == HEAD_BYTES + length || flag != 0 || length > self.limit;
            return is_whole.then(|| Some(Ok(Frame::data(self.arrived.split_to(here).freeze()))));
        }
        if length > self.limit {
            let limit = self.limit;
            return Some(self.hand_over(Err(UnpackError::TooLarge { limit })));
        }
        if self.arrived.len() < HEAD_BYTES + length {
            return None;
        }
        self.arrived.advance(HEAD_BYTES);
        let packed = self.arrived.split_to(length).freeze();
        let in_place = self.limit.min(IN_PLACE_BYTES_MAX);
        let unpacked = self.packing.unpack(&packed, in_place, |bytes| {
            let reading = self.reading.as_ref();
            let all = self.arrived.len() + packed.len() + bytes;
            reading.map_or(Ok(()), |reading| reading.at_least(all))
        });
        if matches!(unpacked, Err(UnpackError::TooLarge { limit }) if limit < self.limit) {
            let reading = self.reading.clone();
            let unpacking = unpack_beside(self.packing, packed, self.limit, reading);
            self.unpacking = Some(Box::pin(unpacking));
            return None;
        }
        Some(self.hand_over(unpacked))
    }
}

impl http_body::Body for Messages {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<NextFrame> {
        loop {
            if let Some(unpacked) = self.unpacked.take() {
                return Poll::Ready(Some(Ok(Frame::data(unpacked))));
            }
            if let Some(unpacking) = &mut self.unpacking {
                let unpacked = ready!(unpacking.as_mut().poll(context));
                self.unpacking = None;
                return Poll::Ready(self.hand_over(unpacked));
            }
            if let Some(handed) = self.next() {
                return Poll::Ready(handed);
            }
            if self.unpacking.is_some() {
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.arrived.put(data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                // The rest is a truncated message, which tonic reports.
                None if !self.arrived.is_empty() => {
                    let rest = self.arrived.split().freeze();
                    return Poll::Ready(Some(Ok(Frame::data(rest))));
                }
                ended => return Poll::Ready(ended),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    fn message(flag: u8, bytes: &[u8]) -> Vec<u8> {
        let mut message = vec![flag];
        message.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        message.extend(bytes);
        message
    }

    fn pieces(bytes: &[u8], piece: usize) -> Body {
        let pieces: Vec<_> = bytes.chunks(piece).map(<[u8]>::to_vec).collect();
        Body::from_stream(futures_util::stream::iter(
            pieces.into_iter().map(Ok::<_, std::io::Error>),
        ))
    }

    /// Messages arrive unchanged, compressed or not, small or large, and however they are cut.
    #[tokio::test]
    async fn messages_come_as_they_were_before_they_were_packed() {
        let large = vec![7; 3 * IN_PLACE_BYTES_MAX];
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for bytes in [&b""[..], b"abc", &large, b"d"] {
            let packed = zstd::encode_all(bytes, 3).unwrap();
            sent.extend(message(IS_PACKED, &packed));
            sent.extend(message(0, bytes));
            expected.extend([message(0, bytes), message(0, bytes)].concat());
        }
        for piece in [1_000, 16_384, sent.len()] {
            let request = Request::builder().header(ENCODING, "zstd");
            let request = request.body(pieces(&sent, piece)).unwrap();
            let request = unpack_messages(request, large.len());
            assert!(!request.headers().contains_key(ENCODING));
            let came = to_bytes(request.into_body(), usize::MAX).await.unwrap();
            assert!(came == expected, "{piece}");
        }
    }

    #[tokio::test]
    async fn what_is_too_large_or_damaged_says_so() {
        let packed = zstd::encode_all(&[0; 2_000_000][..], 3).unwrap();
        for (bytes, code) in [
            (message(IS_PACKED, &packed), tonic::Code::ResourceExhausted),
            (message(IS_PACKED, b"neither"), tonic::Code::Internal),
        ] {
            let request = Request::builder().header(ENCODING, "zstd");
            let request = request.body(Body::from(bytes)).unwrap();
            let body = unpack_messages(request, 1 << 20).into_body();
            let failed = to_bytes(body, usize::MAX).await.unwrap_err();
            assert_eq!(Status::from_error(Box::new(failed)).code(), code);
        }
    }
}
