//! Counts with valgrind the instructions that the web process executes in user space for a request.
//! They do not depend on other work of the machine.
//!
//! Valgrind counts a process from its start to its end, so each figure is a difference between
//! processes: one with few requests, one with many, and one with few requests and an idle time
//! after them. The idle time shows the instructions per second that do not depend on requests
//! (threads that wake up). The figure of a request includes their share at the rate of
//! [`Options::rate_per_s`], because a request takes longer in valgrind and would include more of
//! them.
//!
//! Requests are sent one after the other. Bursts follow wall-clock time, as outside of valgrind, so
//! that the same share of requests is recorded. The work that the service simulates is the same in
//! all variants and much more than the rest, so it is counted once and left out of the comparison.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::backends::{self, Backends};
use crate::report::median;
use crate::sink::Sink;
use crate::web::{LINKED, ROUNDS_PER_US, VARIANTS, Variant, Web};
use crate::{Failure, TAIL, load};

/// The options of the command line after `--instructions`.
pub(crate) struct Options {
    pub(crate) runs: usize,
    pub(crate) requests: usize,
    /// Requests per second that share the instructions of threads that wake up by the clock.
    pub(crate) rate_per_s: f64,
    /// Directory that gets callgrind's profiles of the last run. `None`: no profiles are kept.
    pub(crate) profiles: Option<PathBuf>,
}

/// Requests after which memory, connections and tables no longer grow.
const FEW: usize = 100;
/// Like [`FEW`], for requests with all of their simulated work, which take long.
const FEW_WITH_WORK: usize = 20;
const WITH_WORK: usize = 40;
const IDLE: Duration = Duration::from_secs(4);
/// Rounds of simulated work per microsecond, so few that the work is negligible.
const LITTLE_WORK: &str = "1";

struct Counter<'a> {
    options: &'a Options,
    backends: Backends,
    sink: Sink,
}

/// The count of one process, from its start to its end.
struct Counted {
    instructions: f64,
    /// Time from the first request to the last answer, without idle time after it.
    lasted: Duration,
}

/// The instructions of one variant: per request, one for each run, and per second without requests.
#[derive(Default)]
struct Figures {
    a_request: Vec<f64>,
    a_second: f64,
}

pub(crate) async fn count_all(options: &Options) -> Result<(), Failure> {
    if Command::new("valgrind")
        .arg("--version")
        .output()
        .await
        .is_err()
    {
        println!("SKIPPED: instructions of a request (valgrind is not installed)");
        return Ok(());
    }
    let counter = Counter {
        options,
        backends: backends::start().await?,
        sink: Sink::start().await?,
    };
    let variants: Vec<&Variant> = VARIANTS.iter().chain([&LINKED]).collect();
    let mut figures: BTreeMap<&str, Figures> = BTreeMap::new();
    for variant in &variants {
        figures.entry(variant.name).or_default().a_second = counter.a_second(variant).await?;
    }
    let work = counter.work(&VARIANTS[0]).await?;
    for run in 1..=options.runs {
        eprintln!("run {run} of {}", options.runs);
        for variant in &variants {
            let figures = figures.entry(variant.name).or_default();
            let by_clock = figures.a_second / options.rate_per_s;
            figures
                .a_request
                .push(counter.a_request(variant, figures.a_second).await? + by_clock);
        }
    }
    print(&variants, &figures, work, options);
    println!(
        "\nSpans that reached the sink: {}",
        counter.sink.stop().await?
    );
    Ok(())
}

