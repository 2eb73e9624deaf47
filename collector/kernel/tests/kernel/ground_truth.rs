//! Compares the timeline with the program's own log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::event::{LossCounts, Window};
use stroboscope_analysis::kernel::timeline::{LockWait, SystemCall, Timeline};
use stroboscope_kernel_model::{Facility, Processes, Recording, Settings};

use crate::machine;
use crate::workload::{Line, Plan, What, Workload};

#[derive(Debug, Default)]
pub(crate) struct Score {
    pub(crate) calls: u64,
    calls_right: u64,
    outside: u64,
    outside_right: u64,
    missing: u64,
    pub(crate) waits: u64,
    waits_right: u64,
    waits_found: u64,
    waits_of_several: u64,
    several_right: u64,
    unslept: u64,
    unslept_wrong: u64,
    wrong: Vec<String>,
}

impl Score {
    pub(crate) fn of(timeline: &Timeline, truth: &[Line]) -> Self {
        let mut score = Self::default();
        score_calls(timeline, truth, &mut score);
        score_waits(timeline, truth, &mut score);
        score
    }

    /// Checks requirements that hold for any recording.
    pub(crate) fn check(&self) {
        assert!(self.calls_right * 1_000 >= self.calls * 999, "{self:#?}");
        assert_eq!(self.outside_right, self.outside, "{self:#?}");
        assert_eq!(self.waits_right, self.waits, "{self:#?}");
        assert_eq!(self.unslept_wrong, 0, "{self:#?}");
    }
}

pub(crate) fn record(
    test: &str,
    config: BurstConfig,
    facility: Facility,
    plan: Plan,
) -> Option<(Recording, Vec<Line>)> {
    let mut workload = Workload::start(plan);
    let settings = Settings {
        burst_config: config,
        processes: Processes::Trees(vec![workload.id()]),
        events_per_cpu: 1 << 17,
        facility,
        ..Settings::default()
    };
    let mut recorder = machine::start(test, &settings)?;
    let mut events = Vec::new();
    workload.go();
    while !workload.has_ended() {
        recorder.drain(&mut events);
        std::thread::sleep(Duration::from_millis(5));
    }
    let recording = recorder.finish(events);
    Some((recording, workload.truth()))
}

fn is_within(line: &Line, windows: &[Window]) -> bool {
    windows
        .iter()
        .any(|window| window.open_ns <= line.from_ns && line.to_ns < window.close_ns)
}

fn score_calls(timeline: &Timeline, truth: &[Line], score: &mut Score) {
    let mut seen: BTreeMap<u32, Vec<&SystemCall>> = BTreeMap::new();
    for call in timeline.calls.iter().filter(|call| call.args.is_some()) {
        seen.entry(call.tid).or_default().push(call);
    }
    for line in truth
        .iter()
        .filter(|line| is_within(line, &timeline.windows))
    {
        let What::Call(number) = line.what else {
            continue;
        };
        let calls = seen.get(&line.tid).map_or(&[][..], Vec::as_slice);
        let place = calls.partition_point(|call| call.start_ns < line.from_ns);
        let found = calls
            .get(place)
            .filter(|call| call.start_ns <= line.to_ns && call.call == number);
        let is_right = found.is_some_and(|call| call.owner.trace().unwrap_or(0) == line.trace);
        score.calls += 1;
        score.calls_right += u64::from(is_right);
        score.missing += u64::from(found.is_none());
        if line.trace == 0 {
            score.outside += 1;
            score.outside_right += u64::from(is_right);
        }
        if !is_right && score.wrong.len() < 5 {
            score.wrong.push(format!("{line:x?} but {found:x?}"));
        }
    }
}

/// Returns the holders of the lock during a wait: the requests that released it meanwhile.
fn holders(wait: &Line, releases: &[&Line]) -> BTreeSet<u64> {
    releases
        .iter()
        .filter(|release| {
            release.tid != wait.tid
                && release.from_ns <= wait.to_ns
                && wait.from_ns <= release.to_ns
        })
        .map(|release| release.trace)
        .collect()
}

