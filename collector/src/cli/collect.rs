//! The `collect` subcommand.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use stroboscope_reports::output::say;

use clap::Args;
use rustix::fs::Mode;
use stroboscope_burst::{BurstConfig, ParsedConfig};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use super::forward::ForwardArguments;
use super::log::LogArguments;
use super::maintenance::MaintenanceArguments;
use super::memory::{MemoryArguments, MemorySplit};
use super::net::{NetArguments, check_origins};
use super::own_traces::{OwnTracesTo, checked_own_traces, parse_own_traces, start_own_traces};
use super::pages::{ReaderPorts, served_site};
use super::settings::SettingsArguments;
use super::{kernel, notify};
use stroboscope_analysis::label::DEFAULT_MAX_LABELS;
use stroboscope_remote::address::Remote;
use stroboscope_remote::publish::{PublishSettings, Publisher};
use stroboscope_render::humanise::counted;
use stroboscope_reports::arguments::{
    DataArguments, config_of, parse_config, parse_duration, parse_max_segments,
};
use stroboscope_reports::output::print;
use stroboscope_reports::registry::pages;
use stroboscope_reports::results::tradeoffs::read_policy;
use stroboscope_reports::{Failure, Status};
use stroboscope_server::capabilities;
use stroboscope_server::collect::{Collector, CollectorSettings, SiteMaker};
use stroboscope_server::grpc::{BurstControl, ListenAddresses};
use stroboscope_server::ingest::{Options, Stop};
use stroboscope_server::kernel_recording::{KernelRecording, PreparedRecording};
use stroboscope_server::live::RECENT;
use stroboscope_server::net::CorsOrigin;
use stroboscope_server::redact::{RedactSettings, Rule};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::limits::Limits;
use stroboscope_store::publishing::PublishCounters;
use stroboscope_web::store_verbs::StoreVerbs;

/// Receive what services record, until interrupted
///
/// A batch is acknowledged when it is in the write-ahead log and synced, and is written as Parquet
/// to the data directory soon after. The pages of the running collector show the causal model of
/// about the last hour (--live-window). Interrupt (ctrl-C) or terminate it to stop; however the
/// collector ends, everything that it acknowledged is kept.
#[derive(Debug, Args)]
pub(super) struct Collect {
    #[command(flatten)]
    settings: SettingsArguments,
    #[command(flatten)]
    data: DataArguments,
    /// Address for gRPC; port 0 picks a free port and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4317")]
    listen: SocketAddr,
    /// Unix socket on which to accept gRPC as well
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Octal mask of permissions that the collector's files, directories and unix socket do not
    /// get. 077 restricts them to the collector's user. 000 lets all users reach the socket, 007
    /// those of its group
    #[arg(long, value_name = "MASK", default_value = "077", value_parser = parse_umask)]
    umask: Mode,
    /// Address for OTLP over HTTP, at /v1/traces and /v1/logs; `none` disables it. --listen accepts
    /// OTLP over gRPC
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4318", value_parser = parse_door)]
    otlp_http: Door,
    /// Origin whose pages may send OTLP over HTTP from browsers, such as https://app.example.com;
    /// `*` allows all. Repeatable. By default, browsers send only from the collector's own origin
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<CorsOrigin>,
    /// Address for pages and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4319")]
    http: SocketAddr,
    /// Burst configuration for all processes, such as 4ms/32ms or 0b11100. By default, each process
    /// keeps its own
    #[arg(long, value_name = "CONFIG", value_parser = parse_config)]
    burst_config: Option<ParsedConfig>,
    /// Policy by which services decide about data-quality tradeoffs, as `stroboscope tradeoffs
    /// learn` writes it. A changed file is read again; an invalid one is reported and not sent
    #[arg(long, value_name = "FILE")]
    tradeoffs: Option<PathBuf>,
    /// Maximum interval between flushes to Parquet
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    flush_interval: Duration,
    /// Also record the kernel's side of requests on this machine, in the same bursts
    /// (--burst-config, else STROBOSCOPE_BURST_CONFIG, else 4ms/32ms; it follows each change). If
    /// that is not permitted, prints what is missing and collects without it
    #[arg(long)]
    kernel: bool,
    #[command(flatten)]
    what: kernel::KernelArguments,
    /// Consider a trace finished, and add it to the live model, after this idle time. Records that
    /// arrive in the next five to ten minutes go into the store, but not into the live model
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    live_quiet: Duration,
    /// Length of the sliding window of time that the live model covers, at least 10m. Requests
    /// leave the model, with the relations that they refuted, at an age of 80 % to 100 %
    /// of this length
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_live_window)]
    live_window: Duration,
    /// Maximum number of segments that the live model distinguishes; it leaves out and counts the
    /// others. COUNT segments that all occur together take COUNT² × 35 bytes in each of up to 13
    /// models
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MAX_LABELS, value_parser = parse_max_segments)]
    max_segments: usize,
    /// Disable the live model
    #[arg(long)]
    no_live_model: bool,
    /// Redact attributes by key, and tracked items by name, before they are written: `drop:PATTERN`
    /// removes them, `hash:PATTERN` replaces their value by a keyed hash, `keep:PATTERN` keeps
    /// them; `*` matches any text. Repeatable; the first matching rule applies. `mask:REGEX`
    /// replaces matches in all texts and whole numbers by `****`, except in attributes that an
    /// earlier rule keeps; `mask:{NAME}` has the named pattern `bearer`, `card`, `email` or `jwt`
    #[arg(long, value_name = "RULE")]
    redact: Vec<Rule>,
    /// Key for hashing values, 16 bytes or more. By default, one is generated in the data directory
    #[arg(long, value_name = "FILE", requires = "redact")]
    redact_key: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryArguments,
    /// Also publish the store to an object store, s3://BUCKET/PREFIX (credentials, region and
    /// endpoint from the AWS_… variables) or file:///DIRECTORY. While it is unreachable, the
    /// collector continues, and --keep deletes no unpublished hours. Several collectors may publish
    /// to one URL, each from its own data directory
    #[arg(long, value_name = "URL")]
    publish: Option<String>,
    /// Delete published hours that ended longer ago than this. By default, published data stays
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "publish")]
    publish_keep: Option<Duration>,
    #[command(flatten)]
    forward: ForwardArguments,
    #[command(flatten)]
    care: MaintenanceArguments,
    #[command(flatten)]
    readers: ReaderPorts,
    #[command(flatten)]
    doors: NetArguments,
    #[command(flatten)]
    log: LogArguments,
    /// Trace the collector itself with its own SDK, and ship the traces to `self` or to the address
    /// of another collector, http://HOST:PORT or unix:/PATH. Shipping itself is not traced. The
    /// STROBOSCOPE_… variables configure the SDK, as for services
    #[arg(long, value_name = "ADDRESS", value_parser = parse_own_traces)]
    own_traces: Option<OwnTracesTo>,
}

