//! Connection to the collector, with reconnects after a pause.
//!
//! Connecting has a deadline, and so has the next reply while a batch is unanswered. While none is,
//! the link waits without a deadline. A peer may send its response headers only with its first
//! reply, as servers on gRPC's C core do, so batches are sent before headers arrive.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use stroboscope_proto::v1::{self, collector_client::CollectorClient};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{CompressionEncoding, Streaming};
use tonic::{Code, Status};

use super::directives;
use crate::address::{AuthorizedChannel, Destination, chain};
use crate::gate::timer::Timer;
use crate::id::IdSource;

/// Maximum number of batches passed to the connection that it has not yet taken.
const IN_FLIGHT: usize = 8;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Maximum pause between attempts during the first minute in which the collector is unreachable, so
/// that processes soon reconnect after the collector restarts.
const PAUSE_WHILE_AWAY: Duration = Duration::from_millis(200);
/// Maximum pause once the collector has been unreachable for a minute, or after a stream failed,
/// such as one that the peer rejected.
const PAUSE_LAST: Duration = Duration::from_secs(5);
const LONG_AWAY: Duration = Duration::from_secs(60);
/// Deadline for connecting: name resolution and the handshakes of TCP and TLS.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline for the next reply while a batch is unanswered. A collector stores a batch durably in
/// milliseconds, or in seconds on an overloaded disk. Sending a batch again to a slow collector is
/// harmless, because the collector recognises batches.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);
/// Maximum size of a reply in bytes: an acknowledgement is a few bytes, a rejection a sentence.
const REPLY_BYTES_MAX: usize = 16 << 10;

/// Event of the connection.
#[derive(Debug)]
pub(crate) enum Progress {
    Connected,
    Reply(v1::ShipReply),
    /// The connection is up but slow; contains the reason for people.
    Slow(String),
    /// The connection is lost or could not be made; contains the reason for people.
    Down(String),
}

/// Receiving half of the stream.
enum Replies {
    /// The peer has not sent its headers yet.
    Awaited(Pin<Box<dyn Future<Output = Result<Streaming<v1::ShipReply>, Status>> + Send>>),
    Open(Box<Streaming<v1::ShipReply>>),
}

struct Session {
    /// Sender of batches; `None` if the stream was ended.
    requests: Option<mpsc::Sender<v1::ShipRequest>>,
    replies: Replies,
    /// Number of batches that were sent and not answered.
    unanswered: usize,
    /// Time of the last reply, or of sending the oldest unanswered batch if no reply came since.
    /// `None` if no batch is unanswered.
    waits_since: Option<Instant>,
    /// True if [`NoReply::Slow`] was returned since the last reply.
    said_slow: bool,
    control: tokio::task::JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.control.abort();
    }
}

/// Reason for a missing reply.
enum NoReply {
    /// A quarter of the deadline has passed without a reply; the session continues.
    Slow,
    /// The stream failed before the peer's headers, usually because the peer rejected it.
    Refused(Status),
    Broken(Status),
    Closed,
    /// The peer may be up, but does not reply.
    Silent,
}

impl Session {
    /// Waits for the next reply, at most for `deadline` since [`waits_since`](Self::waits_since).
    /// Returns [`NoReply::Slow`] once, after a quarter of the deadline. Cancel-safe.
    async fn reply(&mut self, deadline: Duration) -> Result<v1::ShipReply, NoReply> {
        let Some(since) = self.waits_since else {
            return self.reply_at_any_time().await;
        };
        let patience = if self.said_slow {
            deadline
        } else {
            deadline / 4
        };
        let reply = tokio::time::timeout_at(since + patience, self.reply_at_any_time()).await;
        reply.unwrap_or_else(|_| {
            let is_over = std::mem::replace(&mut self.said_slow, true);
            Err(if is_over {
                NoReply::Silent
            } else {
                NoReply::Slow
            })
        })
    }

