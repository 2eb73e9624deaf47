//! OTLP over HTTP: `POST /v1/traces` and `/v1/logs`, in protobuf or JSON, answered in the request's
//! encoding. Such requests in other encodings are rejected in JSON.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::post;
use prost::Message as _;
use tonic::Code;

use super::answer::{ExportResponse, RETRY_AFTER, Refusal};
use super::door::Door;
use super::signal::{Encoding, Signal};
use crate::net::{
    BodyShare, ContentCoding, Listener, ListenerSetup, PortName, Ports, Rejection, unpack_beside,
    wrong_port,
};
use crate::pool::Peer;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Failure to listen on the address for OTLP over HTTP.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for OTLP over HTTP: {source}; --otlp-http takes another address, or none"
)]
pub struct OtlpHttpError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A running server of OTLP over HTTP.
#[derive(Debug)]
pub struct OtlpHttpServer {
    listening: Listener,
    address: SocketAddr,
}

impl OtlpHttpServer {
    /// Listens and serves; port 0 picks a free port.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on the address.
    pub(crate) async fn start(
        doors: Arc<Ports>,
        address: SocketAddr,
        door: Door,
        grpc_port: u16,
    ) -> Result<Self, OtlpHttpError> {
        let router = Router::new()
            .route(Signal::Traces.path(), post(traces).fallback(no_post))
            .route(Signal::Logs.path(), post(logs).fallback(no_post))
            .fallback(move |request| elsewhere(request, grpc_port))
            .with_state(door);
        let opening = ListenerSetup {
            doors,
            name: PortName::OtlpHttp,
            router,
            answer: turned_away,
        };
        let error = |source| OtlpHttpError { address, source };
        let (listening, address) = opening.tcp(address).await.map_err(error)?;
        Ok(Self { listening, address })
    }

