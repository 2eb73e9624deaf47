//! Hosts of the collector and of an agent in front of it: the real ports, service, intake, and
//! flusher or forwarder, over simulated disks.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stroboscope::simulation::{Connection, Connector};
use stroboscope_burst::BurstConfig;
use stroboscope_fixtures::disk::SimDisk;
use stroboscope_server::forward::{Delivery, Gateway, Uplink};
use stroboscope_server::grpc::{BurstControl, Server};
use stroboscope_server::ingest::{Deliver, Intake, Options, Ways};
use stroboscope_server::net::SimulatedStream;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::disk::Disk as _;
use stroboscope_store::flush::FlushError;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use turmoil::net::{TcpListener, TcpStream};

use crate::clock;
use crate::log::{Log, lock};
use crate::plan::{Node, Planted};

pub(crate) const ROOT: &str = "/sim/data";
pub(crate) const PORT: u16 = 4_317;
/// Time until a collector or agent that failed to start is started again.
const AGAIN: Duration = Duration::from_millis(500);

/// Time that the disk of each node takes for a sync, in ms.
static COMMIT_MS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

pub(crate) fn set_commit_ms(node: Node, ms: u64) {
    COMMIT_MS[node as usize].store(ms, Relaxed);
}

fn commit_takes<const NODE: usize>() -> Duration {
    Duration::from_millis(COMMIT_MS[NODE].load(Relaxed))
}

/// Running collector or agent, which accepts batches.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) intake: Intake,
    pub(crate) control: BurstControl,
}

impl Live {
    /// Returns the size of the log that is not in the store or forwarded yet.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.intake.counters().wal_bytes.load(Relaxed)
    }
}

/// State of a node's machine, whether a collector or agent runs or not. Clones share it.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) node: Node,
    planted: Planted,
    pub(crate) disk: SimDisk,
    pub(crate) log: Log,
    flush_interval: Duration,
    config: Arc<Mutex<BurstConfig>>,
    live: Arc<Mutex<Option<Live>>>,
    /// Real directory for the lock file, because the simulated disk has no locks.
    real: Arc<Path>,
    runtime: Arc<Runtime>,
}

impl Machine {
    pub(crate) fn new(
        node: Node,
        planted: Planted,
        disk: SimDisk,
        log: Log,
        flush_interval: Duration,
        config: BurstConfig,
        real: &Path,
    ) -> Self {
        let above = Path::new(ROOT).parent().expect("it is below");
        disk.create_directories(above).expect("a new disk");
        above
            .ancestors()
            .for_each(|directory| disk.sync(directory).expect("a new disk"));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            node,
            planted,
            disk,
            log,
            flush_interval,
            config: Arc::new(Mutex::new(config)),
            live: Arc::default(),
            real: real.into(),
            runtime: Arc::new(runtime.expect("a runtime")),
        }
    }

    pub(crate) fn store(&self) -> stroboscope_store::tables::Store {
        self.disk
            .store(Path::new(ROOT), self.runtime.handle().clone())
    }

    /// Returns the node's running program; `None` if none accepts batches.
    pub(crate) fn live(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    /// Notes that the node's program has been killed.
    pub(crate) fn forget_live(&self) {
        lock(&self.live).take();
    }

    /// Switches the fleet to another config, now or when a collector runs again. Returns the wall
    /// time, in ns, from which the new config applies. Returns `None` if no collector runs.
    pub(crate) fn switch(&self, config: BurstConfig) -> Option<u64> {
        *lock(&self.config) = config;
        self.live().map(|live| live.control.set(config))
    }

    /// Opens the data directory, and moves an earlier collector's log into the store. Returns the
    /// intake and the future that does its work.
    pub(crate) fn open(&self) -> Result<(Intake, impl Future<Output = ()> + use<>), FlushError> {
        let data = DataDir::create_on(Arc::new(self.disk.clone()), Path::new(ROOT))?;
        let options = Options {
            flush_interval: self.flush_interval,
            ..Options::default()
        };
        let lock = DataDir::create(&self.real)?.lock()?;
        Intake::simulated(&data, lock, &self.store(), &options, self.ways())
    }

    fn ways(&self) -> Ways {
        Ways {
            apart: clock::apart,
            commit_takes: match self.node {
                Node::Collector => commit_takes::<0>,
                Node::Agent => commit_takes::<1>,
            },
            forgets: self.planted == Planted::ForwardedBeforeDelivery,
        }
    }

    /// Opens the data directory of an agent, which relays directives to `control`.
    fn open_agent(
        &self,
        control: &BurstControl,
    ) -> Result<(Intake, impl Future<Output = ()> + use<>), FlushError> {
        let data = DataDir::create_on(Arc::new(self.disk.clone()), Path::new(ROOT))?;
        let options = Options {
            flush_interval: self.flush_interval,
            live_quiet: None,
            ..Options::default()
        };
        let lock = DataDir::create(&self.real)?.lock()?;
        let connector = Connector::new(|| {
            Box::pin(async {
                let stream = TcpStream::connect((Node::Collector.host(), PORT)).await?;
                Ok(Box::new(stream) as Box<dyn Connection>)
            })
        });
        let gateway = Gateway::simulated("http://collector:4317", connector).expect("an address");
        let uplink = Uplink::start(vec![gateway], control.clone());
        let delivery = Delivery::new(uplink, Handle::current());
        let delivery = Arc::new(tokio::sync::Mutex::new(delivery));
        let deliver: Deliver = Box::new(move |segment, payloads, until| {
            let delivery = delivery.clone();
            Box::pin(async move {
                let mut delivery = delivery.lock().await;
                delivery.deliver_until(segment, &payloads, until).await
            })
        });
        Intake::simulated_agent(&data, lock, deliver, &options, self.ways())
    }

    /// Runs a collector or agent until it is killed.
    pub(crate) async fn run(self) -> turmoil::Result {
        match self.node {
            Node::Collector => {
                let control = BurstControl::new(Some(*lock(&self.config)));
                let (intake, work) = self.opened(Self::open).await;
                self.serve(intake, control, work).await
            }
            Node::Agent => {
                let control = BurstControl::of_agent(Node::Collector.host());
                let (intake, work) = self.opened(|this| this.open_agent(&control)).await;
                self.serve(intake, control, work).await
            }
        }
    }

    /// Calls `open` until it succeeds.
    async fn opened<T>(&self, open: impl Fn(&Self) -> Result<T, FlushError>) -> T {
        loop {
            match open(self) {
                Ok(opened) => return opened,
                Err(error) => self
                    .log
                    .add(self.node.host(), format_args!("does not start: {error}")),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn serve(
        &self,
        intake: Intake,
        control: BurstControl,
        work: impl Future<Output = ()>,
    ) -> turmoil::Result {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let (connections, accepted) = mpsc::channel(64);
        let _server = Server::simulated(intake.clone(), control.clone(), accepted).await?;
        self.log.add(self.node.host(), "runs");
        *lock(&self.live) = Some(Live { intake, control });
        let accept = async {
            loop {
                let (stream, address) = listener.accept().await?;
                let stream: SimulatedStream = Box::new(stream);
                if connections.send((stream, address)).await.is_err() {
                    return turmoil::Result::Ok(());
                }
            }
        };
        tokio::select! {
            () = work => Ok(()),
            accepted = accept => accepted,
        }
    }
}
