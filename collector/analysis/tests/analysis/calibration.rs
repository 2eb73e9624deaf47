//! Calibration of the comparison on a few dozen small systems. The bench of the same name has many
//! and larger ones.

// The bench uses the rest.
#![allow(dead_code)]

#[path = "../../benches/calibration/effects.rs"]
mod effects;
#[path = "../../benches/calibration/fault.rs"]
mod fault;
#[path = "../../benches/calibration/latency.rs"]
mod latency;
#[path = "../../benches/calibration/naive.rs"]
mod naive;
#[path = "../../benches/calibration/oracle.rs"]
mod oracle;
#[path = "../../benches/calibration/pair.rs"]
mod pair;
#[path = "../../benches/calibration/period.rs"]
mod period;
#[path = "../../benches/calibration/planting.rs"]
mod planting;
#[path = "../../benches/calibration/random.rs"]
mod random;
#[path = "../../benches/calibration/request.rs"]
mod request;
#[path = "../../benches/calibration/system.rs"]
mod system;
#[path = "../../benches/calibration/verdict.rs"]
mod verdict;

use fault::FaultKind;
use pair::{Bench, QuietKind};
use system::{Bounds, System};
use verdict::Causes;

const SYSTEMS: u64 = 40;

fn bench(seed: u64) -> Bench {
    let bounds = Bounds {
        services_max: 40,
        requests_max: 400,
    };
    Bench::of(System::random(seed, bounds))
}

/// Returns the probability of at least this many successes.
fn at_least(successes: usize, trials: usize, probability: f64) -> f64 {
    let mut of_exactly = (1.0 - probability).powi(trials as i32);
    let mut below = 0.0;
    for count in 0..successes {
        below += of_exactly;
        of_exactly *=
            (trials - count) as f64 / (count + 1) as f64 * probability / (1.0 - probability);
    }
    1.0 - below
}

#[test]
fn quiet_periods_have_no_causes() {
    let (mut pairs, mut falsely, mut slower, mut faster) = (0, 0, 0, 0);
    for seed in 0..SYSTEMS {
        let bench = bench(seed);
        for kind in QuietKind::ALL {
            let causes = Causes::of(&bench.quiet(kind));
            pairs += 1;
            falsely += usize::from(causes.all() > 0);
            slower += usize::from(causes.slower > 0);
            faster += usize::from(causes.faster > 0);
        }
    }
    println!("{falsely} of {pairs} pairs have a cause: {slower} slower, {faster} faster");
    assert!(
        at_least(falsely, pairs, 0.05) > 0.01,
        "{falsely} of {pairs} quiet pairs have a cause"
    );
    let time = slower + faster;
    assert!(
        at_least(slower.max(faster), time, 0.5) > 0.01,
        "{slower} are slower, {faster} faster"
    );
}

#[test]
fn obvious_changes_are_found() {
    let (mut detectable, mut found, mut naive) = (0, 0, 0);
    for seed in 0..SYSTEMS {
        let bench = bench(seed);
        let kind = FaultKind::ALL[(seed % 10) as usize];
        for level in [3, 5] {
            let Some(fault) = bench.fault(kind, level) else {
                continue;
            };
            let (outcome, _) = bench.outcome(&fault);
            if outcome.oracle <= 0.005 && outcome.effect.abs() >= 0.01 {
                detectable += 1;
                found += usize::from(outcome.names_service);
                naive += usize::from(outcome.naive_service);
            }
        }
    }
    println!("{found} of {detectable} changes are found, by the naive ranking {naive}");
    assert!(
        found as f64 >= 0.6 * f64::from(detectable) && found >= naive,
        "{found} of {detectable} changes are found, by the naive ranking {naive}"
    );
}
