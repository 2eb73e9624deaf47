//! Markers for connections that several requests share.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::{Layer, Service};

use crate::context;
use crate::marker;
use crate::span_context::SpanContext;

/// Requests under way on a connection that HTTP/2 shares between requests.
///
/// Such a connection reads and writes in its own task, which works for no request, so a kernel
/// recorder cannot attribute its system calls. The [layer](Layer) tracks the requests under way. A
/// stream from [`wrap`](Self::wrap) marks its reads and writes with the request they serve if only
/// one tracked request is possible. If several are possible, it writes no marker, because a guess
/// is worse. The layer tracks a request until the head of its response arrives, so later reads of
/// the response's body may be marked with another request. Requests that begin while no markers are
/// written, or outside of any context, are not tracked.
///
/// ```no_run
/// # async fn connect(endpoint: tonic::transport::Endpoint) -> Result<(), tonic::transport::Error> {
/// use stroboscope::{marked::ConnectionUsers, tower::ClientLayer};
/// use tower::{Layer as _, service_fn};
///
/// let users = ConnectionUsers::default();
/// let wrapping = users.clone();
/// let channel = endpoint.connect_with_connector(service_fn(move |uri: http::Uri| {
///     let users = wrapping.clone();
///     async move {
///         let stream = tokio::net::TcpStream::connect(uri.authority().map_or("", |to| to.as_str())).await?;
///         Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(users.wrap(stream)))
///     }
/// })).await?;
/// // Inside of the client layer, so that the client's span is the user.
/// let channel = ClientLayer::new().layer(users.layer(channel));
/// # drop(channel); Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConnectionUsers(Arc<Mutex<Users>>);

#[derive(Debug, Default)]
struct Users {
    /// Requests under way, by number.
    now: Vec<(u64, SpanContext)>,
    /// Number of further requests under way, for which `now` had no room.
    untracked: usize,
    /// Contexts of requests that began since the last write. Unless empty, the next write is
    /// attributed to their common context, or to none if they differ or are too many.
    began: Vec<SpanContext>,
    next: u64,
}

/// Maximum number of requests in each list of [`Users`]. While `now` lacks requests, or if `began`
/// is full, no request counts as the only one.
const USERS_MAX: usize = 1_024;

/// Returns the common context if there are contexts and all are equal, otherwise `None`.
fn only(mut all: impl Iterator<Item = SpanContext>) -> Option<SpanContext> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

impl Users {
    fn reader(&self) -> Option<SpanContext> {
        only(self.now.iter().map(|user| user.1)).filter(|_| self.untracked == 0)
    }

    fn writer(&mut self) -> Option<SpanContext> {
        if self.began.is_empty() {
            return self.reader();
        }
        let all = std::mem::take(&mut self.began);
        only(all.iter().copied()).filter(|_| all.len() < USERS_MAX)
    }
}

impl ConnectionUsers {
    /// Wraps a stream so that markers attribute each read and write to its request, if only one
    /// request is possible.
    pub fn wrap<T>(&self, stream: T) -> UsedStream<T> {
        UsedStream {
            stream,
            users: self.clone(),
        }
    }

    // A poisoned lock is safe to use: no change leaves a list half-done.
    fn lock(&self) -> MutexGuard<'_, Users> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Option<User> {
        let context = context::current();
        (marker::is_on() && context.is_valid()).then(|| self.add(context))
    }

    fn add(&self, context: SpanContext) -> User {
        let mut users = self.lock();
        let number = users.next;
        users.next = users.next.wrapping_add(1);
        if users.now.len() < USERS_MAX {
            users.now.push((number, context));
        } else {
            users.untracked += 1;
        }
        if users.began.len() < USERS_MAX {
            users.began.push(context);
        }
        User {
            users: self.clone(),
            number,
        }
    }
}

/// Registration of a request under way, until dropped.
#[derive(Debug)]
struct User {
    users: ConnectionUsers,
    number: u64,
}

impl Drop for User {
    fn drop(&mut self) {
        let mut users = self.users.lock();
        let tracked = users.now.len();
        users.now.retain(|user| user.0 != self.number);
        if users.now.len() == tracked {
            users.untracked -= 1;
        }
    }
}

impl<S> Layer<S> for ConnectionUsers {
    type Service = UsingService<S>;

