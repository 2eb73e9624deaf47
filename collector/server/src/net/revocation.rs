//! Ends requests whose token has become invalid: streams last for hours, and token files change.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use http_body::Frame;
use tokio::sync::watch;

use super::admission::Rejection;
use super::ports::Ports;
use super::rejections::{PortName, RejectionCause};
use super::tokens::Role;

/// Delay between the end of a request and the end of its response, in which accepted messages are
/// still answered.
const GRACE: Duration = Duration::from_secs(1);

/// Future that resolves when a reload of the files makes the token or login that admitted a request
/// invalid, or finds that the login has expired. Clones share it.
#[derive(Clone)]
pub(super) struct Withdrawal(Shared<BoxFuture<'static, Rejection>>);

impl fmt::Debug for Withdrawal {
    /// Prints no field, as the future contains a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Withdrawal")
    }
}

impl Withdrawal {
    pub(super) fn of(
        doors: Arc<Ports>,
        door: PortName,
        role: Role,
        headers: &HeaderMap,
        mut replaced: watch::Receiver<()>,
    ) -> Self {
        let mut token = HeaderMap::new();
        for name in [header::AUTHORIZATION, header::COOKIE] {
            for value in headers.get_all(&name) {
                let mut value = value.clone();
                value.set_sensitive(true);
                token.append(&name, value);
            }
        }
        let withdrawn = async move {
            while replaced.changed().await.is_ok() {
                if doors.check_token(role, &token).is_err() {
                    let cause = RejectionCause::TokenWithdrawn;
                    doors.refused.count(door, cause, &"a request under way");
                    return Rejection::new(cause, "the token was withdrawn");
                }
            }
            // This is not reached, as `doors` keeps the sender alive.
            std::future::pending().await
        };
        Self(withdrawn.boxed().shared())
    }
}

impl Future for Withdrawal {
    type Output = Rejection;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Rejection> {
        self.0.poll_unpin(context)
    }
}

/// Ends the response to a request whose token has become invalid. Over gRPC, it sends a status.
/// Otherwise, it aborts the body, as the HTTP status was sent before.
pub(super) struct ResponseEnd {
    due: BoxFuture<'static, Rejection>,
    is_grpc: bool,
    is_over: bool,
}

impl ResponseEnd {
    pub(super) fn of(withdrawal: Withdrawal, is_grpc: bool) -> Self {
        let due = async move {
            let denied = withdrawal.await;
            tokio::time::sleep(GRACE).await;
            denied
        };
        Self {
            due: due.boxed(),
            is_grpc,
            is_over: false,
        }
    }

    /// Returns the last frame (gRPC) or an error (HTTP) when it is due, and `None` from then on.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(denied) = self.due.poll_unpin(context) else {
            return Poll::Pending;
        };
        self.is_over = true;
        let status = denied.status();
        if !self.is_grpc {
            return Poll::Ready(Some(Err(axum::Error::new(status))));
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(status.code() as i32));
        if let Ok(message) = HeaderValue::from_str(status.message()) {
            trailers.insert("grpc-message", message);
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