impl Counter<'_> {
    /// Measures the instructions per second of an idle process. 0 if the variant does not record,
    /// because the process has only the service's threads then.
    async fn a_second(&self, variant: &Variant) -> Result<f64, Failure> {
        if !variant.is_recording() {
            return Ok(0.0);
        }
        let busy = self
            .count(variant, LITTLE_WORK, FEW, Duration::ZERO, None)
            .await?;
        let idle = self.count(variant, LITTLE_WORK, FEW, IDLE, None).await?;
        Ok((idle.instructions - busy.instructions) / IDLE.as_secs_f64())
    }

    /// Measures the instructions of one request, without those that threads execute by the clock
    /// (`a_second` per second).
    async fn a_request(&self, variant: &Variant, a_second: f64) -> Result<f64, Failure> {
        let profile = |requests: usize| {
            let name = variant.name.replace([' ', ',', '/'], "-");
            Some(
                self.options
                    .profiles
                    .as_ref()?
                    .join(format!("{name}.{requests}.callgrind")),
            )
        };
        let (few, many) = (FEW, FEW + self.options.requests);
        let small = self
            .count(variant, LITTLE_WORK, few, Duration::ZERO, profile(few))
            .await?;
        let large = self
            .count(variant, LITTLE_WORK, many, Duration::ZERO, profile(many))
            .await?;
        let by_clock = a_second * (large.lasted.as_secs_f64() - small.lasted.as_secs_f64());
        Ok((large.instructions - small.instructions - by_clock) / self.options.requests as f64)
    }

    /// Measures the instructions of the work that the service simulates for a request.
    async fn work(&self, variant: &Variant) -> Result<f64, Failure> {
        let mut each = Vec::new();
        for work in [LITTLE_WORK, ROUNDS_PER_US] {
            let few = self
                .count(variant, work, FEW_WITH_WORK, Duration::ZERO, None)
                .await?;
            let more = self
                .count(
                    variant,
                    work,
                    FEW_WITH_WORK + WITH_WORK,
                    Duration::ZERO,
                    None,
                )
                .await?;
            each.push((more.instructions - few.instructions) / WITH_WORK as f64);
        }
        Ok(each[1] - each[0])
    }

    async fn count(
        &self,
        variant: &Variant,
        rounds_per_us: &str,
        requests: usize,
        idle: Duration,
        profile: Option<PathBuf>,
    ) -> Result<Counted, Failure> {
        let file = profile
            .as_deref()
            .map_or("/dev/null".into(), |path| path.to_string_lossy());
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", &format!("--callgrind-out-file={file}")]);
        valgrind
            .arg(std::env::current_exe()?)
            .stderr(Stdio::piped());
        let web = Web::start_by(
            valgrind,
            variant,
            rounds_per_us,
            &self.backends,
            self.sink.address(),
        )
        .await?;
        let begin = Instant::now();
        load::one_by_one(&web, requests).await?;
        let lasted = begin.elapsed();
        tokio::time::sleep(idle + TAIL).await;
        let said = web.stop_and_read().await?;
        let collected = said.lines().find_map(|line| line.split_once("Collected :"));
        let instructions = collected.and_then(|(_, count)| count.trim().parse().ok());
        Ok(Counted {
            instructions: instructions.ok_or_else(|| format!("not counted: {said}"))?,
            lasted,
        })
    }
}

fn print(variants: &[&Variant], figures: &BTreeMap<&str, Figures>, work: f64, options: &Options) {
    // The baseline is the median over both variants with nothing installed.
    let nothing = median(
        VARIANTS[..2]
            .iter()
            .flat_map(|one| figures[one.name].a_request.clone())
            .collect(),
    );
    println!(
        "\n{} runs; thousands of instructions of the web process in user space, what is done by the clock as at {} \
         requests/s.",
        options.runs, options.rate_per_s
    );
    println!(
        "The work that the service simulates takes {:.0} of each request, beside what is in the table.\n",
        work / 1e3
    );
    println!(
        "| web server of the newsfeed | a request | more, medians of the runs (least … most) | of all | a second |"
    );
    println!("|---|---|---|---|---|");
    for variant in variants {
        let Figures {
            a_request,
            a_second,
        } = &figures[variant.name];
        let more: Vec<f64> = a_request.iter().map(|each| each - nothing).collect();
        let (least, most) = more
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), &each| {
                (low.min(each), high.max(each))
            });
        let middle = median(more);
        println!(
            "| {} | {:.1} | {:+.1} ({:+.1} … {:+.1}) | {:+.2} % | {:.0} |",
            variant.name,
            median(a_request.clone()) / 1e3,
            middle / 1e3,
            least / 1e3,
            most / 1e3,
            100.0 * middle / (nothing + work),
            a_second / 1e3,
        );
    }
}
