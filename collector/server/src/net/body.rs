//! Request bodies: counts their bytes while they arrive, and aborts those that take too long.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status};

use super::admission::Rejection;
use super::ports::Ports;
use super::rejections::{PortName, RejectionCause};
use super::revocation::Withdrawal;
use crate::pool::{Lack, Share};

/// A request's share of the pool of bytes that arriving requests may hold. Each request carries its
/// share in its extensions. The share is released with its last clone.
#[derive(Clone, Debug)]
pub(crate) struct BodyShare {
    share: Arc<Mutex<Share>>,
    doors: Arc<Ports>,
    door: PortName,
}

impl BodyShare {
    pub(super) fn new(doors: Arc<Ports>, door: PortName, share: Share) -> Self {
        let share = Arc::new(Mutex::new(share));
        Self { share, doors, door }
    }

    /// Reserves at least this many bytes, such as the size of a decompressed body, which may exceed
    /// the bytes that arrived.
    pub(crate) fn at_least(&self, bytes: usize) -> Result<(), Rejection> {
        let held = self.share().held();
        if bytes > held {
            self.hold(bytes)
        } else {
            Ok(())
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Rejection> {
        let resized = self.share().resize(bytes);
        resized.map_err(|lack: Lack| {
            let causes = [RejectionCause::Bytes, RejectionCause::PeerBytes];
            let denied = Rejection::lack(lack, causes, "bytes of requests");
            self.doors.refused.count(self.door, denied.cause, &"a body");
            denied
        })
    }

    fn share(&self) -> std::sync::MutexGuard<'_, Share> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mode in which a body is counted.
#[derive(Debug)]
pub(super) enum BodyAccounting {
    /// Counts the whole body until its request is answered.
    Whole,
    /// Counts only those messages of a gRPC stream that the handler has not taken yet.
    Messages(Messages),
}

/// Tracker of message boundaries in a gRPC stream. A message begins with a flag and its length.
#[derive(Debug, Default)]
pub(super) struct Messages {
    head: [u8; 5],
    head_len: usize,
    /// Bytes of the current message that have not arrived; 0 until its head has.
    rest: usize,
    /// Bytes of the current message that have arrived.
    begun: usize,
}

impl Messages {
    fn take(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.rest > 0 {
                let here = self.rest.min(data.len());
                (self.rest, self.begun) = (self.rest - here, self.begun + here);
                data = &data[here..];
            } else {
                let here = (self.head.len() - self.head_len).min(data.len());
                self.head[self.head_len..][..here].copy_from_slice(&data[..here]);
                (self.head_len, self.begun) = (self.head_len + here, self.begun + here);
                data = &data[here..];
                if self.head_len < self.head.len() {
                    break;
                }
                let [_, length @ ..] = self.head;
                self.head_len = 0;
                self.rest = u32::from_be_bytes(length) as usize;
            }
            if self.rest == 0 && self.head_len == 0 {
                self.begun = 0;
            }
        }
    }
}

/// A body with counted bytes and a deadline.
#[derive(Debug)]
pub(super) struct BoundedBody {
    body: Incoming,
    reading: BodyShare,
    counting: BodyAccounting,
    timeout: Duration,
    /// Deadline for the body or the current message; `None` if neither is in progress.
    deadline: Option<Pin<Box<Sleep>>>,
    arrived: usize,
    /// Future that ends the body with an error when it resolves.
    withdrawal: Option<Withdrawal>,
}

impl BoundedBody {
    pub(super) fn new(
        body: Incoming,
        reading: BodyShare,
        counting: BodyAccounting,
        timeout: Duration,
        withdrawal: Option<Withdrawal>,
    ) -> Self {
        let is_whole = matches!(counting, BodyAccounting::Whole) && !body.is_end_stream();
        let deadline = is_whole.then(|| Box::pin(tokio::time::sleep(timeout)));
        Self {
            body,
            reading,
            counting,
            timeout,
            deadline,
            arrived: 0,
            withdrawal,
        }
    }

    fn arrived(&mut self, data: &[u8]) -> Result<(), Rejection> {
        match &mut self.counting {
            BodyAccounting::Whole => {
                self.arrived += data.len();
                self.reading.at_least(self.arrived)
            }
            BodyAccounting::Messages(messages) => {
                let had_begun = messages.begun > 0;
                let before = messages.begun;
                messages.take(data);
                let is_same = had_begun && messages.begun == before + data.len();
                if messages.begun == 0 {
                    self.deadline = None;
                } else if !is_same {
                    let until = Instant::now() + self.timeout;
                    self.deadline = Some(Box::pin(tokio::time::sleep_until(until)));
                }
                // Complete messages are still in memory until the handler takes them.
                self.reading.at_least(before + data.len())
            }
        }
    }
}

impl http_body::Body for BoundedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(withdrawal) = &mut self.withdrawal
            && let Poll::Ready(denied) = Pin::new(withdrawal).poll(context)
        {
            return Poll::Ready(Some(Err(denied.status())));
        }
        // A handler that polls again has taken the complete messages.
        if let BodyAccounting::Messages(Messages { begun, .. }) = self.counting {
            // This does not grow the reservation beyond the bytes already here.
            let _ = self.reading.hold(begun);
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let Some(deadline) = &mut self.deadline else {
                return Poll::Pending;
            };
            if deadline.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let message = format!(
                "the body of the request took longer than {:?}",
                self.timeout
            );
            let denied = Rejection::new(RejectionCause::SlowBody, message);
            let BodyShare { doors, door, .. } = &self.reading;
            doors.refused.count(*door, denied.cause, &"a body");
            return Poll::Ready(Some(Err(denied.status())));
        };
        match frame {
            Some(Ok(frame)) => {
                let counted = frame.data_ref().map_or(Ok(()), |data| {
                    let data = data.clone();
                    self.arrived(&data)
                });
                let frame = counted.map(|()| frame);
                Poll::Ready(Some(frame.map_err(|denied| denied.status())))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(Status::from_error(Box::new(error))))),
            None => {
                self.deadline = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Rejection {
    /// Returns the rejection that ended a request's body, which the port has counted. Returns
    /// `None` if the body ended for another reason, for example because the client disconnected.
    pub(crate) fn of_body(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(status) = error.downcast_ref::<Status>() {
                // An error of the connection, which has a source, may have the code of a rejection.
                if status.source().is_some() {
                    return None;
                }
                let cause = match status.code() {
                    Code::Unavailable => RejectionCause::Bytes,
                    Code::DeadlineExceeded => RejectionCause::SlowBody,
                    Code::Unauthenticated => RejectionCause::TokenWithdrawn,
                    _ => return None,
                };
                return Some(Self::new(cause, status.message()));
            }
            cause = error.source();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The incomplete message always begins after the last complete one, however the bytes are
    /// divided.
    #[test]
    fn messages_end_where_their_heads_say() {
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for length in [0u32, 1, 4, 5, 6, 300, 0, 0, 70_000] {
            stream.push(0);
            stream.extend(length.to_be_bytes());
            stream.extend(vec![7; length as usize]);
            ends.push(stream.len());
        }
        for cut in [1, 2, 3, 5, 7, 64, 1_000, 100_000] {
            let mut messages = Messages::default();
            let mut at = 0;
            for piece in stream.chunks(cut) {
                messages.take(piece);
                at += piece.len();
                let last = ends.iter().rfind(|&&end| end <= at).unwrap();
                assert_eq!(messages.begun, at - last, "pieces of {cut}, at {at}");
            }
        }
    }

    #[test]
    fn a_reset_by_the_client_is_no_rejection() {
        let error = h2::Error::from(h2::Reason::REFUSED_STREAM);
        let reset = Status::from_error(Box::new(error));
        let full = Rejection::new(RejectionCause::Bytes, "full").status();
        assert_eq!(reset.code(), full.code());
        assert!(Rejection::of_body(&reset).is_none());
        assert!(Rejection::of_body(&full).is_some());
    }
}
