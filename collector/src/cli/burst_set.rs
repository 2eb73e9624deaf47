//! The `burst set` subcommand.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Runtime;

use super::ask::{HttpArguments, HttpClient, Response};
use stroboscope_burst::ParsedConfig;
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_reports::arguments::{config_of, parse_config, parse_duration};
use stroboscope_reports::output::{print, say};
use stroboscope_reports::{Failure, Status};
use stroboscope_server::http::{Adoption, Other};

/// Timeout for each attempt to connect to the collector, each read and each write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a response and its head, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Interval between two requests for the reports of processes.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Set the burst-config of all processes that ship to a collector
///
/// Processes that receive it in time switch at the same instant, also those behind agents. Set it
/// at the gateway of a fleet. With --wait, exits with status 0 once every live process has reported
/// that it applies the config. If the time runs out first, lists up to 50 of the other processes,
/// and exits with status 1. Live processes are those with this SDK that have not ended, and sent a
/// batch in the last 150 s. Sends the token in STROBOSCOPE_TOKEN if it is set, which needs the role
/// `control`, and with --wait or --json also `read`.
#[derive(Debug, Args)]
pub(super) struct BurstSet {
    /// Burst configuration, such as 4ms/32ms, 0b11100, always or off
    #[arg(long, value_name = "CONFIG", value_parser = parse_config)]
    config: ParsedConfig,
    /// Wait for all live processes to apply it, at most this long
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s", value_parser = parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    collector: HttpArguments,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl BurstSet {
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let config = format!("{:#x}", config_of(&self.config).bits());
        let until = Instant::now() + self.wait.unwrap_or_default();
        let client = self.collector.client()?;
        let path = "/burst-config";
        let answer = client.post(path, &config, PATIENCE, ANSWER_BYTES_MAX);
        let said = accepted(&client, path, answer.map_err(Failure::of)?)?;
        if self.wait.is_none() && !self.json {
            print(&format!("burst-config {}", said.trim_end()))?;
            return Ok(Status::Done);
        }
        let set = look(&client)?;
        let mut adoption = set.clone();
        let has_ended = |adoption: &Adoption| adoption.others_count() == 0;
        while self.wait.is_some() && !has_ended(&adoption) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
            adoption = look(&client)?;
            if adoption.at_ns != set.at_ns {
                return Err(Failure::new(format!(
                    "another change to {} replaced this one",
                    adoption.burst_config.as_deref().unwrap_or("none")
                )));
            }
        }
        if self.json {
            print(&serde_json::to_string_pretty(&adoption).map_err(Failure::of)?)?;
        } else {
            print(&adoption.to_string())?;
        }
        if self.wait.is_none() || has_ended(&adoption) {
            return Ok(Status::Done);
        }
        for other in &adoption.others {
            say!("{}", line(other));
        }
        let rest = adoption.others_count() - adoption.others.len();
        if rest > 0 {
            say!("and {}", counted(rest as u64, "other process"));
        }
        Ok(Status::Partly)
    }
}

fn look(client: &HttpClient) -> Result<Adoption, Failure> {
    let path = "/api/burst-config";
    let answer = client.ask(path, PATIENCE, ANSWER_BYTES_MAX);
    let body = accepted(client, path, answer.map_err(Failure::of)?)?;
    serde_json::from_str(&body).map_err(|error| {
        Failure::new(format!(
            "{path} of the collector at {} cannot be read ({error}): is it of another version?",
            client.address()
        ))
    })
}

/// Returns the body of a response, or its error.
fn accepted(client: &HttpClient, path: &str, answer: Response) -> Result<String, Failure> {
    let http = client.address();
    match answer.status {
        200 => Ok(answer.body),
        404 => Err(Failure::new(format!(
            "the server at {http} is not a collector's port for pages (no {path}): give that port with --http"
        ))),
        status => Err(Failure::new(format!(
            "the collector at {http} answers {status}: {}",
            answer.body.trim_end()
        ))),
    }
}

/// Describes a process that has not reported that it applies the config.
fn line(other: &Other) -> String {
    let Other {
        service, host, pid, ..
    } = other;
    let quiet = duration(other.quiet_ns as f64);
    let config = match (&other.burst_config, other.overlap) {
        (Some(config), Some(overlap)) => format!(
            "recorded by {config}, in {} of the fleet's bursts",
            percent(overlap)
        ),
        _ => "has not reported its burst-config".to_owned(),
    };
    let heard = if other.is_heard_since {
        format!("when it sent its latest batch {quiet} ago")
    } else {
        format!("and has sent nothing since the change; its latest batch came {quiet} ago")
    };
    format!("{service} on {host}, process {pid}: {config} {heard}")
}
