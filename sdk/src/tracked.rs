//! Provenance of bytes: for each byte that a service writes, the source bytes on which it depends.
//!
//! A request's handler runs in [`run`] or [`scope`]. It gets bytes from [`source`] or [`receive`],
//! computes with [`TrackedBuf`] and [`Tracked`], and gives the result to [`send`]. The metadata
//! that [`send`] returns travels with the bytes to the next service, whose [`receive`] continues
//! them. The request's merge log ships to the collector, where `stroboscope provenance` answers
//! questions across services.
//!
//! ```
//! use stroboscope::baggage::Provenance;
//! use stroboscope::tracked::{self, DataLinkage, TrackedBuf};
//!
//! fn handle(body: &[u8], headers: &http::HeaderMap) -> (Vec<u8>, Provenance) {
//!     tracked::scope(|| {
//!         let order = tracked::receive(&Provenance::of(headers), "order", body);
//!         let mut answer = TrackedBuf::from(&b"total="[..]);
//!         if let Ok(count) = order.parse::<u64, DataLinkage>() {
//!             answer.push_text(&count.map(|count| count * 3));
//!         }
//!         let provenance = tracked::send(&answer, "invoice");
//!         (answer.into_bytes(), provenance)
//!     })
//! }
//! # assert_eq!(handle(b"7", &http::HeaderMap::new()).0, b"total=21");
//! ```
//!
//! Values are tracked only in recorded requests, and only in the share of these that
//! [`Builder::provenance`](crate::Builder::provenance) sets. Otherwise they have no labels, and
//! cost about as much as plain ones. A log has at most 32,768 merges, 4,096 sources and 4,096 runs
//! of outputs, and 64 KiB of descriptions of sources and outputs. Beyond that, answers are less
//! precise or incomplete, which the log counts.

mod pending;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use pending::PendingLog;
pub(crate) use pending::{PendingLock, lock, take};
use pin_project_lite::pin_project;
pub use stroboscope_provenance::{
    CopyLinkage, DataLinkage, IndexLinkage, Linkage, ParseError, Tracked, TrackedBuf,
};
use stroboscope_provenance::{Item, Limits, Recording, with_current};
#[cfg(feature = "provenance_json")]
pub use stroboscope_provenance::{from_json, to_json};

use crate::baggage::{Provenance, Value};
use crate::{clock, gate, thread};

/// Key of the pair with the id of the sender's output.
const OUTPUT: &str = "output";
/// Maximum length in bytes of an item's name. Longer ones are cut.
const NAME_BYTES_MAX: usize = 1_024;
/// Number of bits of a trace id that are random by W3C Trace Context level 2, counted from its end.
const RANDOM_BITS: u32 = 56;

const LIMITS: Limits = Limits {
    nodes: 1 << 15,
    sources: 1 << 12,
    outputs: 1 << 12,
    item_bytes: 1 << 16,
    ..Limits::with_nodes(1 << 15)
};

/// Threshold: a request is tracked if its [`mixed`] bits are less than this.
static TRACKED: AtomicU64 = AtomicU64::new(1 << RANDOM_BITS);

/// Sets the share of recorded requests to track, 0 to 1.
pub(crate) fn set_ratio(ratio: f64) {
    TRACKED.store((ratio * (1_u64 << RANDOM_BITS) as f64) as u64, Relaxed);
}

/// Runs a future whose tracked values belong to the current request. Ships the log, if it has
/// outputs, when the future ends or is dropped. Inside another [`run`] or [`scope`] that has a log,
/// values belong to that log.
pub async fn run<F: Future>(future: F) -> F::Output {
    TrackedFuture {
        log: RequestLog::begin(),
        future,
    }
    .await
}

/// Runs code whose tracked values belong to the current request, like [`run`].
pub fn scope<T>(work: impl FnOnce() -> T) -> T {
    match RequestLog::begin() {
        Some(mut log) => log.recording.run(work),
        None => work(),
    }
}

/// Returns bytes that no tracked service sent, such as those of a file or a database. `name`
/// identifies them for people, for example by their key.
pub fn source(name: &str, bytes: impl Into<Vec<u8>>) -> TrackedBuf {
    receive(&Provenance::default(), name, bytes)
}

