//! Connection of an agent to one gateway at a time.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use stroboscope_proto::v1::directive::Kind;
use stroboscope_proto::v1::{ControlRequest, Directive};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Code, Status, Streaming};

use super::gateway::{CONNECT_MAX, Client, Gateway};
use crate::grpc::BurstControl;

/// First pause after all gateways have failed in turn. Each further pause is twice as long, up to
/// [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time after which an agent returns from another gateway to its preferred one.
const RETURN: Duration = Duration::from_secs(60);

/// State of the connection: a client, or the reason why there is none, as text for people.
pub(super) type Connection = Result<Client, String>;

/// Connection of an agent to a gateway. Dropping it ends the connection.
#[derive(Debug)]
pub struct Uplink {
    connection: watch::Receiver<Connection>,
    /// Signal to use another gateway.
    failed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Uplink {
    /// Starts to connect, and relays the gateway's directives to `control` from then on. Each agent
    /// prefers a gateway of its own choice, so a fleet of agents spreads over all of them.
    #[must_use]
    pub fn start(gateways: Vec<Gateway>, control: BurstControl) -> Self {
        let (state, connection) = watch::channel(Err("not connected yet".to_owned()));
        let failed = Arc::new(Notify::new());
        let task = UplinkTask {
            gateways,
            control,
            state,
            failed: failed.clone(),
        };
        Self {
            connection,
            failed,
            task: tokio::spawn(task.run()),
        }
    }

    /// Returns the client of the current gateway. Waits up to [`CONNECT_MAX`] for a connection.
    ///
    /// # Errors
    /// Returns the reason, as text for people, if there is no connection.
    pub(super) async fn client(&mut self) -> Connection {
        // The task ends only with this struct. After the wait, the state has the reason.
        let is_up = self.connection.wait_for(Result::is_ok);
        let _ = timeout(CONNECT_MAX, is_up).await.map(drop);
        self.connection.borrow().clone()
    }

    /// Returns at once whether there is a connection now.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.borrow().is_ok()
    }

    /// Makes the task move on to the next gateway, or reconnect to the only one.
    pub(super) fn give_up(&self) {
        self.failed.notify_one();
    }
}

struct UplinkTask {
    gateways: Vec<Gateway>,
    control: BurstControl,
    state: watch::Sender<Connection>,
    failed: Arc<Notify>,
}

impl UplinkTask {
    async fn run(self) {
        let random = RandomState::new().build_hasher().finish();
        let count = self.gateways.len();
        let preferred = usize::try_from(random).unwrap_or_default() % count.max(1);
        let mut turn = 0;
        let mut pause = PAUSE_FIRST;
        loop {
            let gateway = &self.gateways[(preferred + turn) % count];
            let is_preferred = turn == 0;
            match self.open(gateway).await {
                Ok((client, directives)) => {
                    tracing::info!(gateway = gateway.address, "forwarding");
                    pause = PAUSE_FIRST;
                    drop(self.state.send_replace(Ok(client)));
                    match self.follow(directives, is_preferred).await {
                        Some(problem) => self.lost(gateway, problem),
                        None => {
                            turn = 0;
                            continue;
                        }
                    }
                }
                Err(problem) => self.lost(gateway, problem),
            }
            turn = (turn + 1) % count;
            if turn == 0 || count == 1 {
                // Half of the pause is random, so that a fleet does not reconnect in one instant.
                let jitter = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
                sleep(pause.mul_f64(0.5 + jitter / 2.0)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn lost(&self, gateway: &Gateway, problem: String) {
        if self.state.borrow().as_ref().err() != Some(&problem) {
            tracing::warn!(gateway = gateway.address, "cannot forward: {problem}");
        }
        drop(self.state.send_replace(Err(problem)));
    }

    /// Connects and relays the first directive, which must be the gateway's route. Returns an
    /// error, as text for people, if the route comes back to this collector or is too long.
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

    /// Relays directives. Returns the problem when the connection fails or the agent gives it up;
    /// `None` when it is time to return to the preferred gateway.
    async fn follow(
        &self,
        mut directives: Streaming<Directive>,
        is_preferred: bool,
    ) -> Option<String> {
        let until = Instant::now() + RETURN;
        loop {
            tokio::select! {
                directive = directives.message() => match directive {
                    Ok(Some(Directive { kind: Some(kind) })) => {
                        self.control.relay(kind);
                        if let Some(reason) = self.control.loop_reason() {
                            return Some(reason);
                        }
                    }
                    // A directive of a later version.
                    Ok(Some(Directive { kind: None })) => {}
                    Ok(None) => return Some("the gateway closed the connection".to_owned()),
                    Err(status) => return Some(format!("the connection broke: {}", text(&status))),
                },
                () = self.failed.notified() => {
                    return Some("the gateway did not take what was forwarded".to_owned());
                }
                () = sleep_until(until), if !is_preferred => return None,
            }
        }
    }
}

/// Returns a status as text for people.
pub(super) fn text(status: &Status) -> String {
    match (status.code(), status.message()) {
        (code, "") => code.to_string(),
        (Code::Unknown | Code::Unavailable, message) => message.to_owned(),
        (code, message) => format!("{message} ({code:?})"),
    }
}
