//! One run: start everything, load it, stop everything, analyse.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stroboscope_analysis::tradeoff::NotLearned;
use stroboscope_burst::{BurstConfig, BurstConfigError};
use stroboscope_kernel_model::Processes;
use stroboscope_newsfeed::{FleetError, FleetOptions, RankLoadError};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, spawn_blocking};

use super::findings::findings;
use super::fleet::{self, Loaded};
use super::report::Report;
use stroboscope_query::QueryError;
use stroboscope_reports::stderr::say;
use stroboscope_server::collect::{Collector, CollectorError, CollectorSettings};
use stroboscope_server::doors::DoorSettings;
use stroboscope_server::ingest::ListenAddresses;
use stroboscope_server::intake::{Options, Stop};
use stroboscope_server::kernel_recording::{self, KernelRecording};
use stroboscope_server::redact::RedactSettings;
use stroboscope_store::limits::Limits;
use stroboscope_store::tables::Store;

/// What to run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The folder in which this run gets a folder of its own.
    pub data: PathBuf,
    /// Requests per second, on average.
    pub rate_per_s: f64,
    /// How long requests are started.
    pub seconds: f64,
    /// When to record.
    pub burst_config: String,
    /// Faults of the newsfeed, as `store.read=+5ms`.
    pub faults: Vec<String>,
    /// Copies of this share of requests explore tradeoffs beside.
    pub duplicate: Option<f64>,
    /// Also record what the kernel does for the newsfeed's processes.
    pub kernel: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The program cannot find itself, or has no runtime.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    /// A part of this program gave up.
    #[error("cannot go on: {0}")]
    Part(#[from] JoinError),
    /// The burst-config is no burst-config.
    #[error(transparent)]
    BurstConfig(#[from] BurstConfigError),
    /// It records nothing.
    #[error(
        "burst-config {0} never records, and there would be nothing to show; take one that does, such as \
         256ms/1024ms or always"
    )]
    NeverRecords(String),
    /// The newsfeed.
    #[error("the newsfeed: {0}")]
    Fleet(#[from] FleetError),
    /// The collector.
    #[error(transparent)]
    Collector(#[from] CollectorError),
    /// The last flush.
    #[error("what was collected could not be put into the store: {0}")]
    Flush(String),
    /// The analysis.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The load on the ranker.
    #[error(transparent)]
    RankLoad(#[from] RankLoadError),
    /// A request to rank.
    #[error("the ranker does not answer: {0}")]
    Ranking(String),
    /// No model of the ranker's tradeoffs.
    #[error("what was recorded of tradeoffs is too little: {0}")]
    NotLearned(#[from] NotLearned),
    /// Nothing was recorded.
    #[error("nothing was recorded of tradeoffs")]
    NothingExplored,
}

/// What became of a run.
#[derive(Debug)]
pub enum Outcome {
    /// It ran to its end.
    Report(Box<Report>),
    /// A signal of this number ended it.
    Interrupted(i32),
}

/// Runs the demo. Nothing is left running in any case.
///
/// # Errors
/// Something did not start, ended by itself, or recorded nothing usable.
pub fn run(options: &DemoOptions, runtime: &Runtime) -> Result<Outcome, DemoError> {
    let config = BurstConfig::parse(&options.burst_config)?.config;
    if config == BurstConfig::NEVER {
        return Err(DemoError::NeverRecords(options.burst_config.clone()));
    }
    // Refused before anything is started or made.
    fleet_options(options, String::new())?.check()?;
    let data = options.data.join(format!("demo-{}", seconds_since_epoch()));
    let load = match runtime.block_on(record(options, &data))? {
        Loaded::Report(load) => load,
        Loaded::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
    };
    say!("stopped; analysing what was recorded");
    let findings = findings(&data, runtime.handle().clone(), options.kernel)?;
    Ok(Outcome::Report(Box::new(Report {
        load: load.to_string(),
        requests: load.sent,
        failed: load.failed,
        burst_config: config.to_string(),
        faults: options.faults.clone(),
        findings,
        data,
    })))
}

/// Collects while the newsfeed is under load.
async fn record(options: &DemoOptions, data: &Path) -> Result<Loaded, DemoError> {
    // From here on a signal no longer ends this process: it stops what was started first.
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let interrupted = async {
        tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let collector = Collector::start(collector_settings(data, listen));
    let collector = collector.await?;
    say!(
        "collecting on {} into {}",
        collector.grpc_address(),
        data.display()
    );
    let fleet_options = fleet_options(options, format!("http://{}", collector.grpc_address()))?;
    let recording = if options.kernel {
        record_kernel(options, data).await?
    } else {
        None
    };
    let load = fleet::run(fleet_options, |pids| announce(options, pids), interrupted).await;
    if let Some(recording) = recording {
        let summary = spawn_blocking(|| recording.stop()).await?;
        say!(
            "stored {} events of the kernel, {} lost",
            summary.events,
            summary.lost.total()
        );
    }
    // Whatever came of the load: what was acknowledged is put into the store, and nothing is left listening.
    collector
        .stop(Stop::Flush)
        .await
        .map_err(DemoError::Flush)?;
    Ok(load?)
}

/// A collector of its own, which serves nobody else.
pub(super) fn collector_settings(data: &Path, listen: SocketAddr) -> CollectorSettings {
    CollectorSettings {
        data: data.to_owned(),
        listen: ListenAddresses {
            grpc: listen,
            unix: None,
        },
        otlp_http: None,
        http: None,
        site: None,
        burst_config: None,
        doors: DoorSettings::default(),
        redact: RedactSettings::default(),
        intake: Options::default(),
        limits: Limits::default(),
        publishing: None,
    }
}

fn fleet_options(options: &DemoOptions, collector: String) -> Result<FleetOptions, std::io::Error> {
    Ok(FleetOptions {
        prefix_args: vec![fleet::ROLE_VERB.to_owned()],
        collector: Some(collector),
        burst_config: Some(options.burst_config.clone()),
        faults: options.faults.clone(),
        rate_per_s: options.rate_per_s,
        seconds: options.seconds,
        duplicate: options.duplicate,
        ..FleetOptions::new(std::env::current_exe()?)
    })
}

/// Records what this process starts from now on. Where that is not allowed, the demo goes on without.
async fn record_kernel(
    options: &DemoOptions,
    data: &Path,
) -> Result<Option<KernelRecording>, DemoError> {
    let kernel = stroboscope_kernel_model::Settings {
        burst_config: BurstConfig::parse(&options.burst_config)?.config,
        processes: Processes::Trees(vec![std::process::id()]),
        ..stroboscope_kernel_model::Settings::default()
    };
    let settings = kernel_recording::RecordingSettings {
        kernel,
        ..kernel_recording::RecordingSettings::default()
    };
    let (data, runtime) = (data.to_owned(), Handle::current());
    let start = move || {
        let store = Store::local(&data, runtime).map_err(|error| error.to_string())?;
        KernelRecording::start(&settings, store).map_err(|error| error.to_string())
    };
    Ok(spawn_blocking(start)
        .await?
        .inspect_err(|error| say!("the kernel is not recorded: {error}"))
        .ok())
}

fn announce(options: &DemoOptions, pids: &[(&'static str, u32)]) {
    let names: Vec<String> = pids
        .iter()
        .map(|(role, pid)| format!("{role} {pid}"))
        .collect();
    say!("started {} and a client", names.join(", "));
    say!(
        "{} requests per second for {} s, recording {}",
        options.rate_per_s,
        options.seconds,
        options.burst_config
    );
    let seconds = options.seconds;
    // Ends with the runtime.
    tokio::spawn(async move {
        let every = Duration::from_secs(5);
        let mut elapsed = every;
        while elapsed.as_secs_f64() < seconds {
            tokio::time::sleep(every).await;
            say!("  {} s of {seconds} s", elapsed.as_secs());
            elapsed += every;
        }
    });
}

pub(super) fn seconds_since_epoch() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
