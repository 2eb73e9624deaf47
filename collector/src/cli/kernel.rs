//! The `kernel record` subcommand, and the kernel arguments that it shares with `collect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use stroboscope_analysis::kernel::event::LossCounts;
use stroboscope_burst::{BurstConfig, ParsedConfig};
use stroboscope_kernel_model::{Facility, Processes};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::maintenance::RetentionArguments;
use stroboscope_render::humanise::counted;
use stroboscope_reports::arguments::{DataArguments, config_of, parse_config};
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};
use stroboscope_server::capabilities;
use stroboscope_server::forward::{ForwardSettings, Gateway, Uplink};
use stroboscope_server::grpc::BurstControl;
use stroboscope_server::ingest::{MaintenanceOptions, StoreMaintenance};
use stroboscope_server::kernel_recording::{
    KernelRecording, PreparedRecording, RecordingSettings, RecordingSummary,
};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::ledger::Checkpoint;
use stroboscope_store::maintenance::MaintenanceSettings;
use stroboscope_store::tables::Store;

/// Record the kernel's side of requests
///
/// See `stroboscope timeline` for the results.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(super) struct KernelVerb {
    #[command(subcommand)]
    verb: Kernel,
}

#[derive(Debug, Subcommand)]
enum Kernel {
    Record(Record),
}

/// Record system calls and scheduling during bursts, until interrupted
///
/// While a recorder runs, services with the SDK mark which request each thread works for. Other
/// programs can do so with one system call (see the README of the crate stroboscope-burst). Needs
/// root, or CAP_BPF and CAP_PERFMON. On kernels without BTF it uses tracefs, which needs root.
/// Writes events to the table `kernel` in the data directory every 5 s, also while a collector uses
/// the directory; then the collector's --keep and --keep-bytes apply to them. With --collector, the
/// recorder switches with the services to each burst-config that the collector sets. Without it,
/// the recorder keeps its own, and `timeline` reports differences.
#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(flatten)]
    data: DataArguments,
    /// Burst configuration, such as 4ms/32ms, 0b11100 or always. Use the services' own, so that
    /// both record the same time
    #[arg(
        long,
        value_name = "CONFIG",
        env = "STROBOSCOPE_BURST_CONFIG",
        hide_env_values = true,
        default_value = "4ms/32ms",
        value_parser = parse_config
    )]
    burst_config: ParsedConfig,
    #[command(flatten)]
    collector: CollectorArguments,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    retention: RetentionArguments,
    #[command(flatten)]
    what: KernelArguments,
}

/// Collector whose burst-config the recorder follows.
#[derive(Clone, Debug, Args)]
struct CollectorArguments {
    /// Follow the burst-config of this collector, gateway or agent: http://HOST:PORT,
    /// https://HOST:PORT or unix:/PATH, the address for gRPC. While there is no connection, the
    /// burst-config stays. With several, separated by commas, the recorder uses one at a time
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    collector: Vec<String>,
    /// Authority that signed the certificate of an https collector, as PEM. It is read again for
    /// each connection [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "collector")]
    collector_ca: Option<PathBuf>,
    /// File with the token for the collector, whose role is write. It is read again for each
    /// connection
    #[arg(long, value_name = "FILE", requires = "collector")]
    collector_token_file: Option<PathBuf>,
}

impl CollectorArguments {
    /// Returns the collectors; empty if the recorder follows none.
    fn gateways(&self) -> Result<Vec<Gateway>, Failure> {
        let settings = ForwardSettings {
            gateways: self.collector.clone(),
            flag: "--collector",
            ca: self.collector_ca.clone(),
            token: self.collector_token_file.clone(),
        };
        Gateway::all(&settings).map_err(Failure::of)
    }
}

/// Default of `--events-per-cpu`.
const EVENTS_PER_CPU: u32 = 1 << 15;

