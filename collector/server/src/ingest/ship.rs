//! One ship stream: many batches in flight, each answered when its fate is decided.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message as _;
use stroboscope_proto::v1::{ShipOutcome, ShipReply, ShipRequest};
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

use super::control::now_ns;
use super::sender::{Sender, cause_if_gone};
use crate::doors::{Reading, until_true};
use crate::intake::{CommitOutcome, Intake, IntakeError};
use crate::pool::Peer;
use crate::redact::Redaction;
use stroboscope_store::decode::{CheckedBatch, Refusal};
use stroboscope_store::limits::{IN_FLIGHT_PER_STREAM_MAX, Limits};
use stroboscope_store::wal::WalError;

type Replies = mpsc::Sender<Result<ShipReply, Status>>;

pub(super) struct ShipStream {
    pub(super) intake: Intake,
    pub(super) limits: Limits,
    pub(super) redaction: Option<Arc<Redaction>>,
    pub(super) replies: Replies,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) sender: Sender,
    /// What it holds of the bytes that arrive.
    pub(super) reading: Option<Reading>,
    pub(super) peer: Peer,
}

impl ShipStream {
    /// Runs until the sender is done, the stream breaks, or the collector stops. What is in flight then is still
    /// answered.
    pub(super) async fn run(mut self, mut requests: Streaming<ShipRequest>) {
        let mut waiting = FuturesUnordered::new();
        let mut stopped = pin!(until_true(self.stop.clone()));
        let mut ending: Option<Status> = loop {
            tokio::select! {
                Some(reply) = waiting.next(), if !waiting.is_empty() => {
                    if let Err(ending) = self.reply(reply).await {
                        break ending;
                    }
                }
                request = requests.message(), if waiting.len() < IN_FLIGHT_PER_STREAM_MAX => match request {
                    Ok(Some(request)) => match self.take(request).await {
                        Ok(Ok((sequence, submission))) => waiting.push(async move { (sequence, submission.outcome().await) }),
                        Ok(Err(refused)) => if self.replies.send(Ok(refused)).await.is_err() { break None },
                        Err(status) => break Some(status),
                    },
                    Ok(None) => {
                        let Sender { batches, .. } = self.sender;
                        tracing::info!("{} ended its stream after {batches} batches", self.sender);
                        break None;
                    }
                    Err(status) => break self.broken(status),
                },
                () = &mut stopped => break Some(status_of(&IntakeError::Stopping)),
            }
        };
        while let Some(reply) = waiting.next().await {
            if let Err(failed) = self.reply(reply).await {
                // A batch that is not stored must not look like one that was never answered by accident.
                ending = failed;
                break;
            }
        }
        if let Some(status) = ending {
            // The client may have gone.
            let _ = self.replies.send(Err(status)).await;
        }
    }

    /// The stream cannot be read any further. How it ends on our side.
    fn broken(&self, status: Status) -> Option<Status> {
        let sender = &self.sender;
        if let Some(cause) = cause_if_gone(&status) {
            let Sender { batches, .. } = sender;
            tracing::info!(
                "{sender} is gone without ending its stream, after {batches} batches: killed, ended without shutting \
                 down, or cut off ({cause})"
            );
            return None;
        }
        self.intake.counters().refuse("broken_stream");
        tracing::warn!("the stream of {sender} broke: {}", status.message());
        Some(status)
    }

    /// Hands one batch over, or says that it is refused.
    async fn take(
        &mut self,
        request: ShipRequest,
    ) -> Result<Result<(u64, crate::intake::Submission), ShipReply>, Status> {
        if let Some(batch) = &request.batch {
            self.sender.learn(batch);
        }
        if let Some(reading) = &self.reading {
            // Of what was packed, more is here than has arrived.
            let held = reading.at_least(request.encoded_len());
            held.map_err(|denied| denied.status())?;
        }
        let batch = request.batch.ok_or(Refusal::NoBatch);
        let sequence = batch.as_ref().map_or(0, |batch| batch.sequence);
        let redacted = batch.and_then(|mut batch| {
            if let Some(redaction) = &self.redaction {
                redaction.batch(&mut batch)?;
            }
            Ok(batch)
        });
        match redacted.and_then(|batch| CheckedBatch::check(batch, &self.limits)) {
            Ok(batch) => match self.intake.submit_of(self.peer, batch, now_ns()).await {
                Ok(submission) => Ok(Ok((sequence, submission))),
                Err(error) => Err(status_of(&error)),
            },
            Err(refusal) => {
                self.intake.counters().refuse(refusal.cause());
                tracing::warn!("refused batch {sequence} of {}: {refusal}", self.sender);
                Ok(Err(refused(sequence, &refusal)))
            }
        }
    }

    /// Sends one answer; the error is how the stream ends: with a status, or silently as the client is gone.
    async fn reply(
        &self,
        (sequence, fate): (u64, Result<CommitOutcome, IntakeError>),
    ) -> Result<(), Option<Status>> {
        let reply = match fate {
            Ok(CommitOutcome::Stored) => answer(sequence, ShipOutcome::Stored),
            Ok(CommitOutcome::Duplicate) => answer(sequence, ShipOutcome::Duplicate),
            Ok(CommitOutcome::TooOld) => refused(sequence, &Refusal::TooOld(sequence)),
            Err(error) => return Err(Some(status_of(&error))),
        };
        self.replies.send(Ok(reply)).await.map_err(|_| None)
    }
}

fn answer(sequence: u64, outcome: ShipOutcome) -> ShipReply {
    ShipReply {
        sequence,
        outcome: outcome.into(),
        detail: String::new(),
    }
}

fn refused(sequence: u64, refusal: &Refusal) -> ShipReply {
    ShipReply {
        sequence,
        outcome: ShipOutcome::Refused.into(),
        detail: refusal.to_string(),
    }
}

/// How a failure is told over gRPC. All of these mean: keep the batch, try again later.
fn status_of(error: &IntakeError) -> Status {
    match error {
        IntakeError::Wal(WalError::Full { .. }) | IntakeError::Backlog { .. } => {
            Status::resource_exhausted(error.to_string())
        }
        IntakeError::Wal(_) | IntakeError::Busy { .. } | IntakeError::Stopping => {
            Status::unavailable(error.to_string())
        }
    }
}
