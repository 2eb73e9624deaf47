//! Delivers closed log segments to the gateway.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use stroboscope_proto::v1::{ForwardKind, ForwardRequest, ShipOutcome, ShipReply};
use stroboscope_store::flush::Upstream;
use stroboscope_store::limits::{FORWARD_RATE_MIN, IN_FLIGHT_PER_STREAM_MAX};
use stroboscope_store::wal::{Payload, PayloadKind};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::gateway::CONNECT_MAX;
use super::uplink::{Uplink, text};
use crate::line_limit::{LineLimit, Turn};

/// Maximum time without a reply while requests are in flight, in addition to the transfer time of
/// all unsettled payloads. Durable storage takes milliseconds, and seconds on an overloaded disk.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Maximum of the first pause after an open stream failed, for example because the gateway's disk
/// is full. The pause is at least half of it. The maximum doubles with each further such failure,
/// up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(15);

static REFUSED: LineLimit = LineLimit::new();

/// Counters of an agent's payloads (batches and OTLP requests), by the outcome of forwarding.
#[derive(Debug, Default)]
pub struct ForwardCounters {
    /// Payloads that the gateway stored.
    pub stored: AtomicU64,
    /// Payloads that a gateway had already stored.
    pub duplicate: AtomicU64,
    /// Payloads that the gateway rejected permanently, or that this version cannot forward. They
    /// are lost.
    pub refused: AtomicU64,
}

/// Sends closed log segments to the gateway, on the flushing thread.
#[derive(Debug)]
pub struct Delivery {
    uplink: Uplink,
    runtime: Handle,
    counters: Arc<ForwardCounters>,
    stream: Option<ForwardStream>,
    /// Maximum pause after the next failure.
    pause: Duration,
    /// End of the pause after a failure, with its reason.
    not_before: Option<(Instant, String)>,
    /// Number of the segment delivered last, perhaps in part, with one flag per payload: true once
    /// the payload is settled, that is stored or lost.
    under_way: (u64, Vec<bool>),
}

impl Delivery {
    /// Creates a delivery over `uplink`. [`Upstream::deliver`] runs its futures on `runtime`.
    #[must_use]
    pub fn new(uplink: Uplink, runtime: Handle) -> Self {
        Self {
            uplink,
            runtime,
            counters: Arc::default(),
            stream: None,
            pause: PAUSE_FIRST,
            not_before: None,
            under_way: (u64::MAX, Vec::new()),
        }
    }

    /// Returns the counters, which count the outcome of each payload.
    #[must_use]
    pub fn counters(&self) -> Arc<ForwardCounters> {
        self.counters.clone()
    }

    /// Delivers a segment, as [`Upstream::deliver`] describes.
    ///
    /// # Errors
    /// Returns the reason, as text for users, if a payload was neither acknowledged nor permanently
    /// rejected.
    pub async fn deliver_until(
        &mut self,
        segment: u64,
        payloads: &[Payload],
        until: std::time::Instant,
    ) -> Result<(), String> {
        if let Some((at, problem)) = &self.not_before
            && Instant::now() < *at
        {
            return Err(problem.clone());
        }
        self.not_before = None;
        let (of, mut settled) = std::mem::take(&mut self.under_way);
        if of != segment || settled.len() != payloads.len() {
            settled = vec![false; payloads.len()];
        }
        let count = |settled: &[bool]| settled.iter().filter(|settled| **settled).count();
        let before = count(&settled);
        // If the time runs out, the stream may have requests without a reply, so it is dropped, not
        // reused.
        let delivering = self.deliver_rest(payloads, &mut settled);
        let delivered = timeout_at(until.into(), delivering).await;
        let is_over = delivered.is_err();
        // A gateway that settles nothing may be stuck although its connection works.
        if is_over && count(&settled) == before {
            self.uplink.give_up_current();
        }
        self.under_way = (segment, settled);
        delivered.unwrap_or_else(|_| Err("the gateway is too slow".to_owned()))
    }

    /// Delivers the payloads that are not settled yet. If the stream fails, drops it and gives up
    /// its connection.
    async fn deliver_rest(
        &mut self,
        payloads: &[Payload],
        settled: &mut [bool],
    ) -> Result<(), String> {
        // A stream of a lost connection would fail only at the deadline.
        self.stream
            .take_if(|stream| !self.uplink.is_current(stream.connection));
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => ForwardStream::open(&mut self.uplink).await?,
        };
        match stream.deliver(payloads, settled, &self.counters).await {
            Ok(()) => {
                self.stream = Some(stream);
                self.pause = PAUSE_FIRST;
                Ok(())
            }
            Err(problem) => {
                self.uplink.give_up(stream.connection);
                // Up to half of the pause is random, so a fleet does not come back in one instant.
                let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
                let pause = self.pause.mul_f64(0.5 + random / 2.0);
                self.not_before = Some((Instant::now() + pause, problem.clone()));
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                Err(problem)
            }
        }
    }
}

impl Upstream for Delivery {
    fn deliver(
        &mut self,
        segment: u64,
        payloads: &[Payload],
        until: std::time::Instant,
    ) -> Result<(), String> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.deliver_until(segment, payloads, until))
    }
}

