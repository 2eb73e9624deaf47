//! One connection: admits or rejects its requests, and closes it if it is slow or idle.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tonic::codegen::Service as _;
use tonic::transport::server::TcpConnectInfo;

use super::activity::{Activity, Due, OpenRequest};
use super::admission::{HEAD_BYTES_MAX, Rejection, Way};
use super::body::{BodyAccounting, BodyShare, BoundedBody, Messages};
use super::http2_authority::AuthorityFilter;
use super::ports::Ports;
use super::rejections::{PortName, RejectionCause};
use super::revocation::{ResponseEnd, Withdrawal};
use crate::pool::{Peer, Pool};

/// Builds the response to a rejected request.
pub(crate) type Answer = fn(&Parts, &Rejection) -> Response<Body>;

/// Maximum concurrent streams of one connection.
const STREAMS_MAX: u32 = 256;
/// Maximum bytes that HTTP without gRPC reads ahead on one connection before a handler takes them.
/// No pool counts them.
const READ_AHEAD_BYTES: u32 = 64 << 10;
/// Read-ahead for gRPC, in bytes, where remote services ship batches: 2.6 MB/s at a round trip of
/// 50 ms.
const GRPC_READ_AHEAD_BYTES: u32 = 128 << 10;
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Methods whose messages may arrive one after the other for hours.
const SHIP: &str = "/stroboscope.v1.Collector/Ship";
pub(crate) const FORWARD: &str = "/stroboscope.v1.Gateway/Forward";

/// State that all connections of a port share.
#[derive(Clone, Debug)]
pub(super) struct Visits {
    pub(super) doors: Arc<Ports>,
    pub(super) way: Way,
    pub(super) router: Router,
    pub(super) answer: Answer,
    /// Pool of open requests.
    pub(super) requests: Pool,
}

/// Client of a connection.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    pub(super) peer: Peer,
    /// TCP addresses; `None` on a unix socket and in a simulation.
    pub(super) tcp: Option<TcpConnectInfo>,
}

impl std::fmt::Display for Visitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.tcp.as_ref().and_then(TcpConnectInfo::remote_addr) {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("a client on the unix socket"),
        }
    }
}