/// Parses the length of the live model's window. Rejects less than 10 minutes, which is twice the
/// time for which a request counts as recent.
fn parse_live_window(text: &str) -> Result<Duration, String> {
    let window = parse_duration(text)?;
    if window < 2 * RECENT {
        return Err(format!("{text} is too short: at least 10m"));
    }
    Ok(window)
}

fn parse_umask(text: &str) -> Result<Mode, String> {
    let mask = u32::from_str_radix(text, 8).ok();
    let mask = mask.and_then(|bits| Mode::from_bits(bits).filter(|_| bits <= 0o777));
    // The collector itself needs its own permissions.
    mask.filter(|mask| !mask.intersects(Mode::RWXU))
        .ok_or_else(|| "three octal digits, the first of them 0, such as 077 or 022".to_owned())
}

/// Prints announcements on standard output, or logs them as JSON for programs.
#[derive(Clone, Copy, Debug)]
struct Announcement(LogArguments);

impl Announcement {
    fn door(self, door: &str, address: &str, text: &str) -> Result<(), Failure> {
        if self.0.is_json() {
            tracing::info!(door, address, "listening");
            return Ok(());
        }
        print(text)
    }

    fn text(self, text: &str) -> Result<(), Failure> {
        if self.0.is_json() {
            tracing::info!("{text}");
            return Ok(());
        }
        print(text)
    }
}

/// Starts to record the kernel. If that fails, reports the reason and returns `None`.
async fn start_recording(
    announcement: Announcement,
    data: PathBuf,
    (config, prepared): (BurstConfig, PreparedRecording),
) -> Result<Option<KernelRecording>, Failure> {
    let runtime = Handle::current();
    let started = spawn_blocking(move || kernel::start(&data, prepared, runtime))
        .await
        .map_err(Failure::of)?;
    match started {
        Ok(recording) => {
            announcement.text(&kernel::started_text(
                &recording,
                config,
                "follows that of the services",
            ))?;
            Ok(Some(recording))
        }
        Err(error) => {
            if announcement.0.is_json() {
                tracing::warn!(%error, "the kernel is not recorded");
            } else {
                say!("the kernel is not recorded: {error}");
            }
            Ok(None)
        }
    }
}

