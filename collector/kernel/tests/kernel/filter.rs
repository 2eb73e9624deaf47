//! Tests the selection of the processes whose events are recorded.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::event::{Body, Event};
use stroboscope_kernel_model::{Processes, Settings};

use crate::machine;

fn settings(processes: Processes) -> Settings {
    Settings {
        burst_config: BurstConfig::ALWAYS_ON,
        processes,
        ..Settings::default()
    }
}

fn callers(events: &[Event]) -> BTreeSet<u32> {
    events
        .iter()
        .filter(|event| matches!(event.body, Body::Enter { .. }))
        .map(|event| event.tid)
        .collect()
}

/// Runs a shell that starts other programs, and records it. Returns the threads that made system
/// calls, the shell's process id and all events.
fn run(
    test: &str,
    processes: impl FnOnce(u32) -> Processes,
    program: &str,
) -> Option<(BTreeSet<u32>, u32, Vec<Event>)> {
    let mut shell = Command::new("sh")
        .args(["-c", &format!("read go; {program}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = machine::start(test, &settings(processes(shell.id())));
    let Some(mut recorder) = started else {
        shell.kill().unwrap();
        shell.wait().unwrap();
        return None;
    };
    let mut events = Vec::new();
    let mut input = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"go\n").unwrap();
    while shell.try_wait().unwrap().is_none() {
        recorder.drain(&mut events);
        std::thread::sleep(Duration::from_millis(1));
    }
    let recording = recorder.finish(events);
    Some((callers(&recording.events), shell.id(), recording.events))
}

fn is_running(tid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{tid}")).exists()
}

#[test]
fn a_tree_is_followed_through_forks_and_nobody_else() {
    let _alone = machine::alone();
    let program = "sh -c 'sleep 0.02; true'; sleep 0.02";
    let test = "a_tree_is_followed_through_forks_and_nobody_else";
    let Some((callers, shell, events)) = run(test, |shell| Processes::Trees(vec![shell]), program)
    else {
        return;
    };
    assert!(
        callers.contains(&shell) && callers.len() >= 4,
        "{callers:?}"
    );
    assert!(
        callers.iter().all(|&tid| !is_running(tid)),
        "all of the tree have ended: {callers:?}"
    );
    let names: BTreeSet<String> = events
        .iter()
        .filter_map(|event| {
            if let Body::Named { name, .. } = event.body {
                Some(name.to_string())
            } else {
                None
            }
        })
        .collect();
    assert!(names.contains("sleep"), "{names:?}");
}

#[test]
fn a_name_is_found_when_it_starts() {
    let _alone = machine::alone();
    let test = "a_name_is_found_when_it_starts";
    let processes = |_| Processes::Named(vec!["od".into()]);
    let Some((callers, shell, _)) = run(test, processes, "od /dev/null; sleep 0.01") else {
        return;
    };
    assert!(
        callers.len() == 1 && !callers.contains(&shell),
        "{callers:?}"
    );
}

#[test]
fn the_recorder_never_records_itself() {
    let _alone = machine::alone();
    let test = "the_recorder_never_records_itself";
    let Some((callers, shell, events)) = run(test, |_| Processes::All, "sleep 0.05") else {
        return;
    };
    assert!(callers.contains(&shell));
    let own: BTreeSet<u32> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    assert!(callers.is_disjoint(&own), "{own:?}");
    let is_introduced = |tid: u32| {
        events
            .iter()
            .any(|e| e.tid == tid && matches!(e.body, Body::Thread { .. }))
    };
    assert!(!own.iter().any(|&tid| is_introduced(tid)));
}

#[test]
fn a_control_group_is_followed() {
    let _alone = machine::alone();
    let test = "a_control_group_is_followed";
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(std::path::Path::new);
    let Some(root) = root
        .into_iter()
        .find(|root| root.join("cgroup.procs").exists())
    else {
        return eprintln!("SKIPPED: {test}: no control groups here");
    };
    let group = root.join(format!("stroboscope-test-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir(&group) {
        return eprintln!("SKIPPED: {test}: {error}");
    }
    let processes = |shell: u32| {
        std::fs::write(group.join("cgroup.procs"), shell.to_string()).unwrap();
        Processes::Cgroup(group.clone())
    };
    let ran = run(test, processes, "sleep 0.02");
    std::thread::sleep(Duration::from_millis(50));
    let removed = std::fs::remove_dir(&group);
    if let Some((callers, shell, _)) = ran {
        assert!(
            callers.contains(&shell) && callers.len() >= 2,
            "{callers:?}"
        );
        assert!(callers.iter().all(|&tid| !is_running(tid)), "{callers:?}");
        removed.unwrap();
    }
}