    async fn reply_at_any_time(&mut self) -> Result<v1::ShipReply, NoReply> {
        loop {
            match &mut self.replies {
                Replies::Awaited(headers) => {
                    let replies = headers.await.map_err(NoReply::Refused)?;
                    self.replies = Replies::Open(Box::new(replies));
                }
                Replies::Open(replies) => {
                    return match replies.message().await {
                        Ok(Some(reply)) => Ok(reply),
                        Ok(None) => Err(NoReply::Closed),
                        Err(status) => Err(NoReply::Broken(status)),
                    };
                }
            }
        }
    }
}

type ConnectFuture = Pin<Box<dyn Future<Output = Result<Box<Session>, String>> + Send>>;

enum State {
    Pausing(Pin<Box<Sleep>>),
    Connecting(ConnectFuture),
    Up(Box<Session>),
}

/// Connection to the collector, which reconnects after a failure.
pub(crate) struct Link {
    destination: Destination,
    process: v1::Process,
    timer: Arc<Timer>,
    state: State,
    pause: Duration,
    /// Time since which the collector is unreachable; `None` if it is reachable or was at the last
    /// attempt.
    away_since: Option<Instant>,
    answer_deadline: Duration,
    ids: IdSource,
}

impl Link {
    pub(crate) fn new(destination: Destination, process: v1::Process, timer: Arc<Timer>) -> Self {
        let state = State::Pausing(Box::pin(tokio::time::sleep(Duration::ZERO)));
        Self {
            destination,
            process,
            timer,
            state,
            pause: PAUSE_FIRST,
            away_since: None,
            answer_deadline: ANSWER_DEADLINE,
            ids: IdSource::unseeded(),
        }
    }

    /// Waits for the next event. Cancel-safe: unfinished work continues in the next call.
    pub(crate) async fn progress(&mut self) -> Progress {
        loop {
            match &mut self.state {
                State::Pausing(sleep) => {
                    sleep.await;
                    let connecting = connect(
                        self.destination.clone(),
                        self.process.clone(),
                        Arc::clone(&self.timer),
                    );
                    self.state = State::Connecting(Box::pin(connecting));
                }
                State::Connecting(connecting) => match connecting.await {
                    Ok(session) => {
                        self.state = State::Up(session);
                        self.away_since = None;
                        return Progress::Connected;
                    }
                    Err(problem) => {
                        let pause_max = self.pause_max();
                        return self.down(problem, pause_max);
                    }
                },
                State::Up(session) => match session.reply(self.answer_deadline).await {
                    Ok(reply) => {
                        self.pause = PAUSE_FIRST;
                        session.unanswered = session.unanswered.saturating_sub(1);
                        session.waits_since = (session.unanswered > 0).then(Instant::now);
                        session.said_slow = false;
                        return Progress::Reply(reply);
                    }
                    Err(why) => {
                        let problem = self.problem(&why);
                        return match why {
                            NoReply::Slow => Progress::Slow(problem),
                            _ => self.down(problem, PAUSE_LAST),
                        };
                    }
                },
            }
        }
    }

    /// Returns the maximum pause while the collector is unreachable: [`PAUSE_WHILE_AWAY`] until
    /// [`LONG_AWAY`] after the first failure to connect, then [`PAUSE_LAST`].
    fn pause_max(&mut self) -> Duration {
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if since.elapsed() < LONG_AWAY {
            PAUSE_WHILE_AWAY
        } else {
            PAUSE_LAST
        }
    }

    /// Describes a missing reply, for people.
    fn problem(&self, why: &NoReply) -> String {
        let address = &self.destination.address;
        match why {
            NoReply::Refused(status) => refused(address, status),
            NoReply::Broken(status) => {
                format!("the stream to the collector broke: {}", said(status))
            }
            NoReply::Closed => "the collector closed the stream".to_owned(),
            NoReply::Slow => format!(
                "waiting for the collector at {address} to acknowledge a batch, for {} s so far",
                (self.answer_deadline / 4).as_secs_f64()
            ),
            NoReply::Silent => format!(
                "waited {} s for the collector at {address} to acknowledge a batch; it is connected but does not answer",
                self.answer_deadline.as_secs_f64()
            ),
        }
    }

