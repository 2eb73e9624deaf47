//! Outcome of a request, recorded with the end of its span: the status of its response, or how it
//! ended without one.
//!
//! Names and the rules for failures follow OpenTelemetry's semantic conventions for HTTP and gRPC.
//! `cancelled` is an addition of the SDK: the request's future, or the body of a gRPC call, was
//! dropped before there was a status.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use crate::baggage::wire::escaped_byte;
use crate::callsite::Callsite;
use crate::record::{FieldWriter, TEXT_BYTES_MAX, ValueKind};
use crate::request::{is_failed_code, is_failed_status};
use crate::span::Span;

static OUTCOME: Callsite = Callsite::new(
    "",
    &[
        "http.response.status_code",
        "rpc.grpc.status_code",
        "error",
        "error.type",
        "cancelled",
        "otel.status_description",
    ],
    file!(),
    line!(),
);
const STATUS: u8 = 0;
const CODE: u8 = 1;
const ERROR: u8 = 2;
const ERROR_TYPE: u8 = 3;
const CANCELLED: u8 = 4;
const DESCRIPTION: u8 = 5;

/// gRPC's code for calls that end without a valid one.
const UNKNOWN: u32 = 2;

/// Span with its request's outcome, as far as known. Ends the span when dropped.
#[derive(Debug)]
pub(super) struct Outcome {
    span: Span,
    is_client: bool,
    is_grpc: bool,
    /// HTTP status of the response, if it arrived.
    status: Option<u16>,
    /// Code of the gRPC call, if it arrived; [`UNKNOWN`] after a body with HTTP status 200 without
    /// one.
    code: Option<u32>,
    /// Unparsed `grpc-message` of a failed call. Boxed, because it is rare.
    message: Option<Box<HeaderValue>>,
}

impl Outcome {
    pub(super) const fn of_server(span: Span) -> Self {
        Self::new(span, false)
    }

    pub(super) const fn of_client(span: Span) -> Self {
        Self::new(span, true)
    }

    /// Creates an outcome that is not recorded.
    pub(super) const fn none() -> Self {
        Self::new(Span::NONE, false)
    }

    const fn new(span: Span, is_client: bool) -> Self {
        Self {
            span,
            is_client,
            is_grpc: false,
            status: None,
            code: None,
            message: None,
        }
    }

    /// Reads the status from a response's head.
    #[inline]
    pub(super) fn see_head<B>(&mut self, response: &Response<B>) {
        if self.span.is_recorded() {
            self.status = Some(response.status().as_u16());
            self.is_grpc = is_grpc(response.headers());
            if self.is_grpc {
                self.see_code(response.headers());
            }
        }
    }

    /// Reads the gRPC code from headers or trailers, and the message if the code is a failure.
    fn see_code(&mut self, headers: &HeaderMap) {
        self.code = code(headers);
        let is_failed = |code| is_failed_code(code, self.is_client);
        if self.code.is_some_and(is_failed) {
            let message = headers.get("grpc-message");
            self.message = message
                .filter(|message| !message.is_empty())
                .cloned()
                .map(Box::new);
        }
    }

    /// Ends the span at the end of a body, with or without trailers. A gRPC response with
    /// the HTTP status 200 and no code gets the code UNKNOWN.
    pub(super) fn complete(mut self, trailers: Option<&HeaderMap>) {
        if self.is_grpc && self.code.is_none() {
            if let Some(trailers) = trailers {
                self.see_code(trailers);
            }
            // An HTTP status other than 200 is more informative than this code.
            if self.status == Some(200) {
                self.code.get_or_insert(UNKNOWN);
            }
        }
    }

    /// Ends the span of a request that failed with an error of type `E`, before its response or in
    /// the response's body.
    pub(super) fn fail<E>(mut self) {
        self.end(Some(std::any::type_name::<E>()));
    }

    /// Returns the gRPC code if it is a failure, or else the HTTP status if that is one, or else
    /// `None`.
    fn failure(&self) -> Option<u32> {
        let code = self
            .code
            .filter(|code| is_failed_code(*code, self.is_client));
        let status = self.status.map(u32::from);
        code.or_else(|| status.filter(|status| is_failed_status(*status, self.is_client)))
    }

