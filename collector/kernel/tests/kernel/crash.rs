//! Tests that a killed recorder leaves no programs in the kernel, and that the next one removes its
//! instance in tracefs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stroboscope_kernel_model::{Facility, Settings};

use crate::machine;

const ENV: &str = "KERNEL_TEST_RECORDER";

/// Returns the ids of the programs that a process has in the kernel.
fn programs_of(process: u32) -> BTreeSet<u32> {
    let open = std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let text = open
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    text.filter_map(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
    })
    .collect()
}

/// Waits at most a minute for the kernel to free programs, and returns those that still exist.
fn left_of(programs: &BTreeSet<u32>) -> BTreeSet<u32> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let loaded: BTreeSet<u32> = aya::programs::loaded_programs()
            .filter_map(Result::ok)
            .map(|program| program.id())
            .collect();
        let left: BTreeSet<u32> = programs.intersection(&loaded).copied().collect();
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a recorder and kills it. Returns its process id and its programs.
fn kill_in_a_burst(facility: &str) -> (u32, BTreeSet<u32>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "crash::is_the_recorder",
            "--nocapture",
        ])
        .env(ENV, facility)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The recorder prints this after it has drained events.
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains("recording")),
        "the recorder did not start"
    );
    let programs = programs_of(child.id());
    assert!(facility == "tracefs" || programs.len() >= 8, "{programs:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    (child.id(), programs)
}

#[test]
fn nothing_is_left_by_a_killed_recorder_and_the_next_one_starts() {
    const TEST: &str = "nothing_is_left_by_a_killed_recorder_and_the_next_one_starts";
    let _alone = machine::alone();
    let Some(first) = machine::start(TEST, &Settings::default()) else {
        return;
    };
    let own = programs_of(std::process::id());
    assert!(own.len() >= 8, "{own:?}");
    drop(first);
    assert_eq!(
        left_of(&own),
        BTreeSet::new(),
        "dropping a recorder leaves its programs"
    );
    for _ in 0..3 {
        let (_, programs) = kill_in_a_burst("ebpf");
        assert_eq!(
            left_of(&programs),
            BTreeSet::new(),
            "programs are left in the kernel"
        );
    }
    assert!(machine::start(TEST, &Settings::default()).is_some());
}

/// Reports whether a recorder of this process has an instance in tracefs.
fn has_instance(process: u32) -> bool {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances").unwrap();
    let prefix = format!("stroboscope-{process}-");
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

#[test]
fn an_instance_that_a_killed_recorder_left_is_removed_by_the_next_one() {
    const TEST: &str = "an_instance_that_a_killed_recorder_left_is_removed_by_the_next_one";
    let _alone = machine::alone();
    let settings = Settings {
        facility: Facility::Tracefs,
        ..Settings::default()
    };
    let Some(first) = machine::start(TEST, &settings) else {
        return;
    };
    let own = std::process::id();
    assert!(has_instance(own));
    drop(first);
    assert!(!has_instance(own));
    let (killed, _) = kill_in_a_burst("tracefs");
    let second = machine::start(TEST, &settings);
    assert!(
        !has_instance(killed) && has_instance(own),
        "the orphan is gone, the new one is there"
    );
    drop(second);
    assert!(!has_instance(own));
}

/// Not a test: a recorder that runs until it is killed.
#[test]
#[ignore = "the recorder that another test kills"]
fn is_the_recorder() {
    let Ok(facility) = std::env::var(ENV) else {
        return;
    };
    let facility = if facility == "tracefs" {
        Facility::Tracefs
    } else {
        Facility::Ebpf
    };
    let settings = Settings {
        facility,
        ..Settings::default()
    };
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