    /// Returns the address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests in flight for up to 5 seconds, then closes all connections.
    pub async fn stop(self) {
        let _ = self.listening.stop(STOP_PATIENCE).await;
    }
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case(JSON) {
            Some(Self::Json)
        } else if kind.eq_ignore_ascii_case(PROTOBUF) {
            Some(Self::Protobuf)
        } else {
            None
        }
    }

    fn response(
        self,
        status: StatusCode,
        protobuf: Vec<u8>,
        json: &serde_json::Value,
    ) -> Response<Body> {
        let (kind, body) = match self {
            Self::Protobuf => (PROTOBUF, protobuf),
            Self::Json => (JSON, json.to_string().into_bytes()),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let kind = header::HeaderValue::from_static(kind);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    /// Returns an unsuccessful response, whose body is a `google.rpc.Status`.
    fn error(self, http: StatusCode, code: Code, message: &str) -> Response<Body> {
        let status = tonic_types::Status {
            code: code as i32,
            message: message.to_owned(),
            details: Vec::new(),
        };
        let json = serde_json::json!({"code": status.code, "message": message});
        self.response(http, status.encode_to_vec(), &json)
    }

    fn refusal(self, refusal: &Refusal) -> Response<Body> {
        let message = refusal.to_string();
        match refusal {
            Refusal::Invalid(_) => {
                self.error(StatusCode::BAD_REQUEST, Code::InvalidArgument, &message)
            }
            Refusal::Unsupported(_) => self.error(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Code::InvalidArgument,
                &message,
            ),
            Refusal::TooLarge { .. } => self.error(
                StatusCode::PAYLOAD_TOO_LARGE,
                Code::ResourceExhausted,
                &message,
            ),
            Refusal::Slow(_) => self.error(
                StatusCode::REQUEST_TIMEOUT,
                Code::DeadlineExceeded,
                &message,
            ),
            Refusal::Withdrawn(_) => {
                self.error(StatusCode::UNAUTHORIZED, Code::Unauthenticated, &message)
            }
            Refusal::Later(_) | Refusal::Full(_) => {
                let http = StatusCode::SERVICE_UNAVAILABLE;
                let mut response = self.error(http, Code::Unavailable, &message);
                let after = header::HeaderValue::from(RETRY_AFTER.as_secs());
                response.headers_mut().insert(header::RETRY_AFTER, after);
                response
            }
        }
    }
}

/// Returns the response to a request rejected by the port, in the form of this service's other
/// errors.
fn turned_away(parts: &Parts, denied: &Rejection) -> Response<Body> {
    let encoding = Encoding::of(&parts.headers).unwrap_or(Encoding::Json);
    encoding.error(denied.http(), denied.code(), &denied.message)
}

async fn traces(State(door): State<Door>, request: Request) -> Response<Body> {
    take(Signal::Traces, door, request).await
}

async fn logs(State(door): State<Door>, request: Request) -> Response<Body> {
    take(Signal::Logs, door, request).await
}

async fn take(signal: Signal, door: Door, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Some(encoding) = Encoding::of(&parts.headers) else {
        let message = format!("the content type is neither {PROTOBUF} nor {JSON}");
        let refusal = Refusal::Unsupported(message);
        door.refuse(&refusal);
        return Encoding::Json.refusal(&refusal);
    };
    let limit = door.request_bytes_max();
    let packed = match packing(&parts.headers) {
        Ok(packed) => packed,
        Err(refusal) => {
            door.refuse(&refusal);
            return encoding.refusal(&refusal);
        }
    };
    let reading = parts.extensions.get::<BodyShare>();
    let read = match whole(body, limit).await {
        Ok(bytes) => match packed {
            None => Ok(bytes),
            Some(packing) => unpack_beside(packing, bytes.into(), limit, reading.cloned())
                .await
                .map_err(Refusal::of_packed),
        },
        Err(refusal) => Err(refusal),
    };
    let peer = parts.extensions.get::<Peer>().copied().unwrap_or_default();
    let stored = match read {
        Ok(bytes) => door.export(signal, encoding, bytes, reading, peer).await,
        Err(refusal) => Err(refusal),
    };
    match stored {
        Ok(response) => success(signal, encoding, &response),
        Err(refusal) => {
            door.refuse(&refusal);
            encoding.refusal(&refusal)
        }
    }
}

/// Reads a whole body. Returns an error if it is larger than `limit` bytes or cannot be read.
async fn whole(mut body: Body, limit: usize) -> Result<Vec<u8>, Refusal> {
    let too_large = || Refusal::TooLarge { limit };
    // Rejects, without reading it, a body whose declared size exceeds the limit.
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if told > limit {
        return Err(too_large());
    }
    // A declared size alone reserves at most 1 MiB.
    let mut bytes = Vec::with_capacity(told.min(1 << 20));
    let next = |body: &mut Body, context: &mut Context<'_>| Pin::new(body).poll_frame(context);
    while let Some(frame) = poll_fn(|context| next(&mut body, context)).await {
        let frame = frame.map_err(|error| Refusal::of_body(&error))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

fn success(signal: Signal, encoding: Encoding, response: &ExportResponse) -> Response<Body> {
    let json = response.json(signal);
    encoding.response(StatusCode::OK, response.encode_to_vec(), &json)
}

/// Returns the compression of a body; `None` if it is not compressed.
fn packing(headers: &HeaderMap) -> Result<Option<ContentCoding>, Refusal> {
    let Some(coding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(None);
    };
    match coding.as_bytes().to_ascii_lowercase().trim_ascii() {
        b"" | b"identity" => Ok(None),
        name => ContentCoding::of_name(name).map(Some).ok_or_else(|| {
            Refusal::Unsupported(
                "the content encoding is none of gzip, zstd and identity".to_owned(),
            )
        }),
    }
}

async fn no_post(request: Request) -> Response<Body> {
    let encoding = Encoding::of(request.headers()).unwrap_or(Encoding::Json);
    let mut response = encoding.error(
        StatusCode::METHOD_NOT_ALLOWED,
        Code::InvalidArgument,
        "send spans and log records by POST",
    );
    let post = header::HeaderValue::from_static("POST");
    response.headers_mut().insert(header::ALLOW, post);
    response
}

async fn elsewhere(request: Request, grpc_port: u16) -> Response<Body> {
    if let Some(answer) = wrong_port(&request, "OTLP over HTTP", grpc_port) {
        return answer;
    }
    let encoding = Encoding::of(request.headers()).unwrap_or(Encoding::Json);
    let path = request.uri().path();
    let message = match path.strip_prefix("/v1/") {
        Some(signal @ ("metrics" | "profiles")) => {
            format!("this collector accepts traces and logs over OTLP, not {signal}")
        }
        _ => format!("there is nothing at {path:?}: send traces to /v1/traces, logs to /v1/logs"),
    };
    encoding.error(StatusCode::NOT_FOUND, Code::Unimplemented, &message)
}