/// An open stream to a gateway.
#[derive(Debug)]
struct ForwardStream {
    requests: mpsc::Sender<ForwardRequest>,
    replies: Streaming<ShipReply>,
    /// Number of the connection that the stream belongs to.
    connection: u64,
    next_sequence: u64,
}

impl ForwardStream {
    async fn open(uplink: &mut Uplink) -> Result<Self, String> {
        let (connection, client) = uplink.client().await?;
        let mut client = client.data();
        let (requests, receiver) = mpsc::channel(1);
        let opened = client.forward(ReceiverStream::new(receiver));
        let opened = timeout(CONNECT_MAX, opened).await;
        let opened = opened.map_err(|_| "the gateway does not open a stream".to_owned());
        match opened.and_then(|opened| opened.map_err(|status| text(&status))) {
            Ok(opened) => Ok(Self {
                requests,
                replies: opened.into_inner(),
                connection,
                next_sequence: 0,
            }),
            Err(problem) => {
                uplink.give_up(connection);
                Err(problem)
            }
        }
    }

    /// Sends the payloads that are not settled yet, waits for all replies, and sets the flag of
    /// each payload that is then settled.
    async fn deliver(
        &mut self,
        payloads: &[Payload],
        settled: &mut [bool],
        counters: &ForwardCounters,
    ) -> Result<(), String> {
        let base = self.next_sequence;
        self.next_sequence += payloads.len() as u64;
        let (mut next, mut in_flight) = (0, 0);
        let unsettled = payloads
            .iter()
            .zip(&*settled)
            .filter(|(_, settled)| !**settled);
        let bytes: usize = unsettled.map(|(payload, _)| payload.bytes.len()).sum();
        // Allows for the time that the network takes to transfer the requests.
        let answer_max = ANSWER_MAX + Duration::from_secs(bytes as u64 / FORWARD_RATE_MIN);
        let mut deadline = Instant::now() + answer_max;
        loop {
            while settled.get(next).copied().unwrap_or(false) {
                next += 1;
            }
            let unsent = payloads.get(next);
            if unsent.is_none() && in_flight == 0 {
                return Ok(());
            }
            tokio::select! {
                place = self.requests.reserve(),
                    if unsent.is_some() && in_flight < IN_FLIGHT_PER_STREAM_MAX =>
                {
                    // If the gateway closed the stream, the next reply may have the reason.
                    let (Ok(place), Some(payload)) = (place, unsent) else {
                        let ended = timeout_at(deadline, self.replies.message()).await;
                        return Err(match ended {
                            Ok(Err(status)) => text(&status),
                            _ => "the gateway closed the stream".to_owned(),
                        });
                    };
                    match kind(payload.kind) {
                        Some(kind) => {
                            place.send(ForwardRequest {
                                sequence: base + next as u64,
                                kind: kind.into(),
                                payload: payload.bytes.clone(),
                            });
                            in_flight += 1;
                        }
                        None => {
                            refused(counters, "the log has it in a form of a later version");
                            settled[next] = true;
                        }
                    }
                    next += 1;
                }
                reply = timeout_at(deadline, self.replies.message()), if in_flight > 0 => {
                    let reply = reply.map_err(|_| {
                        format!("the gateway has not answered for {} s", answer_max.as_secs())
                    })?;
                    let reply = reply
                        .map_err(|status| text(&status))?
                        .ok_or("the gateway closed the stream")?;
                    deadline = Instant::now() + answer_max;
                    let index = reply.sequence.checked_sub(base);
                    let index = index.and_then(|index| usize::try_from(index).ok());
                    let place = index.and_then(|index| settled.get_mut(index));
                    let Some(place) = place.filter(|settled| !**settled) else {
                        return Err("the gateway answered a request that it was not sent".to_owned());
                    };
                    match reply.outcome() {
                        ShipOutcome::Stored => drop(counters.stored.fetch_add(1, Relaxed)),
                        ShipOutcome::Duplicate => drop(counters.duplicate.fetch_add(1, Relaxed)),
                        ShipOutcome::Refused => refused(counters, &reply.detail),
                        ShipOutcome::Unspecified => {
                            return Err("the gateway's reply has no outcome".to_owned());
                        }
                    }
                    *place = true;
                    in_flight -= 1;
                }
            }
        }
    }
}

/// Counts a lost payload, and logs it at a limited rate. The gateway rejected the payload, or this
/// version cannot forward it.
fn refused(counters: &ForwardCounters, reason: &str) {
    counters.refused.fetch_add(1, Relaxed);
    if let Some(Turn { left_out }) = REFUSED.next() {
        tracing::error!(
            left_out,
            "the gateway rejected forwarded data, which is lost: {reason}"
        );
    }
}

/// Returns the protocol's value for a kind; `None` for a kind that this version does not know.
fn kind(kind: PayloadKind) -> Option<ForwardKind> {
    Some(match kind {
        PayloadKind::Batch => ForwardKind::Batch,
        PayloadKind::OtlpProtobuf => ForwardKind::OtlpTraces,
        PayloadKind::OtlpJson => ForwardKind::OtlpTracesJson,
        PayloadKind::OtlpLogsProtobuf => ForwardKind::OtlpLogs,
        PayloadKind::OtlpLogsJson => ForwardKind::OtlpLogsJson,
        PayloadKind::Unknown(_) => return None,
    })
}
