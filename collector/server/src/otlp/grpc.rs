//! The gRPC services `opentelemetry.proto.collector.trace.v1.TraceService` and
//! `opentelemetry.proto.collector.logs.v1.LogsService`.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Buf as _;
use http::{Request, Response};
use prost::Message as _;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Status};

use super::answer::{ExportResponse, Refusal};
use super::door::Door;
use super::signal::{Encoding, Signal};
use crate::net::BodyShare;
use crate::pool::Peer;

const EXPORT: &str = "Export";
const GRPC_STATUS: &str = "grpc-status";

const TRACES: u8 = 0;
const LOGS: u8 = 1;

/// Service on the gRPC port for one signal, which the number `SIGNAL` selects. The number is a
/// const parameter, as tonic derives a service's name from its type.
#[derive(Clone, Debug)]
pub(crate) struct ExportService<const SIGNAL: u8>(Door);

/// Service that accepts spans.
pub(crate) type TraceService = ExportService<TRACES>;
/// Service that accepts log records.
pub(crate) type LogsService = ExportService<LOGS>;

impl<const SIGNAL: u8> ExportService<SIGNAL> {
    const SIGNAL: Signal = match SIGNAL {
        TRACES => Signal::Traces,
        _ => Signal::Logs,
    };

    pub(crate) fn new(door: Door) -> Self {
        Self(door)
    }
}

impl<const SIGNAL: u8> NamedService for ExportService<SIGNAL> {
    const NAME: &'static str = Self::SIGNAL.service();
}

impl<const SIGNAL: u8> Service<Request<Body>> for ExportService<SIGNAL> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self(door) = self.clone();
        Box::pin(async move {
            let method = request.uri().path().rsplit('/').next();
            if method != Some(EXPORT) {
                let message = format!("{:?} has no such method", Self::NAME);
                return Ok(Status::unimplemented(message).into_http());
            }
            let limit = door.request_bytes_max();
            let mut grpc = Grpc::new(AsItCame)
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Zstd)
                .max_decoding_message_size(limit);
            let response = grpc
                .unary(Export(door.clone(), Self::SIGNAL), request)
                .await;
            Ok(as_otlp_has_it(response, &door))
        })
    }
}

/// Counts rejections before the service, and converts those of messages that are too large. tonic
/// rejects an uncompressed message with OUT_OF_RANGE, which OTLP clients retry; `unpack_messages`
/// rejects a compressed one with RESOURCE_EXHAUSTED. Clients get RESOURCE_EXHAUSTED without a retry
/// delay for both, and do not retry.
fn as_otlp_has_it(response: Response<Body>, door: &Door) -> Response<Body> {
    let code = response.headers().get(GRPC_STATUS);
    match code.map(|code| Code::from_bytes(code.as_bytes())) {
        // The service itself returns these codes only if redaction has made a request too large,
        // and does not count them.
        Some(Code::OutOfRange | Code::ResourceExhausted) => {
            let limit = door.request_bytes_max();
            let refusal = Refusal::TooLarge { limit };
            door.refuse(&refusal);
            refusal.status().into_http()
        }
        Some(Code::Internal) => {
            let message = "the message is truncated, or its compressed data is damaged".to_owned();
            door.refuse(&Refusal::Invalid(message));
            response
        }
        Some(Code::Unimplemented) => {
            let message = "the message is compressed by neither gzip nor zstd".to_owned();
            door.refuse(&Refusal::Unsupported(message));
            response
        }
        _ => response,
    }
}

#[derive(Debug)]
struct Export(Door, Signal);

impl UnaryService<Vec<u8>> for Export {
    type Response = ExportResponse;
    type Future = BoxFuture<tonic::Response<ExportResponse>, Status>;

    fn call(&mut self, request: tonic::Request<Vec<u8>>) -> Self::Future {
        let (door, signal) = (self.0.clone(), self.1);
        Box::pin(async move {
            let (_, extensions, request) = request.into_parts();
            let reading = extensions.get::<BodyShare>();
            let peer = extensions.get::<Peer>().copied().unwrap_or_default();
            let encoding = Encoding::Protobuf;
            match door.export(signal, encoding, request, reading, peer).await {
                Ok(response) => Ok(tonic::Response::new(response)),
                Err(refusal @ Refusal::TooLarge { .. }) => Err(refusal.status()),
                Err(refusal) => {
                    door.refuse(&refusal);
                    Err(refusal.status())
                }
            }
        })
    }
}

/// Codec that passes requests on as bytes, because they are logged as bytes.
#[derive(Clone, Copy, Debug)]
struct AsItCame;

impl Codec for AsItCame {
    type Encode = ExportResponse;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for AsItCame {
    type Item = ExportResponse;
    type Error = Status;

    fn encode(&mut self, item: ExportResponse, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for AsItCame {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}
