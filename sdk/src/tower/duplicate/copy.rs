//! Copy of one request: stores its data while the original is read, then sends it to the pipeline.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use tower::Service;

use super::copied_body::CopiedBody;
use super::{DuplicateState, Settings};
use crate::baggage::{Baggage, DUPLICATE, Value};
use crate::propagation::{BAGGAGE, TRACEPARENT, TRACESTATE};

/// Answer to a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DuplicateAnswer {
    /// Number of the copy, which was passed to [`explore`](super::DuplicateLayer::explore).
    pub number: u64,
    /// Time from sending to the end of the answer's body, in ns.
    pub latency_ns: u64,
    /// Status of the answer.
    pub status: http::StatusCode,
    /// Beginning of the answer's body, up to the maximum length of request bodies.
    pub body: Vec<u8>,
}

type SendFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type Send1 = Box<dyn FnOnce(Request<CopiedBody>) -> SendFuture + Send>;

/// Unfinished copy. If it is dropped before it is complete, it is counted instead of sent.
pub(super) struct CopyState {
    shared: Arc<DuplicateState>,
    head: Option<http::request::Parts>,
    bytes: Vec<u8>,
    bytes_max: usize,
    send: Option<Send1>,
}

impl std::fmt::Debug for CopyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copying")
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Slot of a copy under way, which is freed when dropped.
struct InFlight(Arc<DuplicateState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.counters.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Copy that was sent. When dropped, it is counted by its outcome, also if the pipeline panics or
/// the runtime ends.
struct SentCopy {
    shared: Arc<DuplicateState>,
    is_answered: bool,
}

impl Drop for SentCopy {
    fn drop(&mut self) {
        let counters = &self.shared.counters;
        let outcome = match self.is_answered {
            true => &counters.answered,
            false => &counters.failed,
        };
        outcome.fetch_add(1, Relaxed);
    }
}

/// Formats baggage that has the mark [`DUPLICATE`]. Returns `None` if the header has no room for
/// the mark, or if the mark was replaced.
fn marked(baggage: &Baggage) -> Option<HeaderValue> {
    let text = baggage.to_header()?;
    let is_marked = Baggage::parse(&text).get(DUPLICATE) == Some(&Value::Bool(true));
    HeaderValue::try_from(text).ok().filter(|_| is_marked)
}

impl CopyState {
    /// Begins a copy. Returns `None` if too many copies are under way, or if the copy's baggage
    /// cannot carry its mark.
    pub(super) fn begin<B, P, R>(
        shared: &Arc<DuplicateState>,
        settings: Settings,
        pipeline: P,
        request: &Request<B>,
        baggage: Baggage,
    ) -> Option<Self>
    where
        P: Service<Request<CopiedBody>, Response = Response<R>> + Send + 'static,
        P::Future: Send,
        R: Body + Send + 'static,
        R::Data: AsRef<[u8]> + Send,
    {
        let counters = &shared.counters;
        let in_flight = InFlight(Arc::clone(shared));
        if counters.in_flight.fetch_add(1, Relaxed) >= settings.in_flight_max {
            counters.skipped_in_flight.fetch_add(1, Relaxed);
            return None;
        }
        let number = counters.copies.fetch_add(1, Relaxed);
        // Without baggage that marks it as a duplicate, the copy would be treated as an original.
        let Some(header) = marked(&shared.baggage(baggage, number)) else {
            counters.skipped_unmarked.fetch_add(1, Relaxed);
            return None;
        };
        let (mut head, ()) = Request::new(()).into_parts();
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.version = request.version();
        head.headers.clone_from(request.headers());
        // The copy is a separate request: in the original's trace, its spans would look like work
        // that the original may have waited for.
        head.headers.remove(TRACEPARENT);
        head.headers.remove(TRACESTATE);
        head.headers.insert(BAGGAGE, header);
        let (shared_by_answer, bytes_max) = (Arc::clone(shared), settings.body_bytes_max);
        let send = move |request| -> SendFuture {
            let mut sent = SentCopy {
                shared: shared_by_answer,
                is_answered: false,
            };
            Box::pin(async move {
                let begun = Instant::now();
                let answer = answer(pipeline, request, bytes_max).await;
                drop(in_flight);
                let Some((status, body)) = answer else {
                    return;
                };
                sent.is_answered = true;
                let answer = DuplicateAnswer {
                    number,
                    latency_ns: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
                    status,
                    body,
                };
                if let Some(on_answer) = &sent.shared.on_answer
                    && catch_unwind(AssertUnwindSafe(|| on_answer(answer))).is_err()
                {
                    sent.shared.counters.panicked.fetch_add(1, Relaxed);
                }
            })
        };
        Some(Self {
            shared: Arc::clone(shared),
            head: Some(head),
            bytes: Vec::new(),
            bytes_max,
            send: Some(Box::new(send)),
        })
    }

    /// Stores a part of the body. Returns false if the body is too long.
    pub(super) fn keep(&mut self, piece: &[u8]) -> bool {
        if self.bytes.len() + piece.len() > self.bytes_max {
            return false;
        }
        self.bytes.extend_from_slice(piece);
        true
    }

    /// Sends the copy after the original was read to its end. Skips and counts it outside of a
    /// Tokio runtime.
    pub(super) fn complete(mut self, trailers: HeaderMap) {
        let (Some(head), Some(send)) = (self.head.take(), self.send.take()) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.shared
                .counters
                .skipped_no_runtime
                .fetch_add(1, Relaxed);
            return;
        };
        self.shared.counters.sent.fetch_add(1, Relaxed);
        let body = CopiedBody::new(std::mem::take(&mut self.bytes), trailers);
        runtime.spawn(send(Request::from_parts(head, body)));
    }
}

impl Drop for CopyState {
    fn drop(&mut self) {
        if self.send.is_some() {
            self.shared.counters.skipped_body.fetch_add(1, Relaxed);
        }
    }
}

/// Sends a copy and reads the pipeline's answer to its end. Returns `None` if the pipeline or the
/// answer's body fails.
async fn answer<P, R>(
    mut pipeline: P,
    request: Request<CopiedBody>,
    bytes_max: usize,
) -> Option<(http::StatusCode, Vec<u8>)>
where
    P: Service<Request<CopiedBody>, Response = Response<R>>,
    R: Body,
    R::Data: AsRef<[u8]>,
{
    poll_fn(|cx| pipeline.poll_ready(cx)).await.ok()?;
    let response = pipeline.call(request).await.ok()?;
    let status = response.status();
    let mut kept = Vec::new();
    let mut body = pin!(response.into_body());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            let room = bytes_max.saturating_sub(kept.len());
            kept.extend(data.as_ref().iter().take(room));
        }
    }
    Some((status, kept))
}
