//! Answers gRPC calls at ports of the collector that do not serve gRPC.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, header};
use tonic::Status;

/// Returns the status of a gRPC call as a response without a body.
pub(crate) fn refusal(status: Status) -> Response<Body> {
    let (parts, ()) = status.into_http::<()>().into_parts();
    Response::from_parts(parts, Body::empty())
}

/// Returns the response to a gRPC call at a port that does not serve gRPC. It names the right port,
/// under the host in the request's URI if there is one. Returns `None` for other requests.
pub(crate) fn wrong_port(
    request: &Request,
    is_for: &str,
    grpc_port: u16,
) -> Option<Response<Body>> {
    let kind = request.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("application/grpc") {
        return None;
    }
    let is_otlp = request.uri().path().starts_with("/opentelemetry.");
    let variable = match is_otlp {
        true => "OTEL_EXPORTER_OTLP_ENDPOINT",
        false => "STROBOSCOPE_COLLECTOR",
    };
    let host = request.uri().host().unwrap_or("HOST");
    Some(refusal(Status::unimplemented(format!(
        "this is the collector's port for {is_for}; services ship by gRPC to port {grpc_port}: {variable}=http://{host}:{grpc_port}"
    ))))
}