/// Selection of the kernel events to record.
#[derive(Clone, Debug, Args)]
pub(super) struct KernelArguments {
    /// Record only this process and the processes that it starts; repeatable. Without --pid, --name
    /// and --cgroup, all processes are recorded
    #[arg(long = "pid", value_name = "PID", group = "whom")]
    pids: Vec<u32>,
    /// Record only processes with this name (of the program's file, up to 15 bytes), including
    /// later ones, and the processes that they start; repeatable
    #[arg(long = "name", value_name = "NAME", group = "whom")]
    names: Vec<String>,
    /// Record only the processes of this control group, a directory below /sys/fs/cgroup, and the
    /// processes that they start
    #[arg(long, value_name = "DIRECTORY", group = "whom")]
    cgroup: Option<PathBuf>,
    /// Record only the beginnings of system calls. Costs about half as much, but does not record
    /// their durations
    #[arg(long)]
    enter_only: bool,
    /// Capacity of each processor's buffer in the kernel, in events of 64 bytes; limited to 64
    /// through 16777216, and rounded up to a power of two
    #[arg(long, value_name = "COUNT", default_value_t = EVENTS_PER_CPU)]
    events_per_cpu: u32,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "a number of seconds above 0, such as 10".to_owned();
    let seconds = text.parse::<f64>().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(seconds).ok();
    duration
        .filter(|duration| !duration.is_zero())
        .ok_or_else(wrong)
}

impl KernelArguments {
    /// Reports whether any argument differs from its default. An argument that is merely present
    /// does not count, because the output of `collect config`, which is a file of settings,
    /// contains the default of `--events-per-cpu`.
    pub(super) fn is_anything(&self) -> bool {
        !self.pids.is_empty()
            || !self.names.is_empty()
            || self.cgroup.is_some()
            || self.enter_only
            || self.events_per_cpu != EVENTS_PER_CPU
    }

    pub(super) fn settings(self, burst_config: BurstConfig) -> RecordingSettings {
        let processes = match (self.pids.is_empty(), self.names.is_empty(), self.cgroup) {
            (false, ..) => Processes::Trees(self.pids),
            (_, false, _) => Processes::Named(self.names),
            (_, _, Some(directory)) => Processes::Cgroup(directory),
            _ => Processes::All,
        };
        let kernel = stroboscope_kernel_model::Settings {
            burst_config,
            processes,
            events_per_cpu: self.events_per_cpu,
            exits: !self.enter_only,
            ..stroboscope_kernel_model::Settings::default()
        };
        RecordingSettings {
            kernel,
            ..RecordingSettings::default()
        }
    }
}

/// Describes a started recording. `changes` states whether the burst-config can change.
pub(super) fn started_text(
    recording: &KernelRecording,
    config: BurstConfig,
    changes: &str,
) -> String {
    let by = match recording.facility() {
        Facility::Tracefs => "tracefs (full cost even between bursts)",
        _ => "eBPF",
    };
    let memory_mib = recording.memory_bytes() as f64 / f64::from(1 << 20);
    format!(
        "recording the kernel by {by} in bursts of {config}, {memory_mib:.1} MiB of buffers in the kernel; the \
         burst-config {changes}"
    )
}

/// Summarises a finished recording.
pub(super) fn summary_text(summary: &RecordingSummary) -> String {
    let RecordingSummary {
        events,
        windows,
        chunks,
        bytes,
        lost,
        skipped,
        unwritten,
    } = summary;
    let LossCounts {
        enters,
        exits,
        switches,
        others,
    } = lost;
    let mut text = format!(
        "stored {} of {} in {}, {:.1} MiB; {} lost",
        counted(*events, "kernel event"),
        counted(*windows, "window"),
        counted(*chunks, "file"),
        *bytes as f64 / f64::from(1 << 20),
        lost.total()
    );
    if lost.total() > 0 {
        text.push_str(&format!(
            " ({enters} enters, {exits} exits, {switches} switches, {others} others): larger --events-per-cpu, or fewer \
             processes"
        ));
    }
    if skipped.total() > 0 {
        text.push_str(&format!(
            "; {} not seen: the kernel skips a program that is still running on a processor",
            skipped.total()
        ));
    }
    if *unwritten > 0 {
        text.push_str(&format!("; {unwritten} could not be written"));
    }
    text
}

impl KernelVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        match self.verb {
            Kernel::Record(verb) => verb.run(runtime),
        }
    }
}

/// Starts to record into a data directory.
pub(super) fn start(
    data: &std::path::Path,
    prepared: PreparedRecording,
    runtime: Handle,
) -> Result<KernelRecording, Failure> {
    DataDir::refuse_foreign(data).map_err(Failure::of)?;
    DataDir::create(data).map_err(Failure::of)?;
    let store = Store::local(data, runtime).map_err(Failure::of)?;
    prepared.start(store).map_err(Failure::of)
}

