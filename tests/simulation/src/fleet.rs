//! The hosts of the SDK's processes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stroboscope::simulation::{Connection, Connector, Process};
use stroboscope_fixtures::random::Random;
use stroboscope_proto::v1;
use tokio::sync::oneshot;
use turmoil::net::TcpStream;

use crate::clock::EPOCH_NS;
use crate::collector::PORT;
use crate::log::{Log, lock};
use crate::plan::{Plan, Planted};
use crate::service::{HostClock, Incarnation};

/// All processes of a run, including ended ones. Clones share the fleet.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub(crate) clocks: Arc<Vec<Arc<HostClock>>>,
    plan: Arc<Plan>,
    planted: Planted,
    seed: u64,
    log: Log,
    incarnations: Arc<Mutex<Vec<Arc<Incarnation>>>>,
    /// Running process of each host, and the way to stop it.
    running: Arc<Mutex<Vec<Option<Running>>>>,
}

struct Running {
    incarnation: Arc<Incarnation>,
    stop: Option<oneshot::Sender<Duration>>,
}

pub(crate) fn host_name(host: usize) -> String {
    format!("sdk-{host}")
}

impl Fleet {
    pub(crate) fn new(plan: Arc<Plan>, planted: Planted, seed: u64, log: Log) -> Self {
        let settings = &plan.settings;
        let clock = |host: usize| {
            let clock = HostClock::default();
            clock
                .skew_ns
                .store(settings.skews_ms[host] * 1_000_000, Relaxed);
            clock.drift_ppm.store(settings.drifts_ppm[host], Relaxed);
            Arc::new(clock)
        };
        Self {
            clocks: Arc::new((0..settings.processes).map(clock).collect()),
            running: Arc::new(Mutex::new((0..settings.processes).map(|_| None).collect())),
            plan,
            planted,
            seed,
            log,
            incarnations: Arc::default(),
        }
    }

    pub(crate) fn incarnations(&self) -> Vec<Arc<Incarnation>> {
        lock(&self.incarnations).clone()
    }

    /// Runs one process of a host, until it ends or is killed.
    pub(crate) async fn run(self, host: usize) -> turmoil::Result {
        let number = self.incarnations().len();
        let random = Random(self.seed.wrapping_mul(31).wrapping_add(number as u64));
        let settings = &self.plan.settings;
        let front = settings.front();
        let incarnation = Arc::new(Incarnation::new(
            host,
            number,
            random,
            settings.busy_per_mille,
            self.clocks[host].clone(),
            self.log.clone(),
        ));
        lock(&self.incarnations).push(incarnation.clone());
        let (stop, stopped) = oneshot::channel();
        lock(&self.running)[host] = Some(Running {
            incarnation: incarnation.clone(),
            stop: Some(stop),
        });
        let process = Process {
            process: v1::Process {
                incarnation: incarnation.id.to_be_bytes().to_vec(),
                service: incarnation.name.clone(),
                host: host_name(host),
                pid: number as u32 + 1,
                started_ns: EPOCH_NS as u64,
                sdk_version: "0.1.0".to_owned(),
            },
            burst_config: settings.burst_config,
            buffer_bytes_max: settings.buffer_bytes_max,
            clock: self.clocks[host].clone(),
            connector: Connector::new(move || {
                Box::pin(async move {
                    let stream = TcpStream::connect((front.host(), PORT)).await?;
                    Ok(Box::new(stream) as Box<dyn Connection>)
                })
            }),
            service: incarnation.clone(),
            losses: incarnation.losses,
            renumbers: self.planted == Planted::RetryRenumbered,
        };
        self.log.add(&incarnation.name, "starts");
        process.run(stopped).await?;
        incarnation.known().has_ended = true;
        self.log.add(
            &incarnation.name,
            format_args!("has ended, with {} lost", incarnation.losses.total()),
        );
        Ok(())
    }

    /// Notes that the process of a host has been killed, if there was one.
    pub(crate) fn note_killed(&self, host: usize) {
        if let Some(running) = lock(&self.running)[host].take() {
            let mut known = running.incarnation.known();
            known.is_killed = !known.has_ended;
        }
    }

    /// Makes the process of a host end within a time.
    pub(crate) fn stop(&self, host: usize, patience: Duration) {
        if let Some(running) = &mut lock(&self.running)[host]
            && let Some(stop) = running.stop.take()
        {
            let _ = stop.send(patience);
        }
    }

    /// Returns the processes that have neither ended nor been killed.
    pub(crate) fn alive(&self) -> Vec<Arc<Incarnation>> {
        let mut all = self.incarnations();
        all.retain(|incarnation| {
            let known = incarnation.known();
            !known.is_killed && !known.has_ended
        });
        all
    }
}
