//! Tests of the intake on a simulated disk that fails, tears and forgets writes (see
//! `stroboscope_fixtures::disk`). Random schedules contain batches, requests, flushes, failures,
//! kills and power cuts. Each schedule ends with a check of the invariants of the store.
//!
//! `STROBOSCOPE_CRASH_SCHEDULES` sets the number of schedules (10000, for instance).
//! `STROBOSCOPE_CRASH_SEED` runs one seed alone and prints all its disk operations.

mod schedule;
mod senders;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schedule::{Mutation, Schedule, ScheduleTotals};

/// Number of schedules in a usual test run.
const SCHEDULES: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs schedules of the seeds on two threads until one fails. Returns the totals of those that
/// succeeded, and the smallest seed that failed with its reason.
fn first_failure(
    seeds: std::ops::Range<u64>,
    mutation: Mutation,
) -> (ScheduleTotals, Option<(u64, String)>) {
    let (next, failure) = (AtomicU64::new(seeds.start), Mutex::new(None));
    let seen = Mutex::new(ScheduleTotals::default());
    let work = || {
        let mut own = ScheduleTotals::default();
        while failure.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                break;
            }
            match Schedule::new(seed, mutation).run() {
                Ok(of_one) => own.add(&of_one),
                Err(why) => {
                    let mut failure = failure.lock().unwrap();
                    let is_first = failure.as_ref().is_none_or(|(other, _)| seed < *other);
                    if is_first {
                        *failure = Some((seed, why));
                    }
                }
            }
        }
        seen.lock().unwrap().add(&own);
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    (seen.into_inner().unwrap(), failure.into_inner().unwrap())
}

#[test]
fn whatever_the_disk_does_acknowledged_is_stored_once() {
    if let Some(seed) = number("STROBOSCOPE_CRASH_SEED") {
        let schedule = Schedule::new(seed, Mutation::None);
        let disk = schedule.disk.clone();
        disk.start_log();
        let result = schedule.run();
        disk.log().iter().for_each(|line| println!("{line}"));
        println!("{result:?}");
        result.unwrap();
        return;
    }
    let schedules = number("STROBOSCOPE_CRASH_SCHEDULES").unwrap_or(SCHEDULES);
    let start = std::time::Instant::now();
    let (seen, failure) = first_failure(0..schedules, Mutation::None);
    println!("{schedules} schedules in {:?}: {seen:?}", start.elapsed());
    if let Some((seed, why)) = failure {
        panic!("seed {seed}: {why}; see it by STROBOSCOPE_CRASH_SEED={seed} and --nocapture");
    }
    // Checks that the schedules exercise what they are meant to.
    assert!(
        seen.power_cuts > schedules && seen.kills > schedules / 2,
        "{seen:?}"
    );
    assert!(
        seen.acknowledged > 10 * schedules && seen.pushed_back > schedules,
        "{seen:?}"
    );
    assert!(
        seen.cut_recoveries > schedules / 20 && seen.flushes > schedules,
        "{seen:?}"
    );
}

/// Checks that the tests can fail: they detect each mutation.
#[test]
fn every_step_is_needed() {
    for mutation in Mutation::ALL {
        let (_, failure) = first_failure(0..2_000, mutation);
        let (seed, why) = failure.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?}: seed {seed}: {why}");
    }
}