/// Starts to delete old data of a directory. Fails if a collector uses it. If a collector starts
/// later, its own settings apply.
fn maintain(
    data: &std::path::Path,
    retention: &RetentionArguments,
    runtime: Handle,
) -> Result<StoreMaintenance, Failure> {
    DataDir::refuse_foreign(data).map_err(Failure::of)?;
    let directory = DataDir::create(data).map_err(Failure::of)?;
    let lock = directory.lock().map_err(|error| {
        let failure = Failure::of(error);
        let remedy = "without --keep and --keep-bytes, the collector's apply".to_owned();
        Failure {
            remedy: Some(failure.remedy.unwrap_or(remedy)),
            ..failure
        }
    })?;
    Checkpoint::load(&**directory.disk(), data).map_err(Failure::of)?;
    drop(lock);
    let store = Store::local(data, runtime).map_err(Failure::of)?;
    let options = MaintenanceOptions {
        settings: MaintenanceSettings {
            compacts: false,
            ..retention.settings_without_collector(data)
        },
        ..MaintenanceOptions::default()
    };
    StoreMaintenance::start(directory, store, options).map_err(Failure::of)
}

impl Record {
    fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let config = config_of(&self.burst_config);
        let gateways = self.collector.gateways()?;
        let prepared = PreparedRecording::new(self.what.settings(config)).map_err(Failure::of)?;
        capabilities::drop_all();
        let _entered = runtime.enter();
        // Install the handlers first, so that a signal while programs are loaded also stops the
        // recorder in order.
        let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::of)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(Failure::of)?;
        let data = self.data.local()?;
        let _maintenance = match self.retention.is_anything() {
            true => Some(maintain(data, &self.retention, runtime.handle().clone())?),
            false => None,
        };
        let recording = start(data, prepared, runtime.handle().clone())?;
        let followed = self.collector.collector.join(", ");
        let changes = match gateways.is_empty() {
            true => "does not change without --collector".to_owned(),
            false => format!("follows that of {followed}"),
        };
        print(&started_text(&recording, config, &changes))?;
        let switch = recording.config_switch();
        runtime.block_on(async {
            let control = BurstControl::of_agent(&followed);
            let uplink = (!gateways.is_empty()).then(|| Uplink::start(gateways, control.clone()));
            let follow = control.follow_config(|config, at_ns| switch.switch(config, at_ns));
            let until = async {
                match self.seconds {
                    Some(seconds) => tokio::time::sleep(seconds).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
                () = until => {}
                () = follow => {}
            }
            drop(uplink);
        });
        let summary = recording.stop();
        print(&summary_text(&summary))?;
        Ok(if summary.unwritten > 0 {
            Status::Partly
        } else {
            Status::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        what: KernelArguments,
    }

    #[test]
    fn old_data_of_another_collector_stays() {
        #[derive(Debug, Parser)]
        struct Arguments {
            #[command(flatten)]
            retention: RetentionArguments,
        }
        let parsed = |more: &[&str]| {
            let all = ["record"].iter().chain(more);
            Arguments::try_parse_from(all).unwrap().retention
        };
        assert!(!parsed(&[]).is_anything() && parsed(&["--keep-bytes", "1GiB"]).is_anything());
        let retention = parsed(&["--keep", "1h"]);
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let maintain = || maintain(directory.path(), &retention, runtime.handle().clone());
        let data = DataDir::create(directory.path()).unwrap();
        let lock = data.lock().unwrap();
        let failure = maintain().unwrap_err().to_string();
        assert!(
            failure.contains("--keep-bytes, the collector's apply"),
            "{failure}"
        );
        drop(lock);
        let _maintenance = maintain().unwrap();
        assert!(data.lock().is_ok(), "readers can convert the log meanwhile");
    }

    #[test]
    fn arguments_that_only_a_recording_uses_are_noticed() {
        let check = |arguments: &[&str], is_anything: bool| {
            let all = ["collect"].iter().chain(arguments);
            let Arguments { what } = Arguments::try_parse_from(all).unwrap();
            assert_eq!(what.is_anything(), is_anything, "{arguments:?}");
        };
        check(&[], false);
        check(&["--events-per-cpu", "32768"], false);
        check(&["--events-per-cpu", "65536"], true);
        check(&["--pid", "1"], true);
        check(&["--enter-only"], true);
    }
}
