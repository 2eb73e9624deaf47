//! Calibration of `compare`: false causes on quiet periods, and power on planted changes.
//!
//! Run: `cargo bench -p stroboscope-analysis --bench calibration`, or in the dev profile `cargo
//! test -p stroboscope-analysis --bench calibration -- --bench`; options follow after `--`. Each
//! system is random: services, their operations and calls, heavy-tailed times, bursts, drift,
//! clocks. The seed and `--large` determine it. Quiet pairs are halves of one window, and
//! neighbouring windows. Planted changes range from undetectable to obvious. An oracle, which tests
//! only the changed quantity, decides which of them can be detected at a false rate of 5 %, and
//! which at the false rate of `compare`.

mod effects;
mod fault;
mod latency;
mod naive;
mod options;
mod oracle;
mod pair;
mod period;
mod planting;
mod random;
mod request;
mod system;
mod table;
mod verdict;

use fault::{FaultKind, LEVELS};
use options::{Options, USAGE};
use pair::{Bench, QuietKind};
use random::Random;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stroboscope_analysis::compare::Comparison;
use system::System;
use table::Results;
use verdict::Causes;

fn main() -> ExitCode {
    // `cargo test --benches` also runs this program, without `--bench`. It has nothing to test
    // then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match options.seed {
        Some(seed) => show(seed, &options),
        None => measure(&options),
    }
    ExitCode::SUCCESS
}

fn measure(options: &Options) {
    let started = Instant::now();
    let next = AtomicU64::new(options.first_seed);
    let found = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.first_seed + options.systems {
                        break;
                    }
                    let results = of_system(seed, options);
                    let mut found = found.lock().expect("no thread panics");
                    found.insert(seed, results);
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics");
    let results: Vec<Results> = found.into_values().collect();
    if options.quiet {
        table::print_quiet(&results);
    }
    if options.power {
        table::print_power(&results);
    }
    println!("{:.0} s", started.elapsed().as_secs_f64());
}

fn of_system(seed: u64, options: &Options) -> Results {
    let bench = Bench::of(System::random(seed, options.bounds));
    let quiet_kinds = if options.quiet {
        &QuietKind::ALL[..]
    } else {
        &[]
    };
    let quiet = quiet_kinds
        .iter()
        .map(|kind| (*kind, Causes::of(&bench.quiet(*kind))))
        .collect();
    let faults = if options.power { options.faults } else { 0 };
    let mut random = Random::new(&[seed, 7]);
    let power = (0..faults)
        .filter_map(|number| {
            // The kinds alternate.
            let kind = FaultKind::ALL[((seed * options.faults + number) % 10) as usize];
            let level = random.below(LEVELS);
            let fault = bench.fault(kind, level)?;
            Some((level, bench.outcome(&fault).0))
        })
        .collect();
    Results { seed, quiet, power }
}

/// Shows one system in detail.
fn show(seed: u64, options: &Options) {
    let bench = Bench::of(System::random(seed, options.bounds));
    let system = &bench.system;
    println!(
        "{} services, {} operations, {} kinds of requests, {:?} requests, {:?} spans, {:.1} minutes, {:?}",
        system.services.len(),
        system.operations.len(),
        system.kinds.len(),
        bench.quiet.each_ref().map(Vec::len),
        bench.quiet.each_ref().map(|period| {
            let spans = period.iter().map(|request| request.records.spans.len());
            spans.sum::<usize>()
        }),
        system.minutes,
        system.variation,
    );
    for kind in QuietKind::ALL {
        if options.quiet && options.wants(kind.name()) {
            let started = Instant::now();
            let comparison = bench.quiet(kind);
            println!("\n{}: {:.0?}", kind.name(), started.elapsed());
            print_causes(&comparison);
        }
    }
    for kind in FaultKind::ALL {
        for level in 0..LEVELS {
            let is_level = options.level.is_none_or(|only| only == level);
            if !options.power || !options.wants(kind.name()) || !is_level {
                continue;
            }
            let Some(fault) = bench.fault(kind, level) else {
                continue;
            };
            let (outcome, comparison) = bench.outcome(&fault);
            println!(
                "\n{} {level}: {:?} of {} ({:?}), effect {:.1} %, oracle {:.1e}, in quiet {:.1e}, {}, naive {}",
                kind.name(),
                fault,
                system.operations[fault.site.operation].name,
                bench.called(&fault),
                100.0 * outcome.effect,
                outcome.oracle,
                outcome.oracle_quiet,
                said(outcome.names_operation, outcome.names_service),
                said(outcome.naive_operation, outcome.naive_service),
            );
            print_causes(&comparison);
        }
    }
}

fn said(operation: bool, service: bool) -> &'static str {
    match (operation, service) {
        (true, _) => "right",
        (false, true) => "right service",
        (false, false) => "not found",
    }
}

fn print_causes(comparison: &Comparison) {
    for cause in &comparison.causes {
        println!("  {}", verdict::described(cause));
    }
    for few in &comparison.too_few {
        println!("  {}", verdict::described_undecided(few));
    }
}
