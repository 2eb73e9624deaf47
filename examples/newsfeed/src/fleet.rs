//! Fleet of all roles, each as a child process.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::process::Command;

use crate::fault::{Fault, FaultError, FaultPoint};
use crate::link::{Mix, MixError};
use crate::member::{ExitReport, Member, MemberError};
use crate::report::LoadReport;
use crate::schedule::{Schedule, ScheduleError};

/// Options for starting a fleet.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// The program that runs roles.
    pub program: PathBuf,
    /// Arguments before the role's name, for a program that does more than roles.
    pub prefix_args: Vec<String>,
    /// URL of the collector (`http://127.0.0.1:4317`); without one the processes record nothing.
    /// Several URLs are separated by commas; each process then gets one of them, in turn.
    pub collector: Option<String>,
    /// Burst config in the form of `STROBOSCOPE_BURST_CONFIG`; the SDK's default if not given.
    pub burst_config: Option<String>,
    /// Sampling in the form of `STROBOSCOPE_SAMPLE`; the SDK's default if not given.
    pub sample: Option<String>,
    /// Faults, as `POINT=+DURATION[@PERCENT%]`.
    pub faults: Vec<String>,
    /// Requests per second, on average.
    pub rate_per_s: f64,
    /// Length of the load, in seconds.
    pub seconds: f64,
    /// Percentage of users per kind of link; `fast=60,cable=25,3g=15` if not given.
    pub mix: Option<String>,
    /// Seed of start times and users.
    pub seed: u64,
    /// True to rank about a hundred candidates of ten generators.
    pub wide: bool,
    /// Timeout of feature reads in a wide ranking, in milliseconds from its beginning. The ranker
    /// omits candidates whose features are missing by then.
    pub feature_timeout_ms: Option<u64>,
    /// Maximum number of requests that the ranker works on at a time; waiting requests go in order
    /// of their deadlines, which follow from arrival and predicted slack.
    pub slack_order: Option<usize>,
    /// Time for which a ranker's accelerator scores one candidate of a wide ranking, in
    /// microseconds. Each ranker has one accelerator; without a time, the processor scores.
    pub accelerator_us: Option<u64>,
    /// File in which rankers report that one more or one fewer instance would pay off.
    pub capacity_file: Option<PathBuf>,
    /// Share of requests that are copied to a second web server and a second ranker, to explore
    /// tradeoffs. Both rankers are wide then.
    pub duplicate: Option<f64>,
    /// True to start the store and the ranker only, for [`RankLoad`](crate::RankLoad).
    pub ranking_only: bool,
}

impl FleetOptions {
    /// Returns the options of a healthy fleet that records nothing: 30 requests per second for 10
    /// seconds.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            prefix_args: Vec::new(),
            collector: None,
            burst_config: None,
            sample: None,
            faults: Vec::new(),
            rate_per_s: 30.0,
            seconds: 10.0,
            mix: None,
            seed: 1,
            wide: false,
            feature_timeout_ms: None,
            slack_order: None,
            accelerator_us: None,
            capacity_file: None,
            duplicate: None,
            ranking_only: false,
        }
    }

    /// Validates the options. Starts nothing.
    ///
    /// # Errors
    /// Returns an error if a fault, the mix, the rate or the length of the load is invalid.
    pub fn check(&self) -> Result<(), FleetError> {
        self.parsed_faults()?;
        self.mix.as_deref().map(str::parse::<Mix>).transpose()?;
        Schedule::new(self.rate_per_s, self.seconds, self.seed)?;
        Ok(())
    }

    fn parsed_faults(&self) -> Result<Vec<Fault>, FaultError> {
        self.faults.iter().map(|fault| fault.parse()).collect()
    }
}

/// Reasons for which a fleet did not start or its load did not run.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A fault cannot be parsed.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The mix of links cannot be parsed.
    #[error(transparent)]
    Mix(#[from] MixError),
    /// The rate or the length is impossible.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A process failed.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The client's report cannot be read.
    #[error("the client's report cannot be read: {problem}; it printed {text:?}")]
    Report {
        /// Text of the error.
        problem: String,
        /// The beginning of the client's output.
        text: String,
    },
}

