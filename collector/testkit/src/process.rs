//! Recording of this process: the SDK, and a collector that it ships to. The SDK is one per
//! process, so concurrent tests share both.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use stroboscope::{BurstConfig, Guard};
use stroboscope_server::grpc::{BurstControl, ListenAddresses, Server};
use stroboscope_server::ingest::{Intake, Options, Stop};
use stroboscope_server::net::{NetSettings, Ports};
use stroboscope_server::otlp::Door;
use stroboscope_store::limits::Limits;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::archive::Archive;

/// Running recording, while at least one test uses it.
static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// Maximum size of a thread's ring, in bytes. A test may record more per second than a service.
const RING_BYTES: usize = 8 << 20;
/// Maximum size of all rings, in bytes.
const RINGS_BYTES_MAX: usize = 256 << 20;
const RECORDS_ELSEWHERE: &str = "this process already records for another collector: call \
     `stroboscope_testkit::start` before `stroboscope::init`, or do not call `init` in tests";

/// Recording of the process. The collector has no store. It forwards its log to the archive, like
/// an agent to its gateway.
struct Process {
    /// Number of tests that use it.
    users: usize,
    lease: Lease,
    /// Recording of the SDK; `None` until it starts.
    guard: Option<Guard>,
    server: Option<Server>,
    /// Directory of the collector's log.
    _log: TempDir,
}

/// Use of the recording by a test.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    intake: Intake,
    pub(crate) archive: Archive,
}

fn process() -> MutexGuard<'static, Option<Process>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lease {
    /// Starts the recording, unless it is running. Each successful call needs one call of
    /// [`end`](Self::end).
    pub(crate) fn begin() -> Result<Self, String> {
        let mut slot = process();
        let process = match &mut *slot {
            Some(process) => process,
            none => none.insert(Process::start()?),
        };
        process.users += 1;
        Ok(process.lease.clone())
    }

    /// Stops the recording, unless another test uses it.
    pub(crate) fn end() {
        let mut slot = process();
        if let Some(process) = &mut *slot {
            process.users -= 1;
            if process.users == 0 {
                // Stops it under the lock, because another test may start it again.
                *slot = None;
            }
        }
    }

    /// Moves everything that the collector has acknowledged to the archive.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let intake = self.intake.clone();
        wait_for(async move { intake.flush().await })
    }
}

impl Process {
    fn start() -> Result<Self, String> {
        if stroboscope::stats().running {
            return Err(RECORDS_ELSEWHERE.to_owned());
        }
        let archive = Archive::default();
        let log = tempfile::Builder::new()
            .prefix("stroboscope-testkit-")
            .tempdir();
        let log = log.map_err(|error| format!("cannot create a temporary directory: {error}"))?;
        let options = Options {
            flush_interval: Duration::from_secs(3_600), // tests flush
            ..Options::default()
        };
        let no_collector = |error: &dyn std::fmt::Display| format!("no collector starts: {error}");
        let intake = Intake::open_agent(log.path(), Box::new(archive.clone()), &options);
        let intake = intake.map_err(|error| no_collector(&error))?;
        let ports = Ports::open(NetSettings::default()).map_err(|error| no_collector(&error))?;
        let of_server = intake.clone();
        let server = wait_for(async move {
            let limits = Limits::default();
            let control = BurstControl::new(None);
            let door = Door::new(of_server.clone(), limits.clone(), None);
            let listen = ListenAddresses {
                grpc: ([127, 0, 0, 1], 0).into(),
                unix: None,
            };
            Server::start(ports, of_server, control, limits, None, door, &listen).await
        });
        let server = server.map_err(|error| no_collector(&error))?;
        let address = format!("http://{}", server.address());
        let mut process = Self {
            users: 0,
            lease: Lease { intake, archive },
            guard: None,
            server: Some(server),
            _log: log,
        };
        // Cargo passes the name of the package under test.
        let service = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "test".to_owned());
        let guard = stroboscope::builder()
            .service(service)
            .collector(address)
            .burst_config(BurstConfig::ALWAYS_ON)
            .ring_bytes(RING_BYTES)
            .rings_bytes_max(RINGS_BYTES_MAX)
            .init()
            .map_err(|error| format!("the SDK does not start: {error}"))?;
        if !guard.is_active() {
            return Err(RECORDS_ELSEWHERE.to_owned());
        }
        process.guard = Some(guard);
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Stops the SDK while the collector can acknowledge its last records.
        drop(self.guard.take());
        let (server, intake) = (self.server.take(), self.lease.intake.clone());
        wait_for(async move {
            if let Some(server) = server {
                server.stop().await;
            }
            // The log is deleted, so errors do not matter.
            let _ = intake.stop(Stop::Now).await;
        });
    }
}

/// Runs a future of the collector on a runtime of its own, and waits for it. The caller's thread
/// may belong to another runtime, so it must not enter this one.
fn wait_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        let builder = builder
            .worker_threads(1)
            .thread_name("testkit")
            .enable_all();
        let built = builder.build();
        built.unwrap_or_else(|error| panic!("cannot start a thread for the collector: {error}"))
    });
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move { sender.send(work.await) });
    receiver.recv().expect("the collector does not panic")
}