/// Returns the burst-config for kernel recording: `asked` (from `--burst-config`), else that in
/// STROBOSCOPE_BURST_CONFIG, else the default.
fn kernel_config(asked: Option<BurstConfig>) -> Result<BurstConfig, Failure> {
    let of_environment = || {
        std::env::var("STROBOSCOPE_BURST_CONFIG")
            .ok()
            .filter(|text| !text.is_empty())
    };
    match (asked, of_environment()) {
        (Some(config), _) => Ok(config),
        (None, Some(text)) => {
            let parsed = parse_config(&text);
            let parsed = parsed
                .map_err(|error| Failure::new(format!("STROBOSCOPE_BURST_CONFIG: {error}")))?;
            Ok(config_of(&parsed))
        }
        (None, None) => Ok(BurstConfig::DEFAULT),
    }
}

/// Sends the policy to services whenever its file changes. Rejects an invalid file with a warning.
async fn follow_policy(path: PathBuf, control: BurstControl) {
    let changed = || {
        std::fs::metadata(&path)
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let mut known = changed();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = changed();
        if now.is_none() || now == known {
            continue;
        }
        known = now;
        match read_policy(&path) {
            Ok(policy) => {
                tracing::info!(version = policy.version, "services use the new policy");
                control.set_tradeoffs(&policy);
            }
            Err(error) => tracing::warn!(%error, "services keep their current policy"),
        }
    }
}

/// Address to listen on; `None` disables the port.
#[derive(Clone, Copy, Debug)]
struct Door(Option<SocketAddr>);

fn parse_door(text: &str) -> Result<Door, std::net::AddrParseError> {
    match text {
        "none" => Ok(Door(None)),
        address => address.parse().map(|address| Door(Some(address))),
    }
}