/// Running roles. [`Fleet::stop`] stops them, and dropping the fleet kills them. If this process
/// itself is killed, their standard input ends, and they stop.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    faults: Vec<Fault>,
    /// Members in the order in which they started.
    members: Vec<Member>,
    /// URL of the store.
    store: Option<String>,
    ranker: Option<SocketAddr>,
    edge: Option<SocketAddr>,
    client: Option<Member>,
}

impl Fleet {
    /// Starts the roles of the options, except the client, on free loopback ports. Each role starts
    /// once the roles that it needs are ready. Call inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if an option is invalid, or a process does not become ready. No process is
    /// left running in that case.
    pub async fn start(options: FleetOptions) -> Result<Self, FleetError> {
        options.check()?;
        let faults = options.parsed_faults()?;
        let mut fleet = Self {
            options,
            faults,
            members: Vec::new(),
            store: None,
            ranker: None,
            edge: None,
            client: None,
        };
        match fleet.start_members().await {
            Ok(()) => Ok(fleet),
            Err(error) => {
                fleet.stop().await;
                Err(error.into())
            }
        }
    }

    async fn start_members(&mut self) -> Result<(), MemberError> {
        let url = |address: SocketAddr| format!("http://{address}");
        let store = url(self.start_member("store", &[]).await?);
        self.store = Some(store.clone());
        let ranker = self.start_ranker().await?;
        self.ranker = Some(ranker);
        if self.options.ranking_only {
            return Ok(());
        }
        let web = self.start_web(&store, ranker).await?;
        let mut args = vec!["--web".to_owned(), web];
        if let Some(share) = self.options.duplicate {
            // Both pipelines share the store, where copies write nothing.
            let ranker = self.start_ranker().await?;
            let web = self.start_web(&store, ranker).await?;
            let share = share.to_string();
            args.extend(["--duplicate".to_owned(), web]);
            args.extend(["--duplicate-share".to_owned(), share]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.edge = Some(self.start_member("edge", &args).await?);
        Ok(())
    }

    /// Starts a web server and returns its URL.
    async fn start_web(&mut self, store: &str, ranker: SocketAddr) -> Result<String, MemberError> {
        let ranker = format!("http://{ranker}");
        let args = ["--store", store, "--ranker", &ranker];
        Ok(format!("http://{}", self.start_member("web", &args).await?))
    }

    async fn start_ranker(&mut self) -> Result<SocketAddr, MemberError> {
        let mut args = vec!["--store".to_owned(), self.store.clone().unwrap_or_default()];
        let options = &self.options;
        let mut add = |flag: &str, value: Option<String>| {
            if let Some(value) = value {
                args.extend([flag.to_owned(), value]);
            }
        };
        add(
            "--slack-order",
            options.slack_order.map(|count| count.to_string()),
        );
        let file = options.capacity_file.as_ref();
        add(
            "--capacity-file",
            file.map(|path| path.display().to_string()),
        );
        if options.wide || options.duplicate.is_some() {
            add(
                "--feature-timeout-ms",
                options.feature_timeout_ms.map(|ms| ms.to_string()),
            );
            add(
                "--accelerator-us",
                options.accelerator_us.map(|us| us.to_string()),
            );
            args.push("--wide".to_owned());
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.start_member("ranker", &args).await
    }

    /// Starts another ranker and returns the address where it accepts requests.
    ///
    /// # Errors
    /// Returns an error if the ranker does not become ready.
    pub async fn add_ranker(&mut self) -> Result<SocketAddr, FleetError> {
        Ok(self.start_ranker().await?)
    }

    async fn start_member(
        &mut self,
        role: &'static str,
        args: &[&str],
    ) -> Result<SocketAddr, MemberError> {
        let mut command = self.command(role);
        command.args(args).args(["--listen", "127.0.0.1:0"]);
        let mut member = Member::spawn(role, command)?;
        let address = member.ready().await;
        self.members.push(member);
        address
    }

    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(&self.options.program);
        command
            .args(&self.options.prefix_args)
            .args([role, "--stop-with-stdin"]);
        for fault in self
            .faults
            .iter()
            .filter(|fault| role_of(fault.point) == role)
        {
            command.args(["--fault", &fault.to_string()]);
        }
        let collector = self.options.collector.as_ref().map(|urls| {
            let urls: Vec<&str> = urls.split(',').collect();
            urls[self.members.len() % urls.len()].to_owned()
        });
        let settings = [
            (stroboscope::ENV_COLLECTOR, &collector),
            (stroboscope::ENV_BURST_CONFIG, &self.options.burst_config),
            (stroboscope::ENV_SAMPLE, &self.options.sample),
            // Every role names itself.
            (stroboscope::ENV_SERVICE, &None),
        ];
        for (name, value) in settings {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Returns the roles that were started and not stopped, with their process ids, in the order in
    /// which they started. A role that ended by itself is among them.
    #[must_use]
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        self.members
            .iter()
            .chain(&self.client)
            .map(|member| (member.role(), member.pid()))
            .collect()
    }

    /// Returns the address where the first ranker accepts requests; never `None` once the fleet has
    /// started.
    #[must_use]
    pub fn ranker(&self) -> Option<SocketAddr> {
        self.ranker
    }

    /// Returns the address where the edge accepts requests; `None` without an edge, or after a
    /// stop.
    #[must_use]
    pub fn edge(&self) -> Option<SocketAddr> {
        self.edge
    }

    /// Runs the client for the length of the load in the options, and returns its report.
    ///
    /// Dropping the future cancels the run: [`Fleet::stop`] then stops the client as well.
    ///
    /// # Errors
    /// Returns an error if the client fails, its report cannot be read, or another process has
    /// ended. Failed requests are no error: see the report.
    pub async fn run_load(&mut self) -> Result<LoadReport, FleetError> {
        let mut command = self.command("client");
        let edge = self
            .edge
            .map(|address| format!("http://{address}"))
            .unwrap_or_default();
        command.args(["--json", "--edge", &edge]);
        command.args(["--rate", &self.options.rate_per_s.to_string()]);
        command.args(["--seconds", &self.options.seconds.to_string()]);
        command.args(["--seed", &self.options.seed.to_string()]);
        if let Some(mix) = &self.options.mix {
            command.args(["--mix", mix]);
        }
        let client = self.client.insert(Member::spawn("client", command)?);
        let output = client.output().await;
        for member in &mut self.members {
            member.check()?;
        }
        let text = output?;
        self.client = None;
        serde_json::from_str(&text).map_err(|error| FleetError::Report {
            problem: error.to_string(),
            text: text.chars().take(200).collect(),
        })
    }

    /// Stops one process after the other, the last started first, waits until each has ended, and
    /// reports each exit. Afterwards no process is left.
    pub async fn stop(&mut self) -> Vec<ExitReport> {
        let mut stopped = Vec::new();
        if let Some(client) = self.client.take() {
            stopped.push(client.stop().await);
        }
        while let Some(member) = self.members.pop() {
            stopped.push(member.stop().await);
        }
        self.edge = None;
        stopped
    }
}

const fn role_of(point: FaultPoint) -> &'static str {
    match point {
        FaultPoint::ClientSmallCount => "client",
        FaultPoint::EdgeProxy => "edge",
        FaultPoint::WebRender
        | FaultPoint::WebPartition
        | FaultPoint::WebReadAgain
        | FaultPoint::WebLateRetry
        | FaultPoint::WebCallLoop => "web",
        FaultPoint::RankerLongerLoop
        | FaultPoint::RankerCacheMiss
        | FaultPoint::RankerScore
        | FaultPoint::RankerExtraCall => "ranker",
        FaultPoint::StoreRead
        | FaultPoint::StoreLock
        | FaultPoint::StoreOneShard
        | FaultPoint::StoreArchiveShard => "store",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_named_after_their_role() {
        for point in FaultPoint::ALL {
            assert!(
                point.name().starts_with(&format!("{}.", role_of(point))),
                "{point}"
            );
        }
    }

    #[tokio::test]
    async fn senseless_options_are_refused_before_anything_starts() {
        let good = FleetOptions::new(PathBuf::from("/nonexistent/newsfeed"));
        let check = async |options: FleetOptions, expected: &str| {
            let error = Fleet::start(options)
                .await
                .expect_err("refused")
                .to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            FleetOptions {
                faults: vec!["disk=+1ms".to_owned()],
                ..good.clone()
            },
            "accepted: client.small-count",
        )
        .await;
        check(
            FleetOptions {
                mix: Some("fast=1".to_owned()),
                ..good.clone()
            },
            "sum to 1",
        )
        .await;
        check(
            FleetOptions {
                rate_per_s: 0.0,
                ..good.clone()
            },
            "requests/s",
        )
        .await;
        check(good, "cannot start /nonexistent/newsfeed as store").await;
    }
}