fn score_waits(timeline: &Timeline, truth: &[Line], score: &mut Score) {
    let releases: Vec<&Line> = truth
        .iter()
        .filter(|line| line.what == What::Release)
        .collect();
    let mut seen: BTreeMap<u32, Vec<&LockWait>> = BTreeMap::new();
    for wait in timeline.lock_waits.iter().filter(|wait| wait.is_marked) {
        seen.entry(wait.tid).or_default().push(wait);
    }
    for line in truth
        .iter()
        .filter(|line| is_within(line, &timeline.windows))
    {
        let What::Wait(slept) = line.what else {
            continue;
        };
        let waits = seen.get(&line.tid).map_or(&[][..], Vec::as_slice);
        let place = waits.partition_point(|wait| wait.start_ns < line.from_ns);
        let found = waits.get(place).filter(|wait| wait.start_ns <= line.to_ns);
        let expected = holders(line, &releases);
        let said: BTreeSet<u64> = found
            .iter()
            .flat_map(|wait| &wait.releases)
            .map(|release| release.owner.trace().unwrap_or(0))
            .collect();
        let is_right =
            found.is_some_and(|wait| wait.owner.trace() == Some(line.trace)) && said == expected;
        match (slept, expected.len()) {
            // The thread never slept, so the release may not have made a system call. The releases
            // that the timeline has must still be right.
            (false, _) => {
                score.unslept += 1;
                score.unslept_wrong += u64::from(!said.is_subset(&expected));
            }
            (true, 1) => {
                score.waits += 1;
                score.waits_found += u64::from(found.is_some());
                score.waits_right += u64::from(is_right);
                if !is_right && score.wrong.len() < 10 {
                    score
                        .wrong
                        .push(format!("{line:x?} held by {expected:x?} but {found:x?}"));
                }
            }
            (true, _) => {
                score.waits_of_several += 1;
                score.several_right += u64::from(!said.is_empty() && said.is_subset(&expected));
            }
        }
    }
}

fn check(test: &str, config: BurstConfig, request_us: u64, pairs: bool) {
    check_by(test, Facility::Ebpf, config, request_us, pairs);
}

fn check_by(test: &str, facility: Facility, config: BurstConfig, request_us: u64, pairs: bool) {
    let _alone = machine::alone();
    let plan = Plan {
        threads: 4,
        request_us,
        run_ms: 2_000,
        pairs,
    };
    let Some((recording, truth)) = record(test, config, facility, plan) else {
        return;
    };
    let timeline = recording.timeline();
    let score = Score::of(&timeline, &truth);
    println!(
        "{test}: calls {}/{} right, {} missing, outside requests {}/{}; waits of one holder {}/{} (found {}), \
         of several {}/{}; without sleep {}, wrong {}; implied switches {}; losses {:?}; {} events, {} windows",
        score.calls_right,
        score.calls,
        score.missing,
        score.outside_right,
        score.outside,
        score.waits_right,
        score.waits,
        score.waits_found,
        score.several_right,
        score.waits_of_several,
        score.unslept,
        score.unslept_wrong,
        timeline.implied_switches,
        recording.losses,
        recording.events.len(),
        recording.windows.len(),
    );
    for wrong in &score.wrong {
        println!("  {wrong}");
    }
    assert!(
        recording
            .losses
            .iter()
            .all(|&lost| lost == LossCounts::default()),
        "the buffers are large enough"
    );
    assert!(
        score.calls > 300 && score.outside > 0 && score.waits > 10,
        "too little happened: {score:?}"
    );
    score.check();
}

#[test]
fn always_on() {
    check("always_on", BurstConfig::ALWAYS_ON, 500, false);
}

#[test]
fn always_on_by_pairs_of_calls() {
    check(
        "always_on_by_pairs_of_calls",
        BurstConfig::ALWAYS_ON,
        4_000,
        true,
    );
}

#[test]
fn bursts_and_short_requests() {
    check(
        "bursts_and_short_requests",
        BurstConfig::DEFAULT,
        500,
        false,
    );
}

#[test]
fn bursts_and_requests_as_long_as_a_window() {
    check(
        "bursts_and_requests_as_long_as_a_window",
        BurstConfig::DEFAULT,
        4_000,
        false,
    );
}

#[test]
fn bursts_and_requests_longer_than_a_window() {
    check(
        "bursts_and_requests_longer_than_a_window",
        BurstConfig::DEFAULT,
        30_000,
        false,
    );
}

#[test]
fn tracefs_always_on() {
    check_by(
        "tracefs_always_on",
        Facility::Tracefs,
        BurstConfig::ALWAYS_ON,
        4_000,
        false,
    );
}

#[test]
fn tracefs_in_bursts() {
    check_by(
        "tracefs_in_bursts",
        Facility::Tracefs,
        BurstConfig::DEFAULT,
        30_000,
        false,
    );
}