impl Collect {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        rustix::process::umask(self.umask);
        let burst_config = self.burst_config.as_ref().map(config_of);
        // Prepare the kernel's recording first: it needs capabilities, which this thread drops
        // next.
        let kernel = self.prepared_recording(burst_config)?;
        capabilities::drop_all();
        runtime.block_on(async {
            // Install the handlers first, so that a signal during recovery also stops the collector
            // in order.
            let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::of)?;
            let mut terminated = signal(SignalKind::terminate()).map_err(Failure::of)?;
            let data = self.data.local()?.to_owned();
            DataDir::refuse_foreign(&data).map_err(Failure::of)?;
            // Report errors in the URL before the collector starts.
            let remote = self.publish.as_deref().map(Remote::open).transpose();
            let remote = remote.map_err(Failure::of)?;
            let keep = self.publish_keep;
            self.doors.check(&self.addresses())?;
            check_origins(&self.cors_origin, self.otlp_http.0.is_some())?;
            let announcement = Announcement(self.log);
            let own_traces =
                checked_own_traces(self.own_traces.as_ref(), self.unix.as_deref(), &self.doors)?;
            let scheme = self.doors.scheme();
            let publishing = remote
                .as_ref()
                .map(|_| Arc::new(PublishCounters::default()));
            let tradeoffs = self.tradeoffs.clone();
            let policy = tradeoffs.as_deref().map(read_policy).transpose()?;
            let readers = self.readers;
            let links: Vec<_> = [("/fleet", "Fleet")]
                .into_iter()
                .chain(self.doors.login())
                .collect();
            let memory = self.memory.split()?;
            memory.keep_within()?;
            let (queries, said) = (memory.queries(), memory.to_string());
            let mut settings = self.settings(burst_config, memory);
            let (of, runtime) = (data.clone(), Handle::current());
            let gateways = settings.forward.as_ref().map(|of| of.gateways.join(", "));
            if gateways.is_none() {
                settings.site = Some(SiteMaker::new(move || {
                    let verbs = StoreVerbs::of(&of, pages(), runtime.clone(), &queries);
                    let site = served_site(verbs, &links, readers, scheme, false);
                    site.map_err(|failure| failure.to_string())
                }));
            }
            settings.publishing = publishing.clone();
            if let Some(care) = &mut settings.intake.care {
                care.settings.publishing = publishing.clone();
            }
            let collector = Collector::start(settings).await.map_err(Failure::of)?;
            let following = tradeoffs.zip(policy).map(|(path, policy)| {
                let control = collector.control().clone();
                control.set_tradeoffs(&policy);
                tokio::spawn(follow_policy(path, control))
            });
            let publisher = match remote.zip(publishing) {
                None => None,
                Some((remote, counters)) => {
                    let settings = PublishSettings {
                        data: data.clone(),
                        remote,
                        keep,
                    };
                    let flushed = collector.intake().counters().clone();
                    let started = Publisher::start(settings, Handle::current(), flushed, counters);
                    Some(started.map_err(Failure::of)?)
                }
            };
            let address = collector.grpc_address().to_string();
            announcement.door("grpc", &address, &format!("collecting on grpc {address}"))?;
            if let Some(address) = collector.otlp_http_address() {
                let address = format!("{scheme}://{address}/v1/traces");
                announcement.door(
                    "otlp_http",
                    &address,
                    &format!("collecting OTLP on {address}"),
                )?;
            }
            if let Some(address) = collector.http_address() {
                let address = format!("{scheme}://{address}/");
                announcement.door("pages", &address, &format!("page on {address}"))?;
            }
            for (name, address) in collector.ports() {
                let address = format!("{scheme}://{address}/");
                announcement.door(name, &address, &format!("{name} API on {address}"))?;
            }
            announcement.text(&said)?;
            announcement.text(&match &gateways {
                None => format!("data in {}", data.display()),
                Some(gateways) => format!("forwarding to {gateways}; log in {}", data.display()),
            })?;
            let own_traces = start_own_traces(own_traces, &collector)?;
            let recording = match kernel {
                Some(kernel) => start_recording(announcement, data, kernel).await?,
                None => None,
            };
            let switching = recording.as_ref().map(|recording| {
                let (switch, control) = (recording.config_switch(), collector.control().clone());
                let follow = move |config, at_ns| switch.switch(config, at_ns);
                tokio::spawn(async move { control.follow_config(follow).await })
            });
            notify::ready();
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            notify::stopping();
            for task in following.iter().chain(&switching) {
                task.abort();
            }
            tracing::info!("stopping");
            if let Some(recording) = recording {
                let summary = spawn_blocking(|| recording.stop())
                    .await
                    .map_err(Failure::of)?;
                announcement.text(&kernel::summary_text(&summary))?;
            }
            // Stop own traces before the ports close: they may be shipped to one of them.
            spawn_blocking(|| drop(own_traces))
                .await
                .map_err(Failure::of)?;
            let counters = collector.intake().counters().clone();
            let totals = counters.totals();
            let stopped = collector.stop(Stop::Flush).await;
            if let Some(publisher) = publisher {
                let published = spawn_blocking(|| publisher.stop()).await;
                published.map_err(Failure::of)?;
            }
            stopped.map_err(Failure::new)?;
            let stored = totals.batches.get("stored").copied().unwrap_or(0);
            let of_otlp = match counters.otlp_requests.load(Relaxed) {
                0 => String::new(),
                requests => format!(" and {} of OTLP", counted(requests, "request")),
            };
            let action = if gateways.is_some() {
                "forwarded"
            } else {
                "stored"
            };
            announcement.text(&format!(
                "{action} {} in {}{of_otlp}",
                counted(totals.records, "record"),
                counted(stored, "batch")
            ))?;
            Ok(Status::Done)
        })
    }

    /// Returns the TCP addresses to listen on, each with the flag that sets it.
    fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let otlp_http = self.otlp_http.0.map(|address| ("--otlp-http", address));
        let others = [("--listen", self.listen), ("--http", self.http)];
        let others = others.into_iter().chain(otlp_http);
        others.chain(self.readers.addresses()).collect()
    }

    fn prepared_recording(
        &self,
        asked: Option<BurstConfig>,
    ) -> Result<Option<(BurstConfig, PreparedRecording)>, Failure> {
        if !self.kernel && self.what.is_anything() {
            return Err(Failure::new(
                "--pid, --name, --cgroup, --enter-only and --events-per-cpu are for --kernel"
                    .to_owned(),
            ));
        }
        if !self.kernel {
            return Ok(None);
        }
        let config = kernel_config(asked)?;
        let prepared = PreparedRecording::new(self.what.clone().settings(config));
        Ok(Some((config, prepared.map_err(Failure::of)?)))
    }

    fn settings(self, burst_config: Option<BurstConfig>, memory: MemorySplit) -> CollectorSettings {
        let mut intake = Options {
            flush_interval: self.flush_interval,
            live_quiet: (!self.no_live_model).then_some(self.live_quiet),
            live_window: self.live_window,
            live_max_segments: self.max_segments,
            care: Some(self.care.options()),
            ..Options::default()
        };
        memory.bound_intake(&mut intake);
        self.forward.bound_intake(&mut intake);
        let mut limits = Limits::default();
        memory.bound_requests(&mut limits);
        let readers = self.readers.addresses().count();
        let mut doors = self.doors.settings(memory, readers, self.unix.is_some());
        doors.cors_origins = self.cors_origin;
        CollectorSettings {
            data: self.data.data,
            listen: ListenAddresses {
                grpc: self.listen,
                unix: self.unix,
            },
            otlp_http: self.otlp_http.0,
            http: Some(self.http),
            site: None,
            forward: self.forward.settings(),
            burst_config,
            doors,
            redact: RedactSettings {
                rules: self.redact,
                key: self.redact_key,
            },
            intake,
            limits,
            publishing: None,
        }
    }
}
