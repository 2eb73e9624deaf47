//! The `demo` subcommand.

use std::process::ExitCode;
use stroboscope_reports::output::say;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_newsfeed::{Fault, FaultError};
use stroboscope_query::Bottleneck;
use tokio::runtime::Runtime;

use crate::demo::{
    self, DemoOptions, Outcome, Part, ROLE_VERB, Report, Scenario, ScenarioOutcome, Story, Verdict,
};
use stroboscope_reports::arguments::{DataArguments, parse_share};
use stroboscope_reports::output::{print, print_json};
use stroboscope_reports::{Failure, Status};
use stroboscope_store::data_dir::DataDir;

/// Run a newsfeed of five processes under load, record it in bursts, and explain it
///
/// Starts a collector and the newsfeed's processes on free loopback ports, runs a client against
/// them, stops everything, and reports what requests wait for. Leaves nothing running, also when
/// interrupted. The recording stays in its own subdirectory of the data directory.
#[derive(Debug, Args)]
pub(super) struct Demo {
    #[command(flatten)]
    data: DataArguments,
    /// Duration of the load, in seconds
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Requests per second, on average
    #[arg(long, default_value_t = 35.0)]
    rate: f64,
    /// Burst configuration: 256ms/1024ms, a mask such as 0b1100000000, or always
    #[arg(long, value_name = "CONFIG", default_value = "256ms/1024ms")]
    burst_config: String,
    /// Inject a fault into the newsfeed: POINT=+DURATION[@PERCENT%], such as store.read=+5ms@50%;
    /// repeatable. POINT is edge.proxy, web.render, web.partition (for every other user),
    /// web.late-retry, ranker.score, store.read or store.lock; client.small-count, web.read-again,
    /// web.call-loop, ranker.longer-loop, ranker.cache-miss, ranker.extra-call, store.one-shard and
    /// store.archive-shard take no duration
    #[arg(long = "fault", value_name = "FAULT", value_parser = parse_fault)]
    faults: Vec<String>,
    /// Send copies of this share of requests to a second web server and ranker, which explore what
    /// the ranker may leave out. `tradeoffs learn` learns from them
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    duplicate: Option<f64>,
    /// Also record the kernel's side of requests; needs root, or CAP_BPF and CAP_PERFMON
    #[arg(long)]
    kernel: bool,
    /// Run a scenario of data-quality tradeoffs or of slack instead of the newsfeed's load. Most
    /// scenarios take one to four minutes, and learn the ranker's tradeoff point first. --seconds,
    /// --rate, --burst-config, --fault, --duplicate and --kernel apply to the newsfeed only
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the newsfeed's role that a demo started this process for, and returns its exit status.
/// Returns `None` if this process is no role of the newsfeed.
pub(super) fn role() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == ROLE_VERB).then(|| stroboscope_newsfeed::run(args))
}

/// Checks that a text is a fault, and returns the text without surrounding spaces.
fn parse_fault(text: &str) -> Result<String, FaultError> {
    text.parse::<Fault>().map(|_| text.trim().to_owned())
}

/// Converts an error of the demo to a failure. Unwraps errors of queries, which may have advice.
fn failure(error: demo::DemoError) -> Failure {
    match error {
        demo::DemoError::Query(error) => Failure::of(error),
        other => Failure::of(other),
    }
}

impl Demo {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        DataDir::refuse_foreign(self.data.local()?).map_err(Failure::of)?;
        if let Some(scenario) = self.scenario {
            return self.tell(scenario, runtime);
        }
        let options = DemoOptions {
            data: self.data.local()?.to_owned(),
            rate_per_s: self.rate,
            seconds: self.seconds,
            burst_config: self.burst_config,
            faults: self.faults,
            kernel: self.kernel,
            duplicate: self.duplicate,
        };
        match demo::run(&options, runtime).map_err(failure)? {
            Outcome::Report(report) if self.json => print_json(&DemoReport::of(&report))?,
            Outcome::Report(report) => print(&report.to_string())?,
            Outcome::Interrupted(signal) => {
                say!("stroboscope: interrupted; everything was stopped");
                return Ok(Status::Interrupted(signal));
            }
        }
        Ok(Status::Done)
    }
}

impl Demo {
    fn tell(&self, scenario: Scenario, runtime: &Runtime) -> Result<Status, Failure> {
        let told = demo::run_scenario(scenario, self.data.local()?, runtime);
        match told.map_err(failure)? {
            ScenarioOutcome::Told(told) if self.json => print_json(&ScenarioSays::of(&told))?,
            ScenarioOutcome::Told(told) => print(&told.to_string())?,
            ScenarioOutcome::Interrupted(signal) => {
                say!("stroboscope: interrupted; everything was stopped");
                return Ok(Status::Interrupted(signal));
            }
        }
        Ok(Status::Done)
    }
}

