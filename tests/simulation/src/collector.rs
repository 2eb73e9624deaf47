//! The collector's host: the real ports, service, intake and flusher, over a simulated disk.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_server::grpc::{BurstControl, Server};
use stroboscope_server::ingest::{Intake, Options, Ways};
use stroboscope_server::net::SimulatedStream;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::disk::Disk as _;
use stroboscope_store::flush::FlushError;
use stroboscope_testkit::disk::SimDisk;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use turmoil::net::TcpListener;

use crate::clock;
use crate::log::{Log, lock};

pub(crate) const ROOT: &str = "/sim/data";
pub(crate) const PORT: u16 = 4_317;
/// Time until a collector that failed to start is started again.
const AGAIN: Duration = Duration::from_millis(500);

/// Time that the disk takes for a sync, in ms.
static COMMIT_MS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_commit_ms(ms: u64) {
    COMMIT_MS.store(ms, Relaxed);
}

/// A collector that accepts batches.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) intake: Intake,
    pub(crate) control: BurstControl,
}

/// State of the collector's machine, whether a collector runs or not. Clones share it.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) log: Log,
    flush_interval: Duration,
    config: Arc<Mutex<BurstConfig>>,
    live: Arc<Mutex<Option<Live>>>,
    /// Directory of the lock: the simulated disk has none.
    real: Arc<Path>,
    runtime: Arc<Runtime>,
}

impl Machine {
    pub(crate) fn new(
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

    /// Returns the running collector.
    pub(crate) fn live(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    /// Notes that the collector has been killed.
    pub(crate) fn forget_live(&self) {
        lock(&self.live).take();
    }

    /// Switches the fleet, now or when a collector runs again. Returns the wall time from which the
    /// new config holds.
    pub(crate) fn switch(&self, config: BurstConfig) -> Option<u64> {
        *lock(&self.config) = config;
        self.live().map(|live| live.control.set(config))
    }

    /// Opens the data directory. Moves an earlier collector's log into the store.
    pub(crate) fn open(&self) -> Result<(Intake, impl Future<Output = ()> + use<>), FlushError> {
        let data = DataDir::create_on(Arc::new(self.disk.clone()), Path::new(ROOT))?;
        let options = Options {
            flush_interval: self.flush_interval,
            ..Options::default()
        };
        let ways = Ways {
            apart: clock::apart,
            commit_takes: || Duration::from_millis(COMMIT_MS.load(Relaxed)),
        };
        let lock = DataDir::create(&self.real)?.lock()?;
        Intake::simulated(&data, lock, &self.store(), &options, ways)
    }

    /// Runs a collector until it is killed.
    pub(crate) async fn run(self) -> turmoil::Result {
        let (intake, work) = loop {
            match self.open() {
                Ok(opened) => break opened,
                Err(error) => self
                    .log
                    .add("collector", format_args!("does not start: {error}")),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let control = BurstControl::new(Some(*lock(&self.config)));
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let (connections, accepted) = mpsc::channel(64);
        let _server = Server::simulated(intake.clone(), control.clone(), accepted).await?;
        self.log.add("collector", "runs");
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