    fn end(&mut self, failed: Option<&'static str>) {
        let span = std::mem::replace(&mut self.span, Span::NONE);
        if !span.is_recorded() {
            return;
        }
        // Each gRPC call has the status 200, unless something other than a gRPC server responded.
        let status = self.status.filter(|status| !self.is_grpc || *status != 200);
        let failure = self.failure();
        let is_cancelled = failed.is_none() && status.is_none() && self.code.is_none();
        span.end_with(&OUTCOME, |writer: &mut FieldWriter<'_>| {
            if let Some(status) = status {
                writer.scalar(STATUS, ValueKind::Int, status.into());
            }
            if let Some(code) = self.code {
                writer.scalar(CODE, ValueKind::Int, code.into());
            }
            if failed.is_some() || failure.is_some() {
                writer.scalar(ERROR, ValueKind::Bool, 1);
            }
            match (failed, failure) {
                (Some(name), _) => writer.text(ERROR_TYPE, name),
                (None, Some(number)) => writer.formatted(ERROR_TYPE, format_args!("{number}")),
                (None, None) => {}
            }
            if is_cancelled {
                writer.scalar(CANCELLED, ValueKind::Bool, 1);
            }
            if let Some(message) = &self.message {
                writer.text(DESCRIPTION, &message_text(message.as_bytes()));
            }
        });
    }
}

impl Drop for Outcome {
    #[inline]
    fn drop(&mut self) {
        // During a panic, the span's own drop ends it, with the flag of a panic.
        if self.span.is_recorded() && !std::thread::panicking() {
            self.end(None);
        }
    }
}

/// Polls with the span as the current one. A panic ends the span at once, because an outer layer
/// may catch it and drop the rest later.
pub(super) fn poll_in<T>(outcome: &mut Option<Outcome>, poll: impl FnOnce() -> T) -> T {
    struct PanicGuard<'a>(&'a mut Option<Outcome>);
    impl Drop for PanicGuard<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                drop(self.0.take());
            }
        }
    }
    let outcome = PanicGuard(outcome);
    let span = outcome.0.as_ref().map(|outcome| &outcome.span);
    let _scope = span.and_then(Span::scope_of_poll);
    poll()
}

/// Reports whether a response is one of gRPC itself. gRPC-web does not count, because its code is
/// inside the body.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Returns the code of a gRPC call, or `None` if the headers have none. Returns UNKNOWN if the code
/// is not a number, as gRPC requires.
fn code(headers: &HeaderMap) -> Option<u32> {
    let code = headers.get("grpc-status")?.to_str();
    Some(
        code.ok()
            .and_then(|code| code.parse().ok())
            .unwrap_or(UNKNOWN),
    )
}

/// Decodes a percent-encoded `grpc-message`. As gRPC requires, decoding never fails: an invalid
/// escape is kept, and invalid UTF-8 is replaced.
fn message_text(message: &[u8]) -> String {
    // Three bytes may encode one. The limit is slightly above a record's limit, so that the record
    // truncates the text and counts it.
    let mut rest = &message[..message.len().min(3 * (TEXT_BYTES_MAX + 4))];
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, after)) = rest.split_first() {
        let escaped = if first == b'%' {
            escaped_byte(after)
        } else {
            None
        };
        let (byte, after) = escaped.unwrap_or((first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_decoded_whatever_they_are() {
        let check = |message: &[u8], expected: &str| assert_eq!(message_text(message), expected);
        check(b"no such key", "no such key");
        check(b"caf%C3%A9%20%e2%98%95%0Aopen", "caf\u{e9} \u{2615}\nopen");
        check(b"100%", "100%");
        check(b"%4", "%4");
        check(b"%zz%2%25", "%zz%2%");
        check(b"%FF-\xff", "\u{fffd}-\u{fffd}");
        check("caf\u{e9}".as_bytes(), "caf\u{e9}");
        // Checks that the length of what is decoded of a long message has a limit.
        for long in [b"%41".repeat(350_000), b"A".repeat(1_000_000)] {
            let text = message_text(&long);
            assert!((TEXT_BYTES_MAX + 1..=3 * (TEXT_BYTES_MAX + 4)).contains(&text.len()));
            assert!(text.bytes().all(|byte| byte == b'A'));
        }
    }

    proptest! {
        #[test]
        fn encoded_messages_come_back(text in "\\PC{0,300}") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(message_text(encoded.as_bytes()), text.clone());
            // Text that is not encoded must not cause a panic.
            message_text(text.as_bytes());
        }
    }
}
