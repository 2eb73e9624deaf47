//! Connection of an agent to one gateway at a time.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::pin::pin;
use std::time::Duration;

use stroboscope_proto::v1::directive::Kind;
use stroboscope_proto::v1::{ControlRequest, Directive, Probe, ProbeAnswer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, Streaming};

use super::gateway::{CONNECT_MAX, Client, Gateway};
use crate::grpc::BurstControl;

/// Maximum of the first pause after all gateways have failed in turn. The pause is at least half of
/// it. The maximum doubles for each further pause, up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum time for answering a probe.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Minimum interval at which an agent that uses another gateway tries to return to its preferred
/// one. Each interval is random, up to twice as long.
const RETURN: Duration = Duration::from_secs(60);

/// State of the connection: its number and client, or the reason why there is none, as text for
/// people.
pub(super) type Connection = Result<(u64, Client), String>;

/// Connection of an agent to a gateway. Dropping it ends the connection.
#[derive(Debug)]
pub struct Uplink {
    connection: watch::Receiver<Connection>,
    /// Number of the latest connection that failed to take data.
    failed: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Uplink {
    /// Starts to connect, and relays the gateway's directives to `control` from then on. Each agent
    /// prefers a random gateway, so a fleet of agents spreads over all of them.
    #[must_use]
    pub fn start(gateways: Vec<Gateway>, control: BurstControl) -> Self {
        let (state, connection) = watch::channel(Err("not connected yet".to_owned()));
        let (failed, failures) = watch::channel(0);
        let task = UplinkTask {
            gateways,
            control,
            state,
            failures,
        };
        Self {
            connection,
            failed,
            task: tokio::spawn(task.run()),
        }
    }

    /// Returns the current connection. Waits up to [`CONNECT_MAX`] for one.
    ///
    /// # Errors
    /// Returns the reason, as text for people, if there is no connection.
    pub(super) async fn client(&mut self) -> Connection {
        // The task ends only with this struct. After the wait, the state has the reason.
        let is_up = self.connection.wait_for(Result::is_ok);
        let _ = timeout(CONNECT_MAX, is_up).await.map(drop);
        self.connection.borrow().clone()
    }

    /// Reports without waiting whether the connection of this number is the current one.
    pub(super) fn is_current(&self, connection: u64) -> bool {
        let current = self.connection.borrow();
        current
            .as_ref()
            .is_ok_and(|(number, _)| *number == connection)
    }

    /// Gives up the current connection, if there is one, as [`Uplink::give_up`] describes.
    pub(super) fn give_up_current(&self) {
        let current = self
            .connection
            .borrow()
            .as_ref()
            .ok()
            .map(|(number, _)| *number);
        if let Some(number) = current {
            self.give_up(number);
        }
    }

    /// Makes the task move on from the connection of this number to the next gateway. With a single
    /// gateway, the connection stays, because it may be intact, for example if the gateway's disk
    /// is full.
    pub(super) fn give_up(&self, connection: u64) {
        self.failed.send_replace(connection);
    }
}

struct UplinkTask {
    gateways: Vec<Gateway>,
    control: BurstControl,
    state: watch::Sender<Connection>,
    failures: watch::Receiver<u64>,
}

impl UplinkTask {
    async fn run(mut self) {
        let random = RandomState::new().build_hasher().finish();
        let count = self.gateways.len();
        let preferred = usize::try_from(random).unwrap_or_default() % count.max(1);
        let mut turn = 0;
        let mut pause = PAUSE_FIRST;
        let mut number = 0;
        loop {
            let gateway = self.gateways[(preferred + turn) % count].clone();
            match self.open(&gateway).await {
                Ok((client, directives)) => {
                    tracing::info!(gateway = gateway.address, "connected");
                    pause = PAUSE_FIRST;
                    number += 1;
                    drop(self.state.send_replace(Ok((number, client.clone()))));
                    let better = (turn > 0).then(|| self.gateways[preferred].clone());
                    match self.follow(directives, &client, number, better).await {
                        Some(problem) => self.lost(&gateway, problem),
                        None => {
                            turn = 0;
                            continue;
                        }
                    }
                }
                Err(problem) => self.lost(&gateway, problem),
            }
            turn = (turn + 1) % count;
            if turn == 0 || count == 1 {
                // Up to half of the pause is random, so a fleet does not reconnect in one instant.
                let jitter = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
                sleep(pause.mul_f64(0.5 + jitter / 2.0)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn lost(&self, gateway: &Gateway, problem: String) {
        if self.state.borrow().as_ref().err() != Some(&problem) {
            tracing::warn!(gateway = gateway.address, "not connected: {problem}");
        }
        drop(self.state.send_replace(Err(problem)));
    }

    /// Connects and relays the first directive, which must be the gateway's route. Returns an
    /// error, as text for people, if it cannot connect, if the gateway does not send a route, or if
    /// the route has a loop or is too long.
    async fn open(&self, gateway: &Gateway) -> Result<(Client, Streaming<Directive>), String> {
        let client = gateway.connect().await?;
        let request = ControlRequest {
            process: None,
            is_agent: true,
        };
        let address = &gateway.address;
        let silent = || {
            format!(
                "{address} does not answer as a collector that takes agents; is it the gRPC port of one of this version or later?"
            )
        };
        let mut control = client.control();
        let opened = timeout(CONNECT_MAX, control.control(request)).await;
        let opened = opened.map_err(|_| silent())?;
        let mut directives = opened
            .map_err(|status| format!("{address} refused the agent: {}", text(&status)))?
            .into_inner();
        let first = timeout(CONNECT_MAX, directives.message()).await;
        let first = first.map_err(|_| silent())?;
        match first.map_err(|status| text(&status))? {
            Some(Directive {
                kind: Some(route @ Kind::SetRoute(_)),
            }) => self.control.relay(route),
            _ => return Err(silent()),
        }
        match self.control.loop_reason() {
            Some(reason) => Err(reason),
            None => Ok((client, directives)),
        }
    }

    /// Relays the directives that arrive on connection `number`. Returns the problem if the agent
    /// must give up the connection, and `None` once the `better` gateway accepts connections again.
    async fn follow(
        &mut self,
        mut directives: Streaming<Directive>,
        client: &Client,
        number: u64,
        better: Option<Gateway>,
    ) -> Option<String> {
        let has_others = self.gateways.len() > 1;
        let is_better = better.is_some();
        let failures = &mut self.failures;
        let mut failing = pin!(async {
            // `Uplink` aborts this task before it drops the sender.
            let _ = failures
                .wait_for(|failed| *failed >= number)
                .await
                .map(drop);
        });
        let control = &self.control;
        let mut returning = pin!(async {
            loop {
                // Up to half of the time is random, so that a fleet does not return in one instant.
                let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
                sleep(RETURN.mul_f64(1.0 + random)).await;
                match &better {
                    Some(gateway) if gateway.connect().await.is_ok() => return,
                    _ => {}
                }
            }
        });
        loop {
            tokio::select! {
                directive = directives.message() => match directive {
                    Ok(Some(Directive { kind: Some(Kind::Probe(Probe { id })) })) => {
                        answer(client, id, control);
                    }
                    Ok(Some(Directive { kind: Some(kind) })) => {
                        control.relay(kind);
                        if let Some(reason) = control.loop_reason() {
                            return Some(reason);
                        }
                    }
                    // A directive of a later version.
                    Ok(Some(Directive { kind: None })) => {}
                    Ok(None) => return Some("the gateway closed the connection".to_owned()),
                    Err(status) => return Some(format!("the connection broke: {}", text(&status))),
                },
                () = &mut failing, if has_others => {
                    return Some("the gateway did not take what was forwarded".to_owned());
                }
                () = &mut returning, if is_better => return None,
            }
        }
    }
}

/// Answers a probe without waiting for the reply. The answer includes the delay of the slowest
/// agent that forwards to this one.
fn answer(client: &Client, probe: u64, control: &BurstControl) {
    let below = control.agents().slowest().unwrap_or_default();
    let answer = ProbeAnswer {
        probe,
        below_ns: u64::try_from(below.as_nanos()).unwrap_or(u64::MAX),
    };
    let mut client = client.data();
    tokio::spawn(async move {
        // Without an answer, the agent's delay grows at the gateway, if it is known there.
        let _ = timeout(ANSWER_MAX, client.answer(answer)).await;
    });
}

/// Returns a status as text for people.
pub(super) fn text(status: &Status) -> String {
    match (status.code(), status.message()) {
        (code, "") => code.to_string(),
        (Code::Unknown | Code::Unavailable, message) => message.to_owned(),
        (code, message) => format!("{message} ({code:?})"),
    }
}
