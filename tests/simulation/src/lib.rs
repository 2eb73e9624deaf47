//! The whole path in one process: SDK, network, collector, disk, objects and readers, under
//! simulated time.
//!
//! Settings and faults are drawn from a seed (`plan`). Each run has an operating system's process
//! of its own (`fork`) with replaced clocks and random numbers (`clock`), so that all runs of a
//! seed are equal. Every fifth seed runs twice, and the logs of both runs must be equal. `world`
//! drives the hosts of `fleet` and `collector`, and applies `publishing` to `objects`; `check`
//! states the invariants.
//!
//! The simulation runs the product's own code: the SDK's gate, batches, buffer and link; gRPC; the
//! collector's ports, service, intake, log, flusher and store; in about half of the seeds an agent
//! in front of it, with uplink and forwarder; the publisher and the mirror. It replaces rings and
//! their drain, which belong to threads, and the schedule of the collector's threads, which are
//! tasks here.
#![cfg(test)]

mod check;
mod clock;
mod collector;
mod control;
mod fleet;
mod fork;
mod log;
mod objects;
mod plan;
mod publishing;
mod service;
mod world;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use plan::Planted;

/// Number of seeds in the usual run of the tests. Ten thousand run at night.
const SEEDS: u64 = 100;
/// Distance of the seeds that run twice.
const TWICE_EVERY: u64 = 5;
/// Number of seeds within which each planted defect is found.
const PLANTED_SEEDS: u64 = 80;
/// Number of concurrent runs.
const AT_A_TIME: usize = 2;

/// Lock that allows one test at a time to fork runs.
static TURN: Mutex<()> = Mutex::new(());

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Begins a run of a seed.
fn begin(seed: u64, planted: Planted) -> (tempfile::TempDir, fork::Running) {
    let memory = std::path::Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let directory = directory.expect("a directory");
    let path = directory.path().to_owned();
    (
        directory,
        fork::begin(move || world::run(seed, planted, &path)),
    )
}

/// Runs each seed as many times as `times` returns. Passes each seed with its answers to `take`,
/// and stops once `take` returns false.
fn run_all(
    seeds: std::ops::Range<u64>,
    times: impl Fn(u64) -> usize,
    planted: Planted,
    mut take: impl FnMut(u64, Vec<String>) -> bool,
) {
    let mut to_begin = seeds.flat_map(|seed| std::iter::repeat_n(seed, times(seed)));
    let mut running = VecDeque::new();
    let mut answers = Vec::new();
    loop {
        while running.len() < AT_A_TIME
            && let Some(seed) = to_begin.next()
        {
            running.push_back((seed, begin(seed, planted)));
        }
        let Some((seed, (_directory, run))) = running.pop_front() else {
            return;
        };
        answers.push(run.answer());
        if answers.len() == times(seed) && !take(seed, std::mem::take(&mut answers)) {
            running
                .into_iter()
                .for_each(|(_, (_directory, run))| drop(run.answer()));
            return;
        }
    }
}

/// Returns the problem in a seed's answers: a failed run, or two runs that differ. Returns `None`
/// if there is none.
fn problem(answers: &[String]) -> Option<String> {
    if let Some(failed) = answers.iter().find(|answer| !answer.starts_with("OK\n")) {
        return Some(failed.lines().nth(1).unwrap_or("no answer").to_owned());
    }
    let first = &answers[0];
    let other = answers.iter().find(|other| other != &first)?;
    let differs = first
        .lines()
        .zip(other.lines())
        .find(|(first, other)| first != other);
    Some(format!("two runs differ: {differs:?}"))
}

#[test]
fn what_is_acknowledged_is_stored_and_read_once_whatever_fails() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(seed) = number("STROBOSCOPE_SIMULATION_SEED") {
        run_all(
            seed..seed + 1,
            |_| 2,
            Planted::Nothing,
            |seed, answers| {
                println!("{}", answers[0]);
                assert_eq!(problem(&answers), None, "seed {seed}");
                true
            },
        );
        return;
    }
    let first = number("STROBOSCOPE_SIMULATION_FIRST").unwrap_or(0);
    let seeds = number("STROBOSCOPE_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let (start, mut logs, mut failed) = (Instant::now(), Vec::new(), Vec::new());
    run_all(
        first..first + seeds,
        |seed| if seed % TWICE_EVERY == 0 { 2 } else { 1 },
        Planted::Nothing,
        |seed, mut answers| {
            match problem(&answers) {
                None => logs.push(answers.swap_remove(0)),
                Some(why) => failed.push((seed, why)),
            }
            failed.len() < 20
        },
    );
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, every {TWICE_EVERY}th twice, in {seconds:.1} s: {:.2} seeds a second",
        seeds as f64 / seconds
    );
    for (seed, why) in &failed {
        println!("seed {seed}: {why}");
    }
    let with = |words: &str| logs.iter().filter(|log| log.contains(words)).count();
    let words = [
        "Ok(Duplicate)",
        "connected",
        "does not start",
        "the power is cut",
        "it is killed",
        "comes late",
        "IsAmbiguous",
        "a round: Ok(true)",
        "\"fenced\"",
        "sees Some",
        "Refused",
        "has ended",
        "agent: runs",
    ];
    println!("seeds with: {:?}", words.map(|word| (word, with(word))));
    assert!(
        failed.is_empty(),
        "see a seed's log by STROBOSCOPE_SIMULATION_SEED={} and --nocapture",
        failed[0].0
    );
}

/// Checks that each planted defect is found within the first [`PLANTED_SEEDS`] seeds, which shows
/// that the invariants can fail.
#[test]
fn planted_defects_are_found() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // Few seeds have a copy of the directory that publishes at the same time.
    for (planted, first) in [
        (Planted::AcknowledgedBeforeSync, 0),
        (Planted::RetryRenumbered, 0),
        (Planted::ConditionIgnored, 50),
        (Planted::ForwardedBeforeDelivery, 0),
    ] {
        let mut found = None;
        run_all(
            first..PLANTED_SEEDS,
            |_| 1,
            planted,
            |seed, answers| {
                found = problem(&answers).map(|why| (seed, why));
                found.is_none()
            },
        );
        let (seed, why) = found.unwrap_or_else(|| panic!("{planted:?} is not found"));
        println!("{planted:?}: seed {seed}: {why}");
    }
}