/// Returns bytes that a service received. If the sender tracked them, `provenance` identifies its
/// output. Otherwise, they are a source of this name.
pub fn receive(provenance: &Provenance, name: &str, bytes: impl Into<Vec<u8>>) -> TrackedBuf {
    let bytes = bytes.into();
    if !is_tracking() {
        return bytes.into();
    }
    let id = sender_id(provenance).unwrap_or_else(thread::span_id);
    describe(id, name, &[]);
    TrackedBuf::source(id, 0, bytes)
}

/// Records the sources of bytes that the service writes or sends, and returns the metadata that
/// identifies them for the receiver's [`receive`]. It is empty if the request is not tracked.
pub fn send(bytes: &TrackedBuf, name: &str) -> Provenance {
    send_with_content(bytes, name, 0)
}

/// Records bytes like [`send`], and also ships the first `content_bytes`, so that answers can show
/// them.
pub fn send_with_content(bytes: &TrackedBuf, name: &str, content_bytes: usize) -> Provenance {
    if !is_tracking() {
        return Provenance::default();
    }
    let id = thread::span_id();
    let content = &bytes.as_bytes()[..content_bytes.min(bytes.len())];
    describe(id, name, content);
    bytes.record_output(id, 0);
    Provenance::default().with(OUTPUT, id)
}

/// Reports whether values are tracked here.
#[must_use]
pub fn is_tracking() -> bool {
    with_current(|_| ()).is_some()
}

fn sender_id(provenance: &Provenance) -> Option<u64> {
    match provenance.get(OUTPUT) {
        Some(Value::Uint(id)) => Some(*id),
        _ => None,
    }
}

fn describe(id: u64, name: &str, content: &[u8]) {
    let ends = (0..=name.len().min(NAME_BYTES_MAX)).rev();
    let end = ends.into_iter().find(|end| name.is_char_boundary(*end));
    let name = &name[..end.unwrap_or(0)];
    let span = thread::context().span_id();
    with_current(|log| {
        log.describe(Item {
            id,
            span,
            name: name.into(),
            content: content.into(),
        });
    });
}

pin_project! {
    struct TrackedFuture<F> {
        log: Option<RequestLog>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for TrackedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(log) = this.log else {
            return this.future.poll(context);
        };
        let polled = log.recording.run(|| this.future.poll(context));
        if polled.is_ready() {
            *this.log = None;
        }
        polled
    }
}

/// Log of a request, which ships when it is dropped.
struct RequestLog {
    recording: Recording,
    trace_id: u128,
    span_id: u64,
    is_sampled: bool,
    ticks: u64,
}

/// Returns [`RANDOM_BITS`] bits that all processes derive alike from a request's id. They hardly
/// correlate with the decision about sampling by ratio, so sampled requests are tracked in about
/// the same share as others (multiplicative hashing; Knuth, The Art of Computer Programming, §6.4).
fn mixed(trace_id: u128) -> u64 {
    (trace_id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RANDOM_BITS)
}

impl RequestLog {
    /// Begins a log if the current request is recorded and to be tracked, unless a log is current.
    fn begin() -> Option<Self> {
        if gate::is_idle() {
            return None;
        }
        let context = thread::context();
        let is_recorded = gate::Now::read().is_open() || context.is_sampled() && gate::is_read();
        if !context.is_valid() || !is_recorded || is_tracking() {
            return None;
        }
        (mixed(context.trace_id()) < TRACKED.load(Relaxed)).then(|| Self {
            recording: Recording::new(LIMITS),
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            is_sampled: context.is_sampled(),
            ticks: clock::ticks(),
        })
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        pending::push(PendingLog {
            trace_id: self.trace_id,
            span_id: self.span_id,
            is_sampled: self.is_sampled,
            ticks: self.ticks,
            log: self.recording.take_log(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_requests_that_a_ratio_keeps_is_tracked() {
        let mut state = 7u64;
        let mut id = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            u128::from(state >> 8 ^ state << 40)
        };
        let kept_from = (1u128 << RANDOM_BITS) / 10 * 9;
        let is_kept = |id: &u128| id % (1 << RANDOM_BITS) >= kept_from;
        let kept: Vec<u128> = (0..100_000).map(|_| id()).filter(is_kept).collect();
        let half = 1 << (RANDOM_BITS - 1);
        let tracked = kept.iter().filter(|id| mixed(**id) < half).count();
        let share = tracked as f64 / kept.len() as f64;
        assert!((0.47..0.53).contains(&share), "{share} of {}", kept.len());
    }
}
