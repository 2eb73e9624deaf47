//! Common path of OTLP requests, forwarded ones included. It redacts and checks a request, appends
//! it to the write-ahead log if it has records to store, and answers once it is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stroboscope::{FutureExt as _, in_current_context, span};
use stroboscope_store::decode::{
    OtlpTaken, check_otlp_protobuf, otlp_json, otlp_logs_json, otlp_logs_protobuf,
};
use stroboscope_store::flush::now_ns;
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;
use stroboscope_store::wal::PayloadKind;
use tokio::sync::oneshot;
use tonic::Status;

use super::answer::{ExportResponse, Refusal};
use super::signal::{Encoding, Signal};
use crate::ingest::Intake;
use crate::net::BodyShare;
use crate::pool::{Peer, Share};
use crate::redact::Redaction;
use crate::self_tracing::{is_on, span_if};

/// Maximum size, in bytes, of a request that is checked on a thread that serves connections. Larger
/// requests are checked on a blocking thread.
const CHECKED_IN_PLACE_BYTES_MAX: usize = 64 << 10;

/// Handler that stores OTLP requests. Clones share the intake and the count of rejections.
#[derive(Clone, Debug)]
pub struct Door {
    intake: Intake,
    limits: Limits,
    redaction: Option<Arc<Redaction>>,
    /// Number of permanent rejections that `refuse` has counted.
    refused: Arc<AtomicU64>,
}

/// Reason why a forwarded request is not stored.
#[derive(Debug)]
pub(crate) enum ForwardRefusal {
    /// A retry is useless; contains the reason.
    Permanent(String),
    Later(Status),
}

impl Door {
    /// Creates a handler that passes requests to the intake; `redaction` applies to them first.
    #[must_use]
    pub fn new(intake: Intake, limits: Limits, redaction: Option<Arc<Redaction>>) -> Self {
        Self {
            intake,
            limits,
            redaction,
            refused: Arc::default(),
        }
    }

    pub(super) fn request_bytes_max(&self) -> usize {
        self.limits.otlp_request_bytes_max
    }

    /// Stores a request. Returns once it is durable, or at once if it has nothing to store. The
    /// caller counts a refusal by [`refuse`](Self::refuse).
    pub(super) async fn export(
        &self,
        signal: Signal,
        encoding: Encoding,
        request: Vec<u8>,
        reading: Option<&BodyShare>,
        peer: Peer,
    ) -> Result<ExportResponse, Refusal> {
        // A compressed request may take more memory than the bytes that arrived.
        let held = reading.map_or(Ok(()), |reading| reading.at_least(request.len()));
        held.map_err(|denied| Refusal::Full(denied.message))?;
        let kind = signal.payload_kind(encoding);
        let taking = span_if(is_on(), || span!("otlp_request", signal = signal.nouns().1));
        let taken = self
            .store(kind, request, peer, None)
            .in_span(taking)
            .await?;
        Ok(ExportResponse::of(signal, &taken))
    }

    /// Stores a request that an agent has accepted before. Returns once it is durable, or at once
    /// if it has nothing to store.
    pub(crate) async fn take_forwarded(
        &self,
        kind: PayloadKind,
        request: Vec<u8>,
        peer: Peer,
        submitted: oneshot::Sender<()>,
    ) -> Result<(), ForwardRefusal> {
        // The next request of the stream may come once this one has its share of the memory.
        let share = self.intake.share_for_forwarded(peer, request.len()).await;
        let _ = submitted.send(());
        let taking = span_if(is_on(), || span!("forwarded_request"));
        let stored = self
            .store(kind, request, peer, Some(share))
            .in_span(taking)
            .await;
        let Err(refusal) = stored else {
            return Ok(());
        };
        self.refuse(&refusal);
        Err(match refusal.may_retry() {
            true => ForwardRefusal::Later(refusal.status()),
            false => ForwardRefusal::Permanent(refusal.to_string()),
        })
    }

