//! Instructions that the web process takes for a request, in user space, which no other work on the machine changes;
//! counted by valgrind.
//!
//! A process is counted from its start to its end, so each figure is a difference between processes: one that got few
//! requests, one that got many, and one that got few and then did nothing for a while. What is done by the clock and
//! not by requests (threads that wake up) is known from the last, and is counted as at the rate that is asked for: in
//! valgrind a request takes longer, and more of that would fall into it.
//!
//! Requests come one after the other. Bursts are those of wall-clock time, as outside of valgrind, so that the same share
//! of requests is recorded. The work that the service simulates is left out of what is compared, and is counted once: it
//! is the same in all, and would be nearly all that is measured.

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

/// What is asked for.
pub(crate) struct Options {
    pub(crate) runs: usize,
    pub(crate) requests: usize,
    /// What is done by the clock is shared by so many.
    pub(crate) rate_per_s: f64,
    /// Where callgrind's profiles of the last run are kept.
    pub(crate) profiles: Option<PathBuf>,
}

/// Until memory, connections and tables have the size they keep.
const FEW: usize = 100;
/// Of the requests with all of their work, which take long.
const FEW_WITH_WORK: usize = 20;
const WITH_WORK: usize = 40;
const IDLE: Duration = Duration::from_secs(4);
/// Work that is not worth counting.
const LITTLE_WORK: &str = "1";

struct Counter<'a> {
    options: &'a Options,
    backends: Backends,
    sink: Sink,
}

/// One process, from its start to its end.
struct Counted {
    instructions: f64,
    /// How long requests came, or might have come.
    lasted: Duration,
}

/// Of one kind of process.
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
    /// Instructions by the clock; of a process that has no more threads than the service's own, none.
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

    /// Instructions of one request, without those by the clock.
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

    /// Instructions of the work that the service simulates for a request.
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
    // Of both processes without anything.
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
