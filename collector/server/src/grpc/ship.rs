//! One stream of a process or an agent: many messages in flight, each answered once its outcome is
//! decided. A message that fails ends the stream instead.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message as _;
use stroboscope::{FutureExt as _, span};
use stroboscope_proto::v1::{
    Batch, ForwardKind, ForwardRequest, ShipOutcome, ShipReply, ShipRequest,
};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Code, Status, Streaming};

use super::control::now_ns;
use super::sender::{Sender, cause_if_gone};
use crate::ingest::{CommitOutcome, Intake, IntakeError};
use crate::line_limit::{LineLimit, Turn};
use crate::net::{BodyShare, until_true};
use crate::otlp::{Door, ForwardRefusal};
use crate::pool::Peer;
use crate::redact::Redaction;
use crate::self_tracing::{is_traced, span_if};
use stroboscope_store::decode::{CheckedBatch, Refusal};
use stroboscope_store::limits::{IN_FLIGHT_PER_STREAM_MAX, Limits};
use stroboscope_store::wal::{PayloadKind, WalError};

/// Maximum size of a forwarded message without its payload, in bytes.
pub(super) const FORWARD_BYTES: usize = 64;

/// Rate limits for log messages that any client can trigger at will.
static ENDED: LineLimit = LineLimit::new();
static GONE: LineLimit = LineLimit::new();
static BROKEN: LineLimit = LineLimit::new();
static REFUSED: LineLimit = LineLimit::new();

type Replies = mpsc::Sender<Result<ShipReply, Status>>;

pub(super) struct ShipStream {
    pub(super) intake: Intake,
    pub(super) limits: Limits,
    pub(super) redaction: Option<Arc<Redaction>>,
    pub(super) replies: Replies,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) sender: Mutex<Sender>,
    /// Share of the bytes that requests may hold while they arrive.
    pub(super) reading: Option<BodyShare>,
    pub(super) peer: Peer,
    /// Handler of forwarded OTLP requests.
    pub(super) otlp: Door,
}

/// Message of a stream, from a process or from an agent.
pub(super) trait Arrival: prost::Message + 'static {
    /// Returns the sequence number, which the reply repeats, and the content.
    fn open(self) -> (u64, ItemContent);
}

/// Content of a message.
pub(super) enum ItemContent {
    Batch(Box<Result<Batch, Refusal>>),
    Otlp(PayloadKind, Vec<u8>),
    /// Forwarded data of an unspecified kind, or of one that this version does not know.
    Unknown(i32),
}

impl Arrival for ShipRequest {
    fn open(self) -> (u64, ItemContent) {
        let sequence = self.batch.as_ref().map_or(0, |batch| batch.sequence);
        (
            sequence,
            ItemContent::Batch(Box::new(self.batch.ok_or(Refusal::NoBatch))),
        )
    }
}

impl Arrival for ForwardRequest {
    fn open(self) -> (u64, ItemContent) {
        let payload = self.payload;
        let content = match self.kind.try_into() {
            Ok(ForwardKind::Batch) => {
                let batch = Batch::decode(payload.as_slice());
                let batch = batch.map_err(|error| Refusal::Undecodable(error.to_string()));
                ItemContent::Batch(Box::new(batch))
            }
            Ok(ForwardKind::OtlpTraces) => ItemContent::Otlp(PayloadKind::OtlpProtobuf, payload),
            Ok(ForwardKind::OtlpTracesJson) => ItemContent::Otlp(PayloadKind::OtlpJson, payload),
            Ok(ForwardKind::OtlpLogs) => ItemContent::Otlp(PayloadKind::OtlpLogsProtobuf, payload),
            Ok(ForwardKind::OtlpLogsJson) => ItemContent::Otlp(PayloadKind::OtlpLogsJson, payload),
            Ok(ForwardKind::Unspecified) | Err(_) => ItemContent::Unknown(self.kind),
        };
        (self.sequence, content)
    }
}

/// Status that ends a stream; `None` if the client closed the stream or is gone.
type StreamEnd = Option<Status>;

