//! The command line of the binary, and `all`: every role at once, supervised.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::fault::Fault;
use crate::fleet::{Fleet, FleetError, FleetOptions};
use crate::link::Mix;
use crate::notice::notice;
use crate::report::LoadReport;
use crate::role::{Role, Supervision, refuse, run_line};
use crate::stop::Stop;

/// Exit status after SIGINT or SIGTERM: 130, as shells report SIGINT.
const INTERRUPTED: u8 = 130;

/// A newsfeed of several processes, annotated with the Stroboscope SDK.
#[derive(Debug, Parser)]
#[command(name = "newsfeed", version)]
struct Line {
    #[command(flatten)]
    supervision: Supervision,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start every role on free loopback ports, run the load, and stop them.
    All(AllOptions),
    #[command(flatten)]
    Role(Role),
}

#[derive(Debug, clap::Args)]
struct AllOptions {
    /// Requests per second, on average.
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// Length of the load, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Percentage of users per kind of link.
    #[arg(long, default_value_t = Mix::default())]
    mix: Mix,
    /// Seed of start times and users; the same seed makes the same requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Share of requests to copy, 0 to 1, to a second web server and ranker, where they explore
    /// tradeoffs.
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<f64>,
    /// Fault to inject, as POINT=+DURATION[@PERCENT%], or POINT[@PERCENT%] if it takes no duration;
    /// repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// URL of the collector; without one the processes record nothing.
    #[arg(long, env = "STROBOSCOPE_COLLECTOR")]
    collector: Option<String>,
    /// Burst config, such as 0b11100 or 256ms/1024ms.
    #[arg(long, env = "STROBOSCOPE_BURST_CONFIG")]
    burst_config: Option<String>,
    /// Requests to record: burst, follow or a ratio.
    #[arg(long, env = "STROBOSCOPE_SAMPLE")]
    sample: Option<String>,
    /// Print the report as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command line `args` (without the program's own name). The status is 2 for bad flags and
/// 1 for an error. That of `all` is also 1 if a request failed or none succeeded, and 130 after a
/// signal. A role exits the process as [`run_role`](crate::run_role) describes.
pub fn run<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let line = std::iter::once(OsString::from("newsfeed")).chain(args.into_iter().map(Into::into));
    match Line::try_parse_from(line) {
        Ok(Line {
            command: Command::Role(role),
            supervision,
        }) => run_line(role, &supervision),
        Ok(Line {
            command: Command::All(options),
            ..
        }) => match run_all(options) {
            Ok(status) => status,
            Err(error) => {
                notice(format_args!("newsfeed all: {error}"));
                ExitCode::FAILURE
            }
        },
        Err(error) => refuse(&error),
    }
}

/// Reasons for which `newsfeed all` fails without a report.
#[derive(Debug, thiserror::Error)]
enum AllError {
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("cannot print the report: {0}")]
    Report(std::io::Error),
}

fn run_all(options: AllOptions) -> Result<ExitCode, AllError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // From here on, a signal stops the fleet before it ends this process.
        let stop = Stop::on_signals(false)?;
        let json = options.json;
        let fleet_options = fleet_options(options)?;
        let mut fleet = tokio::select! {
            // Dropping a half-started fleet kills its processes.
            fleet = Fleet::start(fleet_options) => fleet?,
            () = stop.wait() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        for (role, pid) in fleet.pids() {
            notice(format_args!("started {role} pid {pid}"));
        }
        let result = tokio::select! {
            report = fleet.run_load() => Some(report),
            () = stop.wait() => None,
        };
        for stopped in fleet.stop().await.iter().filter(|stopped| !stopped.clean) {
            notice(format_args!(
                "the {} (pid {}) did not stop cleanly: {}",
                stopped.role, stopped.pid, stopped.status
            ));
        }
        match result {
            Some(report) => show(&report?, json).map_err(AllError::Report),
            None => Ok(ExitCode::from(INTERRUPTED)),
        }
    })
}

fn fleet_options(options: AllOptions) -> Result<FleetOptions, std::io::Error> {
    Ok(FleetOptions {
        collector: options.collector,
        burst_config: options.burst_config,
        sample: options.sample,
        faults: options.faults.iter().map(Fault::to_string).collect(),
        rate_per_s: options.rate,
        seconds: options.seconds,
        mix: Some(options.mix.to_string()),
        seed: options.seed,
        duplicate: options.duplicate,
        ..FleetOptions::new(std::env::current_exe()?)
    })
}

fn show(report: &LoadReport, json: bool) -> io::Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::to_string(report)?)?;
    } else {
        write!(stdout, "{report}")?;
    }
    stdout.flush()?;
    Ok(if report.failed == 0 && report.ok > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