/// Body of a response. The request counts as open until this body is dropped. The body ends early
/// if the request's token is withdrawn.
struct ResponseBody {
    body: Body,
    ending: Option<ResponseEnd>,
    _open: OpenRequest,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(ending) = &mut self.ending
            && let Poll::Ready(frame) = ending.poll(context)
        {
            return Poll::Ready(frame);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Stream that reports arriving bytes to `activity`.
struct ActivityStream<S> {
    stream: S,
    /// Filter for the header `:authority`; `None` unless the connection is on a unix socket.
    authorities: Option<AuthorityFilter>,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.activity.bytes_came();
            if let Some(filter) = &mut self.authorities {
                filter.filter(&mut into.filled_mut()[before..]);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Visits {
    fn is_grpc(&self) -> bool {
        matches!(
            self.way.door,
            PortName::Grpc | PortName::Unix | PortName::Worker
        )
    }

    pub(super) fn refuse(&self, cause: RejectionCause, visitor: &Visitor) {
        self.doors.refused.count(self.way.door, cause, visitor);
    }

    /// Serves all requests of a connection.
    pub(super) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self,
        stream: S,
        visitor: Visitor,
        stopped: watch::Receiver<bool>,
    ) {
        let activity = Arc::new(Activity::new());
        let service = service_fn(|request: Request<Incoming>| {
            let (visits, visitor) = (self.clone(), visitor.clone());
            let open = OpenRequest::begin(activity.clone(), request.version());
            async move { Ok::<_, Infallible>(visits.answer(request, visitor, open).await) }
        });
        let io = TokioIo::new(ActivityStream {
            stream,
            authorities: (self.way.door == PortName::Unix).then(AuthorityFilter::new),
            activity: activity.clone(),
        });
        let builder = self.builder();
        let mut connection = pin!(builder.serve_connection(io, service));
        let timeout = self.doors.settings.request_timeout;
        let mut clock = tokio::time::interval(Activity::interval(timeout));
        let mut is_ending = false;
        let mut stopped = pin!(until_true(stopped));
        loop {
            tokio::select! {
                served = connection.as_mut() => {
                    let failed = served.err();
                    if let Some(cause) = failed.and_then(|error| cause_of(&*error)) {
                        self.refuse(cause, &visitor);
                    }
                    return;
                }
                () = &mut stopped, if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = clock.tick() => match activity.due(timeout) {
                    Due::Nothing => {}
                    Due::SlowHead => return self.refuse(RejectionCause::SlowHead, &visitor),
                    Due::Idle if is_ending => return,
                    Due::Idle => {
                        is_ending = true;
                        connection.as_mut().graceful_shutdown();
                    }
                },
            }
        }
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        if self.is_grpc() {
            builder = builder.http2_only();
        }
        // The limits of hyper exceed `HEAD_BYTES_MAX`, so that `admit` can reject a large head with
        // a message.
        let head_bytes_max = 2 * HEAD_BYTES_MAX;
        // `Activity` times heads: hyper's timeout would close idle connections.
        let mut http1 = builder.http1();
        let http1 = http1.timer(TokioTimer::new()).header_read_timeout(None);
        http1.max_buf_size(READ_AHEAD_BYTES as usize);
        let read_ahead = if self.is_grpc() {
            GRPC_READ_AHEAD_BYTES
        } else {
            READ_AHEAD_BYTES
        };
        let mut http2 = builder.http2();
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(read_ahead)
            .initial_connection_window_size(read_ahead)
            .max_header_list_size(u32::try_from(8 * head_bytes_max).unwrap_or(u32::MAX))
            .keep_alive_interval(Some(KEEPALIVE));
        builder
    }

    async fn answer(
        mut self,
        request: Request<Incoming>,
        visitor: Visitor,
        mut open: OpenRequest,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // Subscribes before the token check, so that no change in between is missed.
        let replaced = self.doors.replaced();
        let cors = self.doors.cors(self.way, &parts);
        let admitted = self.doors.admit(self.way, &parts).and_then(|role| {
            let lent = self.requests.lend(visitor.peer, 1);
            let causes = [RejectionCause::Requests, RejectionCause::PeerRequests];
            let lent = lent.map_err(|lack| Rejection::lack(lack, causes, "requests"))?;
            Ok((role, lent))
        });
        let role = match admitted {
            Ok((role, share)) => {
                open.hold(share);
                role
            }
            Err(denied) => {
                self.refuse(denied.cause, &visitor);
                let mut response = (self.answer)(&parts, &denied);
                cors.put_headers(response.headers_mut());
                denied.put_headers(response.headers_mut());
                if !self.is_grpc() {
                    put_browser_headers(response.headers_mut());
                }
                return response;
            }
        };
        if cors.is_preflight() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            cors.put_headers(response.headers_mut());
            return response;
        }
        let withdrawal = role.map(|role| {
            let doors = self.doors.clone();
            Withdrawal::of(doors, self.way.door, role, &parts.headers, replaced)
        });
        let share = self.doors.reading.share(visitor.peer);
        let reading = BodyShare::new(self.doors.clone(), self.way.door, share);
        let is_stream = [SHIP, FORWARD].contains(&parts.uri.path());
        // A driver keeps a stream to a worker open while a shard is read.
        let is_stream = is_stream || self.way.door == PortName::Worker;
        let counting = if self.is_grpc() && is_stream {
            BodyAccounting::Messages(Messages::default())
        } else {
            BodyAccounting::Whole
        };
        let timeout = self.doors.settings.request_timeout;
        let body = BoundedBody::new(body, reading.clone(), counting, timeout, withdrawal.clone());
        parts.extensions.insert(reading);
        parts.extensions.insert(visitor.peer);
        if let Some(tcp) = visitor.tcp {
            // tonic reads the client's address from this extension.
            parts.extensions.insert(tcp);
        }
        let request = Request::from_parts(parts, Body::new(body));
        // A router is always ready.
        let Ok(response) = self.router.call(request).await;
        let (mut parts, body) = response.into_parts();
        let is_grpc = self.is_grpc();
        if !is_grpc {
            put_browser_headers(&mut parts.headers);
        }
        cors.put_headers(&mut parts.headers);
        let ending = withdrawal.map(|withdrawal| ResponseEnd::of(withdrawal, is_grpc));
        let answered = ResponseBody {
            body,
            ending,
            _open: open,
        };
        Response::from_parts(parts, Body::new(answered))
    }
}

/// Adds headers that keep browsers from guessing the content type, and from loading anything for a
/// response without a content security policy of its own.
fn put_browser_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        let entry = headers.entry(name);
        entry.or_insert(HeaderValue::from_static(value));
    }
}

/// Returns the cause if the peer violated HTTP or sent too large a head; `None` for other errors,
/// for example if the peer disconnected.
fn cause_of(error: &(dyn Error + 'static)) -> Option<RejectionCause> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_parse_too_large() {
                return Some(RejectionCause::HeaderSize);
            } else if error.is_parse() {
                return Some(RejectionCause::BrokenProtocol);
            }
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_gone = error.is_io() || error.is_remote();
            return (!is_gone).then_some(RejectionCause::BrokenProtocol);
        }
        cause = error.source();
    }
    None
}

/// Resolves when the flag is set or its sender is dropped.
pub(crate) async fn until_true(mut flag: watch::Receiver<bool>) {
    let _ = flag.wait_for(|flag| *flag).await;
}

#[cfg(test)]
mod tests {
    use super::super::ports::NetSettings;
    use super::*;

    /// Checks that a browser's idle connection outlives pings: their frames are no head.
    #[tokio::test]
    async fn pings_of_http2_are_no_slow_head() {
        let settings = NetSettings {
            request_timeout: Duration::from_millis(300),
            ..NetSettings::default()
        };
        let doors = Ports::open(settings).unwrap();
        let visits = Visits {
            doors: doors.clone(),
            way: Way {
                door: PortName::Pages,
                is_loopback: true,
            },
            router: Router::new(),
            answer: |_, _| Response::new(Body::empty()),
            requests: Pool::new(8),
        };
        let visitor = Visitor {
            peer: Peer::of(None),
            tcp: None,
        };
        let (client, server) = tokio::net::UnixStream::pair().unwrap();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(visits.serve(server, visitor, stopped));
        let (client, mut connection) = h2::client::handshake(client).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://localhost/").body(()).unwrap();
        let mut client = client.ready().await.unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        response.await.unwrap();
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            pings.ping(h2::Ping::opaque()).await.unwrap();
        }
        let slow = RejectionCause::SlowHead.name();
        let mut counts = doors.refused().counts();
        assert!(!counts.any(|(_, cause, count)| cause == slow && count > 0));
    }
}
