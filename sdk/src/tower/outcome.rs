//! How a request ends: the status of its response, or that there is none, recorded with the end of its span.
//!
//! Attributes and rules are those of OpenTelemetry's semantic conventions: `http.response.status_code`, and of gRPC
//! `rpc.grpc.status_code`. `error` is set for statuses from 500 on, of a client also from 400 on, and for the codes of gRPC that
//! mean a fault of the server, of a client for each code but OK. A call that brings no response has `error` and the type of the
//! error in `error.type`; one that nobody waited for has `cancelled`.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};

use crate::callsite::Callsite;
use crate::record::{FieldWriter, ValueKind};
use crate::span::Span;

const STATUS: &str = "http.response.status_code";
const CODE: &str = "rpc.grpc.status_code";

static HTTP: Callsite = Callsite::new("", &[STATUS, "error"], file!(), line!());
static GRPC: Callsite = Callsite::new("", &[CODE, "error"], file!(), line!());
static FAILED: Callsite = Callsite::new("", &["error", "error.type"], file!(), line!());
static CANCELLED: Callsite = Callsite::new("", &["cancelled"], file!(), line!());

/// Codes of gRPC that mean a fault of the server: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
const SERVER_FAULTS: [u32; 6] = [2, 4, 12, 13, 14, 15];

/// What is known of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing: no response came yet.
    Nothing,
    Http(u16),
    /// The code of a gRPC call is in the trailers, which did not come yet.
    GrpcBegan,
    Grpc(u32),
}

/// A span, and how its request ends. Dropped, it ends the span.
#[derive(Debug)]
pub(super) struct Outcome {
    span: Span,
    is_client: bool,
    known: Known,
}

impl Outcome {
    pub(super) const fn of_server(span: Span) -> Self {
        Self::new(span, false)
    }

    pub(super) const fn of_client(span: Span) -> Self {
        Self::new(span, true)
    }

    /// Of nothing that is recorded.
    pub(super) const fn none() -> Self {
        Self::new(Span::NONE, false)
    }

    const fn new(span: Span, is_client: bool) -> Self {
        Self {
            span,
            is_client,
            known: Known::Nothing,
        }
    }

    pub(super) const fn span(&self) -> &Span {
        &self.span
    }

    /// Takes note of a response's head.
    #[inline]
    pub(super) fn see_head<B>(&mut self, response: &Response<B>) {
        if self.span.is_recorded() {
            let kind = response.headers().get(CONTENT_TYPE);
            self.known = match kind {
                Some(kind) if kind.as_bytes().starts_with(b"application/grpc") => {
                    code(response.headers()).map_or(Known::GrpcBegan, Known::Grpc)
                }
                _ => Known::Http(response.status().as_u16()),
            };
        }
    }

    /// Takes note of what follows the body.
    pub(super) fn see_trailers(&mut self, trailers: &HeaderMap) {
        if self.known == Known::GrpcBegan {
            self.known = code(trailers).map_or(Known::GrpcBegan, Known::Grpc);
        }
    }

    /// Ends the span of a request whose response, or the rest of it, is an error of this type.
    pub(super) fn fail<E>(mut self) {
        let span = std::mem::replace(&mut self.span, Span::NONE);
        span.end_with(&FAILED, |writer| {
            writer.scalar(0, ValueKind::Bool, 1);
            writer.text(1, std::any::type_name::<E>());
        });
    }

    fn is_error(&self) -> bool {
        match self.known {
            Known::Http(status) => status >= if self.is_client { 400 } else { 500 },
            Known::Grpc(code) if self.is_client => code != 0,
            Known::Grpc(code) => SERVER_FAULTS.contains(&code),
            Known::Nothing | Known::GrpcBegan => false,
        }
    }
}

impl Drop for Outcome {
    #[inline]
    fn drop(&mut self) {
        if !self.span.is_recorded() || std::thread::panicking() {
            return;
        }
        let is_error = self.is_error();
        let status = |number: u32| {
            move |writer: &mut FieldWriter<'_>| {
                writer.scalar(0, ValueKind::Int, number.into());
                if is_error {
                    writer.scalar(1, ValueKind::Bool, 1);
                }
            }
        };
        let span = std::mem::replace(&mut self.span, Span::NONE);
        match self.known {
            Known::Http(number) => span.end_with(&HTTP, status(number.into())),
            Known::Grpc(number) => span.end_with(&GRPC, status(number)),
            Known::Nothing | Known::GrpcBegan => {
                span.end_with(&CANCELLED, |writer| writer.scalar(0, ValueKind::Bool, 1));
            }
        }
    }
}

/// The code of a gRPC call; UNKNOWN, where it is no number, as gRPC says.
fn code(headers: &HeaderMap) -> Option<u32> {
    let code = headers.get("grpc-status")?.to_str();
    Some(code.ok().and_then(|code| code.parse().ok()).unwrap_or(2))
}