impl ShipStream {
    /// Runs until the sender closes the stream, the stream fails, or the collector stops. Messages
    /// in flight at that point are still answered, up to the first that fails.
    pub(super) async fn run<R: Arrival>(self, mut requests: Streaming<R>) {
        let mut waiting = FuturesUnordered::new();
        let mut stopped = pin!(until_true(self.stop.clone()));
        let stream = Arc::new(self);
        let mut ending: StreamEnd = loop {
            tokio::select! {
                Some(answered) = waiting.next(), if !waiting.is_empty() => {
                    if let Err(ending) = answered {
                        break ending;
                    }
                }
                request = requests.message(), if waiting.len() < IN_FLIGHT_PER_STREAM_MAX => match request {
                    Ok(Some(request)) => {
                        let (submitted, is_submitted) = oneshot::channel();
                        let bytes = request.encoded_len();
                        let (sequence, content) = request.open();
                        let is_traced = match &content {
                            ItemContent::Batch(batch) => batch.as_ref().as_ref().is_ok_and(is_traced),
                            _ => false,
                        };
                        let batch = span_if(is_traced, || span!("batch"));
                        let taking =
                            stream.clone().take(sequence, content, bytes, is_traced, submitted);
                        let mut taking = Box::pin(taking.in_span(batch));
                        // The next request is read once this one signals or drops `submitted`, or
                        // is answered. A failure ends the stream.
                        tokio::select! {
                            biased;
                            taken = &mut taking => if let Err(ending) = taken { break ending },
                            _ = is_submitted => waiting.push(taking),
                        }
                    }
                    Ok(None) => {
                        let sender = stream.sender();
                        if let Some(Turn { left_out }) = ENDED.next() {
                            tracing::info!(left_out, "{sender} ended its stream after {} batches", sender.batches);
                        }
                        break None;
                    }
                    Err(status) => break stream.broken(status),
                },
                () = &mut stopped => break Some(status_of(&IntakeError::Stopping)),
            }
        };
        while let Some(answered) = waiting.next().await {
            if let Err(failed) = answered {
                // A failed message ends the stream with a status, so it does not look like a
                // lost reply.
                ending = failed;
                break;
            }
        }
        if let Some(status) = ending {
            // The client may have gone.
            let _ = stream.replies.send(Err(status)).await;
        }
    }

