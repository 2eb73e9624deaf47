//! A recorder that is killed leaves nothing in the kernel.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stroboscope_kernel::{Facility, Settings};

use crate::machine;

const ENV: &str = "KERNEL_TEST_RECORDER";

/// Programs in the kernel that have one of the recorder's names.
fn programs() -> usize {
    const NAMES: [&str; 3] = ["sys_enter", "sched_waking", "task_newtask"];
    aya::programs::loaded_programs()
        .filter_map(Result::ok)
        .filter(|program| NAMES.contains(&program.name_as_str().unwrap_or_default()))
        .count()
}

fn wait_for(count: usize) -> usize {
    let until = Instant::now() + Duration::from_secs(10);
    while programs() != count && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    programs()
}

fn kill_in_a_burst(facility: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "crash::is_the_recorder", "--nocapture"])
        .env(ENV, facility)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // It says so from inside a window.
    assert!(lines.map_while(Result::ok).any(|line| line.contains("recording")), "the recorder did not start");
    assert!(facility == "tracefs" || programs() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn nothing_is_left_by_a_killed_recorder_and_the_next_one_starts() {
    const TEST: &str = "nothing_is_left_by_a_killed_recorder_and_the_next_one_starts";
    let _alone = machine::alone();
    let Some(first) = machine::start(TEST, &Settings::default()) else { return };
    drop(first);
    let before = wait_for(0);
    assert_eq!(before, 0, "another recorder runs on this machine, or dropping one leaves its programs");
    for _ in 0..3 {
        kill_in_a_burst("ebpf");
        assert_eq!(wait_for(0), 0, "programs are left in the kernel");
    }
    assert!(machine::start(TEST, &Settings::default()).is_some());
}

/// Instances of recorders in tracefs.
fn instances() -> usize {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances").map(Iterator::flatten);
    entries.map_or(0, |all| {
        all.filter(|one| one.file_name().to_string_lossy().starts_with("stroboscope-")).count()
    })
}

#[test]
fn an_instance_that_a_killed_recorder_left_is_removed_by_the_next_one() {
    const TEST: &str = "an_instance_that_a_killed_recorder_left_is_removed_by_the_next_one";
    let _alone = machine::alone();
    let settings = Settings { facility: Facility::Tracefs, ..Settings::default() };
    let Some(first) = machine::start(TEST, &settings) else { return };
    assert_eq!(instances(), 1);
    drop(first);
    assert_eq!(instances(), 0);
    kill_in_a_burst("tracefs");
    assert_eq!(instances(), 1, "tracefs keeps what its reader left");
    let second = machine::start(TEST, &settings);
    assert_eq!(instances(), 1, "the orphan is gone, the new one is there");
    drop(second);
    assert_eq!(instances(), 0);
}

/// Not a test: a recorder that runs until it is killed.
#[test]
#[ignore = "the recorder that another test kills"]
fn is_the_recorder() {
    let Ok(facility) = std::env::var(ENV) else { return };
    let facility = if facility == "tracefs" { Facility::Tracefs } else { Facility::Ebpf };
    let settings = Settings { facility, ..Settings::default() };
    let mut recorder = machine::start("is_the_recorder", &settings).unwrap();
    let mut events = Vec::new();
    loop {
        events.clear();
        if recorder.drain(&mut events) > 0 {
            println!("recording");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
