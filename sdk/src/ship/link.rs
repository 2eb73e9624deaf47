//! The connection to the collector: made, lost, and made again with growing pauses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use stroboscope_proto::v1::{self, collector_client::CollectorClient};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{CompressionEncoding, Streaming};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::address::{Authorization, Destination, chain};
use crate::gate::timer::Timer;
use crate::id::IdSource;
use crate::tradeoff;
use stroboscope_burst::BurstConfig;

/// Batches handed to the connection and not yet taken by it.
const IN_FLIGHT: usize = 8;
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(5);

type Authorized = InterceptedService<Channel, Authorization>;

/// What happened to the connection.
#[derive(Debug)]
pub(crate) enum Progress {
    Connected,
    Reply(v1::ShipReply),
    /// It is gone, or was not made; why, for people.
    Down(String),
}

struct Session {
    /// `None`: the stream was ended.
    requests: Option<mpsc::Sender<v1::ShipRequest>>,
    replies: Streaming<v1::ShipReply>,
    control: tokio::task::JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.control.abort();
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Box<Session>, String>> + Send>>;

enum State {
    Pausing(Pin<Box<Sleep>>),
    Connecting(Connecting),
    Up(Box<Session>),
}

/// The one connection.
pub(crate) struct Link {
    destination: Destination,
    process: v1::Process,
    timer: Arc<Timer>,
    state: State,
    pause: Duration,
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
            ids: IdSource::unseeded(),
        }
    }

    /// Waits until something happens. Cancel-safe: what has not happened yet goes on in the next call.
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
                        return Progress::Connected;
                    }
                    Err(problem) => return self.down(problem),
                },
                State::Up(session) => match session.replies.message().await {
                    Ok(Some(reply)) => {
                        self.pause = PAUSE_FIRST;
                        return Progress::Reply(reply);
                    }
                    Ok(None) => return self.down("the collector closed the stream".to_owned()),
                    Err(status) => {
                        return self.down(format!(
                            "the stream to the collector broke: {}",
                            said(&status)
                        ));
                    }
                },
            }
        }
    }

    fn down(&mut self, problem: String) -> Progress {
        // Between half and all of the pause, so that a fleet does not come back in one instant.
        let half = self.pause / 2;
        let jitter = half.mul_f64(self.ids.random() as f64 / u64::MAX as f64);
        self.state = State::Pausing(Box::pin(tokio::time::sleep(half + jitter)));
        self.pause = (self.pause * 2).min(PAUSE_LAST);
        Progress::Down(problem)
    }

    /// The process is about to end: no long pauses any more.
    pub(crate) fn hurry(&mut self) {
        self.pause = PAUSE_FIRST;
        if let State::Pausing(sleep) = &mut self.state {
            sleep.as_mut().reset(Instant::now());
        }
    }

    /// Ends the stream and waits until the collector has, too.
    pub(crate) async fn hang_up(&mut self) {
        if let State::Up(session) = &mut self.state {
            session.requests = None;
            while let Ok(Some(_)) = session.replies.message().await {}
        }
    }

    /// Hands a batch to the connection; `false` when it cannot take one now.
    pub(crate) fn try_send(&mut self, batch: &v1::Batch) -> bool {
        match &self.state {
            State::Up(session) => match session.requests.as_ref().map(mpsc::Sender::try_reserve) {
                Some(Ok(place)) => {
                    place.send(v1::ShipRequest {
                        batch: Some(batch.clone()),
                    });
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }
}

async fn connect(
    destination: Destination,
    process: v1::Process,
    timer: Arc<Timer>,
) -> Result<Box<Session>, String> {
    let Destination {
        address,
        endpoint,
        authorization,
        is_near,
    } = destination;
    let channel = endpoint.connect().await.map_err(|error| {
        format!(
            "no connection to the collector at {address}: {}",
            chain(&error)
        )
    })?;
    let authorized = InterceptedService::new(channel, authorization);
    let mut client = CollectorClient::new(authorized.clone());
    if !is_near {
        client = client.send_compressed(CompressionEncoding::Zstd);
    }
    let (requests, receiver) = mpsc::channel(IN_FLIGHT);
    let replies = client
        .ship(ReceiverStream::new(receiver))
        .await
        .map_err(|status| refused(&address, &status))?
        .into_inner();
    let control = tokio::spawn(follow_control(authorized, process, timer));
    Ok(Box::new(Session {
        requests: Some(requests),
        replies,
        control,
    }))
}

/// What a status says, for people.
fn said(status: &Status) -> String {
    match status.message() {
        "" => status.code().to_string(),
        message => format!("{message} ({:?})", status.code()),
    }
}

/// Somebody is there, and does not take the stream. A collector says why; who says nothing that a collector would say is
/// another program, or another of its ports.
fn refused(address: &str, status: &Status) -> String {
    let told = format!(
        "the collector at {address} did not take the stream: {}",
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

/// Does what the collector directs, as long as the connection lives.
async fn follow_control(channel: Authorized, process: v1::Process, timer: Arc<Timer>) {
    let request = v1::ControlRequest {
        process: Some(process),
    };
    let Ok(response) = CollectorClient::new(channel).control(request).await else {
        return;
    };
    let mut directives = response.into_inner();
    while let Ok(Some(directive)) = directives.message().await {
        match directive.kind {
            Some(v1::directive::Kind::SetBurstConfig(set)) => timer.switch(
                BurstConfig::from_bits(set.burst_config),
                set.at_ns.cast_signed(),
            ),
            Some(v1::directive::Kind::SetTradeoffs(policy)) => tradeoff::directed(policy),
            None => {}
        }
    }
}