    /// Counts a request that is not stored, unless the port or the intake has already counted it.
    /// Logs some of the permanent rejections.
    pub(super) fn refuse(&self, refusal: &Refusal) {
        let Some(cause) = refusal.cause() else {
            return;
        };
        self.intake.counters().refuse(cause);
        if matches!(refusal, Refusal::Later(_)) {
            return;
        }
        // Logs the first, second, fourth, … refusal, so that clients cannot fill the log.
        let count = self.refused.fetch_add(1, Relaxed) + 1;
        if count.is_power_of_two() {
            let reason = match (refusal, &self.redaction) {
                // The parser's error may quote a text from the request.
                (Refusal::Invalid(_), Some(_)) => {
                    "it is malformed; the client has the details".to_owned()
                }
                _ => refusal.to_string(),
            };
            tracing::warn!(cause, count, "refused a request of OTLP: {reason}");
        }
    }

    fn check_size(&self, request: &[u8]) -> Result<(), Refusal> {
        let limit = self.request_bytes_max();
        if request.len() > limit {
            return Err(Refusal::TooLarge { limit });
        }
        Ok(())
    }

    /// Redacts and checks a request. Returns the bytes for the write-ahead log, and the counts of
    /// the records in them.
    fn check(&self, kind: PayloadKind, request: Vec<u8>) -> Result<(Vec<u8>, OtlpTaken), Refusal> {
        let is_redacted = self.redaction.is_some() && is_on();
        let redacting = span_if(is_redacted, || span!("redact")).entered();
        let redacted = match (&self.redaction, kind) {
            (None, _) => Ok(request),
            (Some(redaction), PayloadKind::OtlpJson | PayloadKind::OtlpLogsJson) => {
                redaction.json(&request)
            }
            (Some(redaction), PayloadKind::OtlpLogsProtobuf) => redaction.logs(&request),
            (Some(redaction), _) => redaction.traces(&request),
        };
        drop(redacting);
        let request = redacted.map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.check_size(&request)?;
        let _checking = span_if(is_on(), || span!("check")).entered();
        let taken = taken_of(kind, &request, &self.limits)?;
        Ok((request, taken))
    }

    async fn store(
        &self,
        kind: PayloadKind,
        request: Vec<u8>,
        peer: Peer,
        share: Option<Share>,
    ) -> Result<OtlpTaken, Refusal> {
        self.check_size(&request)?;
        let (request, taken) = if request.len() <= CHECKED_IN_PLACE_BYTES_MAX {
            self.check(kind, request)?
        } else {
            let door = self.clone();
            let checking = in_current_context(move || door.check(kind, request));
            // The task fails only if it panics or the runtime shuts down.
            let checked = tokio::task::spawn_blocking(checking).await;
            checked.unwrap_or(Err(Refusal::Later(crate::ingest::IntakeError::Stopping)))?
        };
        // An empty request, or one in which nothing can be kept, succeeds without being stored.
        if taken.records == 0 {
            self.intake.counters().leave_out(kind, &taken);
            return Ok(taken);
        }
        let received_ns = u64::try_from(now_ns()).unwrap_or_default();
        let submission = self
            .intake
            .submit_otlp(peer, kind, request, received_ns, taken.clone(), share)
            .await?;
        let commit = span_if(is_on(), || span!("commit"));
        submission.outcome().in_span(commit).await?;
        Ok(taken)
    }
}

/// Counts the records that decoding will later find in the logged request.
fn taken_of(kind: PayloadKind, request: &[u8], limits: &Limits) -> Result<OtlpTaken, Refusal> {
    let found = match kind {
        PayloadKind::OtlpJson => otlp_json(request, limits, &mut Rows::default()),
        PayloadKind::OtlpLogsProtobuf => otlp_logs_protobuf(request, limits, &mut Rows::default()),
        PayloadKind::OtlpLogsJson => otlp_logs_json(request, limits, &mut Rows::default()),
        _ => check_otlp_protobuf(request, limits),
    };
    found.map_err(|error| Refusal::Invalid(error.to_string()))
}