    fn down(&mut self, problem: String, pause_max: Duration) -> Progress {
        // Waits between half and all of the pause, so that a fleet does not reconnect in one
        // instant.
        let pause = self.pause.min(pause_max);
        let half = pause / 2;
        let jitter = half.mul_f64(self.ids.random() as f64 / u64::MAX as f64);
        self.state = State::Pausing(Box::pin(tokio::time::sleep(half + jitter)));
        self.pause = (pause * 2).min(pause_max);
        Progress::Down(problem)
    }

    /// Skips the current pause and starts again with [`PAUSE_FIRST`], because a flush or the end of
    /// recording waits for the collector.
    pub(crate) fn hurry(&mut self) {
        self.pause = PAUSE_FIRST;
        if let State::Pausing(sleep) = &mut self.state {
            sleep.as_mut().reset(Instant::now());
        }
    }

    /// Reports whether the collector is connected.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Ends the stream and waits until the collector has ended it, too.
    pub(crate) async fn hang_up(&mut self) {
        if let State::Up(session) = &mut self.state {
            session.requests = None;
            while session.reply_at_any_time().await.is_ok() {}
        }
    }

    /// Passes a batch to the connection; returns `false` if it cannot take one now.
    pub(crate) fn try_send(&mut self, batch: &v1::Batch) -> bool {
        let State::Up(session) = &mut self.state else {
            return false;
        };
        let Some(Ok(place)) = session.requests.as_ref().map(mpsc::Sender::try_reserve) else {
            return false;
        };
        place.send(v1::ShipRequest {
            batch: Some(batch.clone()),
        });
        session.unanswered += 1;
        session.waits_since.get_or_insert_with(Instant::now);
        true
    }
}

async fn connect(
    destination: Destination,
    process: v1::Process,
    timer: Arc<Timer>,
) -> Result<Box<Session>, String> {
    let connected = tokio::time::timeout(CONNECT_DEADLINE, destination.connect()).await;
    let Destination {
        address,
        authorization,
        is_near,
        ..
    } = destination;
    let channel = connected
        .map_err(|_| format!("waited {} s for it", CONNECT_DEADLINE.as_secs()))
        .and_then(|connected| connected.map_err(|error| chain(&error)))
        .map_err(|problem| format!("no connection to the collector at {address}: {problem}"))?;
    let authorized = AuthorizedChannel::new(channel, authorization);
    let mut client =
        CollectorClient::new(authorized.clone()).max_decoding_message_size(REPLY_BYTES_MAX);
    if !is_near {
        client = client.send_compressed(CompressionEncoding::Zstd);
    }
    let (requests, receiver) = mpsc::channel(IN_FLIGHT);
    let replies = async move {
        let response = client.ship(ReceiverStream::new(receiver)).await?;
        Ok(response.into_inner())
    };
    let control = tokio::spawn(directives::follow(authorized, process, timer));
    Ok(Box::new(Session {
        requests: Some(requests),
        replies: Replies::Awaited(Box::pin(replies)),
        unanswered: 0,
        waits_since: None,
        said_slow: false,
        control,
    }))
}

/// Describes a status, for people.
fn said(status: &Status) -> String {
    match status.message() {
        "" => status.code().to_string(),
        message => format!("{} ({:?})", for_people(message), status.code()),
    }
}

/// Returns the beginning of a peer's text in one line, without control characters that a terminal
/// would interpret.
pub(crate) fn for_people(text: &str) -> String {
    const CHARS_MAX: usize = 500;
    let is_shown = |c: &char| {
        !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown: String = text
        .chars()
        .take(CHARS_MAX)
        .map(|c| if is_shown(&c) { c } else { ' ' })
        .collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Describes a rejected stream. If the status suggests that the peer is not a collector, the
/// description asks whether the address is that of a collector's gRPC port.
fn refused(address: &str, status: &Status) -> String {
    let told = format!(
        "the collector at {address} did not accept the stream: {}",
        said(status)
    );
    let is_ours = status.message().contains("STROBOSCOPE_COLLECTOR");
    let is_strange = matches!(
        status.code(),
        Code::Unimplemented | Code::Internal | Code::Unknown
    );
    if is_ours || !is_strange {
        return told;
    }
    format!(
        "{told}; is that the gRPC port of a Stroboscope collector? That is 4317, unless `collect --listen` says otherwise"
    )
}

#[cfg(test)]
mod tests;