    fn sender(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs the failure of a stream. Counts it unless the client is gone or its token was
    /// withdrawn. Returns the status that ends the collector's side of the stream; `None` if the
    /// client is gone.
    fn broken(&self, status: Status) -> StreamEnd {
        let sender = self.sender();
        if let Some(cause) = cause_if_gone(&status) {
            if let Some(Turn { left_out }) = GONE.next() {
                tracing::info!(
                    cause,
                    left_out,
                    "{sender} disconnected without ending its stream, after {} batches: killed, ended without shutting down, \
                     or cut off",
                    sender.batches
                );
            }
            return None;
        }
        // The port has already counted a withdrawn token.
        if status.code() != Code::Unauthenticated {
            self.intake.counters().refuse("broken_stream");
        }
        if let Some(Turn { left_out }) = BROKEN.next() {
            let cause = status.message();
            tracing::warn!(cause, left_out, "the stream of {sender} broke");
        }
        Some(status)
    }

    /// Submits one message of `bytes` bytes, and answers once the outcome is decided. Signals
    /// `submitted` when the next message may be submitted.
    async fn take(
        self: Arc<Self>,
        sequence: u64,
        content: ItemContent,
        bytes: usize,
        is_traced: bool,
        submitted: oneshot::Sender<()>,
    ) -> Result<(), StreamEnd> {
        if let Some(reading) = &self.reading {
            // A compressed message may take more memory than the bytes that arrived.
            let held = reading.at_least(bytes);
            held.map_err(|denied| Some(denied.status()))?;
        }
        let reply = match content {
            // Messages of processes are within the limit: the port checks these.
            ItemContent::Batch(_) if bytes > self.limits.message_bytes_max + FORWARD_BYTES => {
                self.intake.counters().refuse("forward_too_large");
                let limit = self.limits.message_bytes_max;
                refused(sequence, &format!("the batch is larger than {limit} bytes"))
            }
            ItemContent::Batch(batch) => {
                self.take_batch(sequence, *batch, is_traced, submitted)
                    .await?
            }
            ItemContent::Otlp(kind, request) => {
                let taken = self
                    .otlp
                    .take_forwarded(kind, request, self.peer, submitted);
                match taken.await {
                    Ok(()) => answer(sequence, ShipOutcome::Stored),
                    Err(ForwardRefusal::Permanent(reason)) => refused(sequence, &reason),
                    Err(ForwardRefusal::Later(status)) => return Err(Some(status)),
                }
            }
            ItemContent::Unknown(kind) => {
                self.intake.counters().refuse("forward_kind");
                let reason = format!(
                    "kind {kind} of forwarded data is unknown; the agent is newer than this collector"
                );
                refused(sequence, &reason)
            }
        };
        let acknowledge = span_if(is_traced, || span!("acknowledge"));
        let sent = self.replies.send(Ok(reply)).in_span(acknowledge).await;
        sent.map_err(|_| None)
    }

    /// Submits one batch if it is valid, and signals `submitted`. Returns the reply once the
    /// batch's outcome is decided.
    async fn take_batch(
        &self,
        sequence: u64,
        batch: Result<Batch, Refusal>,
        is_traced: bool,
        submitted: oneshot::Sender<()>,
    ) -> Result<ShipReply, StreamEnd> {
        let redacted = batch.and_then(|mut batch| {
            let redacted = self.redaction.as_ref().map_or(Ok(()), |redaction| {
                let redacting = span_if(is_traced, || span!("redact"));
                redacting.scope(|| redaction.batch(&mut batch, &self.limits))
            });
            // Log lines name the sender, so its names are redacted, too.
            self.sender().learn(&batch);
            redacted.map(|()| batch)
        });
        let checked = redacted.and_then(|batch| {
            let checking = span_if(is_traced, || span!("check"));
            checking.scope(|| CheckedBatch::check(batch, &self.limits))
        });
        let batch = match checked {
            Ok(batch) => batch,
            Err(refusal) => {
                self.intake.counters().refuse(refusal.cause());
                if let Some(Turn { left_out }) = REFUSED.next() {
                    let (cause, sender) = (refusal.cause(), self.sender());
                    tracing::warn!(
                        cause,
                        sequence,
                        left_out,
                        "refused batch {sequence} of {sender}: {refusal}"
                    );
                }
                return Ok(refused(sequence, &refusal));
            }
        };
        let submission = self.intake.submit_of(self.peer, batch, now_ns()).await;
        let submission = match submission {
            Ok(submission) => submission,
            // Redaction may have enlarged the batch. A retry would fail, too.
            Err(error @ IntakeError::Wal(WalError::TooLong { .. })) => {
                self.intake.counters().refuse("too_long");
                return Ok(refused(sequence, &error));
            }
            Err(error) => return Err(Some(status_of(&error))),
        };
        // Cannot fail: `run` keeps the receiver until it gets this signal.
        let _ = submitted.send(());
        let commit = span_if(is_traced, || span!("commit"));
        match submission.outcome().in_span(commit).await {
            Ok(CommitOutcome::Stored) => Ok(answer(sequence, ShipOutcome::Stored)),
            Ok(CommitOutcome::Duplicate) => Ok(answer(sequence, ShipOutcome::Duplicate)),
            Ok(CommitOutcome::TooOld) => Ok(refused(sequence, &Refusal::TooOld(sequence))),
            Err(error) => Err(Some(status_of(&error))),
        }
    }
}

fn answer(sequence: u64, outcome: ShipOutcome) -> ShipReply {
    ShipReply {
        sequence,
        outcome: outcome.into(),
        detail: String::new(),
    }
}

fn refused(sequence: u64, refusal: &impl ToString) -> ShipReply {
    ShipReply {
        sequence,
        outcome: ShipOutcome::Refused.into(),
        detail: refusal.to_string(),
    }
}

/// Returns the gRPC status of a failure. Every such status makes the sender keep the batch and
/// retry later.
fn status_of(error: &IntakeError) -> Status {
    match error {
        IntakeError::Wal(WalError::Full { .. })
        | IntakeError::Backlog { .. }
        | IntakeError::Unforwarded { .. } => Status::resource_exhausted(error.to_string()),
        IntakeError::Wal(_) | IntakeError::Busy { .. } | IntakeError::Stopping => {
            Status::unavailable(error.to_string())
        }
    }
}
