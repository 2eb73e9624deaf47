//! Runs the demo once: starts everything, applies the load, stops everything, analyses the
//! recording.

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
use super::fleet::{self, LoadOutcome};
use super::report::Report;
use stroboscope_query::QueryError;
use stroboscope_reports::stderr::say;
use stroboscope_server::collect::{Collector, CollectorError, CollectorSettings};
use stroboscope_server::grpc::ListenAddresses;
use stroboscope_server::ingest::{Options, Stop};
use stroboscope_server::kernel_recording::{self, KernelRecording};
use stroboscope_server::net::NetSettings;
use stroboscope_server::redact::RedactSettings;
use stroboscope_store::limits::Limits;
use stroboscope_store::tables::Store;

/// Options of one run of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Directory in which this run creates its own subdirectory.
    pub data: PathBuf,
    /// Mean number of requests per second.
    pub rate_per_s: f64,
    /// Duration of the load, in seconds.
    pub seconds: f64,
    /// Burst-config as text, such as `256ms/1024ms`.
    pub burst_config: String,
    /// Faults of the newsfeed, such as `store.read=+5ms`.
    pub faults: Vec<String>,
    /// Share of requests, 0 to 1, that are copied to a second web server and ranker to explore
    /// tradeoffs; `None` for no copies.
    pub duplicate: Option<f64>,
    /// True to also record the kernel's side of the newsfeed's processes and of this process.
    pub kernel: bool,
}

/// Reasons for which a run of the demo fails.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The program cannot find its own executable, or cannot handle signals.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    /// A task of this program panicked or was cancelled.
    #[error("cannot go on: {0}")]
    Part(#[from] JoinError),
    /// The burst-config is invalid.
    #[error(transparent)]
    BurstConfig(#[from] BurstConfigError),
    /// The burst-config never records.
    #[error(
        "burst-config {0} never records, and there would be nothing to show; take one that does, such as \
         256ms/1024ms or always"
    )]
    NeverRecords(String),
    /// A process of the newsfeed failed, or an option of the newsfeed is invalid.
    #[error("the newsfeed: {0}")]
    Fleet(#[from] FleetError),
    /// The collector failed.
    #[error(transparent)]
    Collector(#[from] CollectorError),
    /// A flush failed, or a thread of the collector panicked.
    #[error("the collected data could not be put into the store: {0}")]
    Flush(String),
    /// The analysis failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The ranker is unreachable, or its load has an impossible rate or length.
    #[error(transparent)]
    RankLoad(#[from] RankLoadError),
    /// A request to the ranker failed.
    #[error("the ranker does not answer: {0}")]
    Ranking(String),
    /// The recording is too small for a model of the ranker's tradeoffs.
    #[error("too little was recorded about tradeoffs: {0}")]
    NotLearned(#[from] NotLearned),
    /// The recording has no tradeoffs of the ranker.
    #[error("nothing was recorded about tradeoffs")]
    NothingExplored,
}

/// Result of one run of the demo.
#[derive(Debug)]
pub enum Outcome {
    /// Report of a run that was not interrupted.
    Report(Box<Report>),
    /// Number of the signal that ended the run.
    Interrupted(i32),
}

/// Runs the demo. Leaves none of the started processes running in any case.
///
/// # Errors
/// Returns an error if an option is invalid, if a process or the collector fails, or if the
/// recording cannot be analysed.
pub fn run(options: &DemoOptions, runtime: &Runtime) -> Result<Outcome, DemoError> {
    let config = BurstConfig::parse(&options.burst_config)?.config;
    if config == BurstConfig::NEVER {
        return Err(DemoError::NeverRecords(options.burst_config.clone()));
    }
    // Reject bad options before anything is started or created.
    fleet_options(options, String::new())?.check()?;
    let data = options.data.join(format!("demo-{}", seconds_since_epoch()));
    let load = match runtime.block_on(record(options, &data))? {
        LoadOutcome::Report(load) => load,
        LoadOutcome::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
    };
    say!("stopped; analysing the recording");
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

/// Starts a collector and the newsfeed, runs the load, and stops both.
async fn record(options: &DemoOptions, data: &Path) -> Result<LoadOutcome, DemoError> {
    // From here on, SIGINT and SIGTERM no longer end this process. Until the load ends, they stop
    // everything started; afterwards they have no effect.
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
    // After any result of the load, flush the acknowledged data into the store, and stop listening.
    collector
        .stop(Stop::Flush)
        .await
        .map_err(DemoError::Flush)?;
    Ok(load?)
}

/// Returns the settings of a collector that serves only the demo.
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
        forward: None,
        burst_config: None,
        doors: NetSettings::default(),
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

/// Starts to record the kernel's side of this process and of those that it starts. If that fails,
/// prints the reason and returns `None`: the demo then runs without it.
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
    // The task ends after its last line, or with the runtime.
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