    fn layer(&self, inner: S) -> UsingService<S> {
        UsingService {
            inner,
            users: self.clone(),
        }
    }
}

/// Service returned by the layer of [`ConnectionUsers`].
#[derive(Clone, Debug)]
pub struct UsingService<S> {
    inner: S,
    users: ConnectionUsers,
}

impl<S: Service<Request>, Request> Service<Request> for UsingService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = ConnectionUse<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ConnectionUse {
            future: self.inner.call(request),
            users: Some(self.users.clone()),
            user: None,
        }
    }
}

pin_project_lite::pin_project! {
    /// Response future of a [`UsingService`].
    #[derive(Debug)]
    pub struct ConnectionUse<F> {
        #[pin]
        future: F,
        // Present until the first poll, which happens in the context of the request.
        users: Option<ConnectionUsers>,
        user: Option<User>,
    }
}

impl<F: Future> Future for ConnectionUse<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(users) = this.users.take() {
            *this.user = users.begin();
        }
        let polled = this.future.poll(cx);
        if polled.is_ready() {
            *this.user = None;
        }
        polled
    }
}

/// Stream whose reads and writes are marked with the request that uses it, if only one is possible.
#[derive(Debug)]
pub struct UsedStream<T> {
    stream: T,
    users: ConnectionUsers,
}

/// Runs an action between markers that attribute its system calls to a request, if there is one.
fn of<R>(user: Option<SpanContext>, act: impl FnOnce() -> R) -> R {
    let Some(user) = user else { return act() };
    let outer = context::current();
    marker::follow(outer, user);
    let result = act();
    marker::follow(user, outer);
    result
}

impl<T> UsedStream<T> {
    fn writer(&self) -> Option<SpanContext> {
        if marker::is_on() {
            self.users.lock().writer()
        } else {
            None
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for UsedStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let user = if marker::is_on() {
            this.users.lock().reader()
        } else {
            None
        };
        of(user, || Pin::new(&mut this.stream).poll_read(cx, buffer))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for UsedStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        of(this.writer(), || {
            Pin::new(&mut this.stream).poll_write(cx, bytes)
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        of(this.writer(), || {
            Pin::new(&mut this.stream).poll_write_vectored(cx, bytes)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_user_only_where_one_comes_into_question() {
        let [a, b] = [1, 2].map(|id| SpanContext::new(id, 7, true));
        let mut users = Users::default();
        assert_eq!((users.reader(), users.writer()), (None, None));
        (users.now, users.began) = (vec![(0, a)], vec![a]);
        assert_eq!((users.reader(), users.writer()), (Some(a), Some(a)));
        // No new request began and this one is alone, so the next write is still its own.
        assert_eq!(users.writer(), Some(a));
        (users.now, users.began) = (vec![(0, a), (1, b)], vec![b]);
        // Only one request writes, but the response may be for either.
        assert_eq!(
            (users.writer(), users.reader(), users.writer()),
            (Some(b), None, None)
        );
        users.began = vec![a, b];
        assert_eq!(users.writer(), None);
    }

    #[test]
    fn names_no_reader_while_the_list_lacks_a_user() {
        let [a, b] = [1, 2].map(|id| SpanContext::new(id, 7, true));
        let users = ConnectionUsers::default();
        let mut tracked: Vec<User> = (0..USERS_MAX).map(|_| users.add(a)).collect();
        let untracked = users.add(b);
        tracked.truncate(1);
        assert_eq!(users.lock().reader(), None);
        drop(untracked);
        assert_eq!(users.lock().reader(), Some(a));
    }

    #[tokio::test]
    async fn passes_bytes_on_and_forgets_who_is_done() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let users = ConnectionUsers::default();
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = users.wrap(near);
        near.write_all(b"ask").await.unwrap();
        let mut asked = [0; 3];
        far.read_exact(&mut asked).await.unwrap();
        far.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        near.read_exact(&mut answer).await.unwrap();
        assert_eq!((&asked, &answer), (b"ask", b"answer"));
        let user = User {
            users: users.clone(),
            number: 3,
        };
        users.lock().now = vec![(3, SpanContext::NONE), (4, SpanContext::NONE)];
        drop(user);
        assert_eq!(users.lock().now, [(4, SpanContext::NONE)]);
    }
}
