//! Bodies of requests for pages.

use axum::extract::rejection::StringRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::net::Rejection;

/// Maximum length of a request's body, in bytes, unless a route has its own limit: enough for a
/// burst-config or a long token.
pub(super) const BODY_BYTES_MAX: usize = 8 << 10;

/// Body of a request, as text.
pub(super) struct BodyText(pub(super) String);

/// Failure to read the body of a request.
pub(super) struct BodyError(StringRejection);

impl<S: Send + Sync> FromRequest<S> for BodyText {
    type Rejection = BodyError;

    async fn from_request(request: Request, state: &S) -> Result<Self, BodyError> {
        let read = String::from_request(request, state).await;
        read.map(Self).map_err(BodyError)
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        if let Some(denied) = Rejection::of_body(&self.0) {
            let text = format!("{}\n", denied.message);
            let mut response = (denied.http(), text).into_response();
            denied.put_headers(response.headers_mut());
            return response;
        }
        let status = self.0.status();
        let text = if status == StatusCode::PAYLOAD_TOO_LARGE {
            format!("the body is longer than {BODY_BYTES_MAX} bytes: send a shorter one\n")
        } else {
            format!("{}\n", self.0)
        };
        (status, text).into_response()
    }
}