/// Result of one or all scenarios.
#[derive(Debug, Serialize)]
struct ScenarioSays {
    processor: String,
    figures: Vec<ScenarioFigure>,
    data: String,
}

#[derive(Debug, Serialize)]
struct ScenarioFigure {
    what: String,
    value: String,
    number: Option<f64>,
    paper: Option<String>,
    /// True if the goal was met; null if the figure has no goal.
    met: Option<bool>,
}

impl ScenarioSays {
    fn of(told: &Story) -> Self {
        let figures = told.figures.iter().map(|figure| ScenarioFigure {
            what: figure.what.clone(),
            value: figure.value.clone(),
            number: figure.number,
            paper: figure.paper.clone(),
            met: figure.verdict.map(|verdict| verdict == Verdict::Met),
        });
        Self {
            processor: told.processor.clone(),
            figures: figures.collect(),
            data: told.data.display().to_string(),
        }
    }
}

/// Findings of the demo.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DemoReport {
    requests: u64,
    failed_requests: u64,
    processes: u64,
    burst_config: String,
    bursts: u64,
    /// Time in which both processes of a pair recorded, divided by the time in which at least one
    /// did, summed over all pairs. Only time in which both processes ran counts; null if no process
    /// of a pair recorded in such time.
    window_overlap: Option<f64>,
    complete_traces: u64,
    /// Number of traces without their root, mostly because the request began before the burst.
    fragments: u64,
    /// Number of traces that are incomplete for any other reason.
    incomplete_traces: u64,
    records: u64,
    lost_records: u64,
    missing_batches: u64,
    unsynchronised_hosts: Vec<String>,
    segments: usize,
    happens_before: usize,
    mutual_exclusions: usize,
    bottleneck: Option<String>,
    /// Operation that requests wait for most: one for all requests, or one for each main root
    /// operation if requests of main ones wait for different operations. At most three root
    /// operations are main ones, each with at least 5 % of the total latency.
    bottlenecks: Vec<Bottleneck>,
    /// Circumstances that make these figures misleading.
    circumstances: Vec<String>,
    /// Operations, largest share of the critical path first.
    operations: Vec<OperationPart>,
    data: String,
}

/// Share of an operation in the critical path.
#[derive(Debug, Serialize, JsonSchema)]
struct OperationPart {
    operation: String,
    /// Time on critical paths as a share of the time of all requests, 0 to 1.
    share_of_time: f64,
    mean_share: f64,
    mean_ns: u64,
}

impl DemoReport {
    fn of(report: &Report) -> Self {
        let (found, recorded) = (&report.findings, &report.findings.recorded);
        let part = |part: Part| OperationPart {
            operation: part.operation,
            share_of_time: part.share_of_time,
            mean_share: part.mean_share,
            mean_ns: part.mean_ns,
        };
        Self {
            requests: report.requests,
            failed_requests: report.failed,
            processes: recorded.processes,
            burst_config: report.burst_config.clone(),
            bursts: recorded.bursts,
            window_overlap: recorded.window_overlap,
            complete_traces: found.complete,
            fragments: found.fragments,
            incomplete_traces: found.incomplete,
            records: recorded.records,
            lost_records: recorded.lost_records(),
            missing_batches: recorded.missing_batches,
            unsynchronised_hosts: found
                .kernel_clocks
                .unsynchronised()
                .map(ToString::to_string)
                .collect(),
            segments: found.labels.len(),
            happens_before: found.happens_before,
            mutual_exclusions: found.mutual_exclusions,
            bottleneck: report.bottleneck().map(|of| of.operation.clone()),
            bottlenecks: found.bottlenecks.clone(),
            circumstances: report.circumstances(),
            operations: report.parts().into_iter().map(part).collect(),
            data: report.data.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use stroboscope_newsfeed::FaultPoint;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        demo: Demo,
    }

    #[test]
    fn help_names_every_point_of_a_fault() {
        let help = <Line as clap::CommandFactory>::command()
            .render_long_help()
            .to_string();
        for point in FaultPoint::ALL {
            assert!(help.contains(point.name()), "{point} is not in {help}");
        }
    }

    #[test]
    fn faults_are_kept_as_they_are_typed() {
        let line = [
            "demo",
            "--fault",
            "store.read=+0.5ms@50%",
            "--fault",
            "ranker.extra-call",
        ];
        let faults = Line::try_parse_from(line)
            .map(|line| line.demo.faults)
            .map_err(|error| error.to_string());
        assert_eq!(
            faults,
            Ok(vec![
                "store.read=+0.5ms@50%".to_owned(),
                "ranker.extra-call".to_owned()
            ])
        );
        let refused = Line::try_parse_from(["demo", "--fault", "disk=+1ms"]).map(|_| ());
        assert!(
            refused.is_err_and(|error| error.to_string().contains("accepted: client.small-count"))
        );
    }
}
