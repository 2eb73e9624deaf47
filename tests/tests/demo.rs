//! The demo names the bottleneck, also after it moves, whatever load the machine has, and leaves
//! nothing running.

use std::path::Path;

use serde_json::Value;
use stroboscope_tests::{Program, Server};

fn demo(program: &Program, args: &[&str]) -> Value {
    let all = [&["demo", "--json", "--seconds", "8", "--rate", "8"], args].concat();
    program.run(&all).succeeds().json()
}

/// Checks requirements of every run, however little CPU time it gets. None depends on speed.
fn check_whole(report: &Value) {
    assert_eq!(report["processes"], 5, "{report:#}");
    assert_eq!(
        (&report["lost_records"], &report["missing_batches"]),
        (&0.into(), &0.into()),
        "{report:#}"
    );
    let (complete, requests) = (
        report["complete_traces"].as_u64(),
        report["requests"].as_u64(),
    );
    assert!(complete >= Some(1) && complete <= requests, "{report:#}");
    // Only requests that the client gave up after 10 s are incomplete. Fragments of requests older
    // than their burst do not count.
    assert!(
        report["incomplete_traces"].as_u64() <= failed(report),
        "{report:#}"
    );
    // A process that wakes too late records less than the window, and says so.
    let overlap = report["window_overlap"].as_f64();
    assert!(overlap > Some(0.0) && overlap <= Some(1.0), "{report:#}");
    let operations = operations(report);
    let largest = operations
        .iter()
        .max_by_key(|operation| operation.mean_ns)
        .expect("operations");
    assert_eq!(operations[0].name, largest.name, "{report:#}");
    assert_eq!(
        report["bottleneck"], largest.name,
        "the most time: {report:#}"
    );
    let shares: f64 = operations.iter().map(|operation| operation.share).sum();
    assert!(shares > 0.0 && shares < 1.0 + 1e-9, "{report:#}");
}

/// Returns the number of failed requests: those that took longer than the client waits.
fn failed(report: &Value) -> Option<u64> {
    report["failed_requests"].as_u64()
}

struct Operation {
    name: String,
    share: f64,
    /// Mean time on the critical path, per request.
    mean_ns: u64,
}

fn operations(report: &Value) -> Vec<Operation> {
    let operation = |part: &Value| Operation {
        name: part["operation"].as_str().expect("a name").to_owned(),
        share: part["share_of_time"].as_f64().expect("a share"),
        mean_ns: part["mean_ns"].as_u64().expect("a time"),
    };
    report["operations"]
        .as_array()
        .expect("operations")
        .iter()
        .map(operation)
        .collect()
}

fn mean_ns(report: &Value, name: &str) -> u64 {
    operations(report)
        .iter()
        .find(|operation| operation.name == name)
        .map_or(0, |found| found.mean_ns)
}

/// Checks a run under a fault that takes at least `pause_ns` of each request's critical path: the
/// operation has at least that time, and is the bottleneck unless requests waited longer for
/// something else. No load makes a pause shorter.
#[track_caller]
fn check_named(report: &Value, name: &str, pause_ns: u64) {
    check_whole(report);
    if failed(report) != Some(0) {
        eprintln!(
            "SKIPPED: {name} by name: requests ran into the client's 10 s under this load: {report:#}"
        );
        return;
    }
    assert!(
        mean_ns(report, name) >= pause_ns,
        "{name} takes {pause_ns} ns at least: {report:#}"
    );
    let named = report["bottleneck"].as_str().expect("a name");
    if named != name {
        eprintln!("the load, not the fault, is the bottleneck of this run: {report:#}");
        assert!(
            mean_ns(report, named) > pause_ns,
            "{named} is no bottleneck beside {pause_ns} ns: {report:#}"
        );
    }
}

/// Number of properties that the web server reads sequentially, so that no two reads overlap.
const READS_IN_A_ROW: u64 = 5;

#[test]
fn names_the_bottleneck_and_follows_it_when_it_moves() {
    let program = Program::new();
    let healthy = demo(&program, &[]);
    check_whole(&healthy);
    // Faults that are large compared with the present duration of a request on this machine.
    let whole_ns: u64 = operations(&healthy)
        .iter()
        .map(|operation| operation.mean_ns)
        .sum();
    let pause_ms = (2 * whole_ns)
        .div_ceil(READS_IN_A_ROW * 1_000_000)
        .clamp(20, 400);
    let pause_ns = READS_IN_A_ROW * pause_ms * 1_000_000;
    let fault = format!("store.read=+{pause_ms}ms");
    check_named(
        &demo(&program, &["--fault", &fault]),
        "store:read",
        pause_ns,
    );
    let fault = format!("ranker.score=+{}ms", READS_IN_A_ROW * pause_ms);
    check_named(
        &demo(&program, &["--fault", &fault]),
        "ranker:score",
        pause_ns,
    );
}

#[test]
fn windows_much_shorter_than_a_request_still_give_whole_requests() {
    let program = Program::new();
    // Requests that enter in a window are followed, and the others are fragments.
    let short = demo(&program, &["--burst-config", "4ms/32ms"]);
    check_whole(&short);
    let (complete, requests) = (
        short["complete_traces"].as_u64(),
        short["requests"].as_u64(),
    );
    assert!(
        complete.map(|complete| 2 * complete) < requests,
        "an eighth, not all of them: {short:#}"
    );
}

#[test]
fn an_interrupted_demo_leaves_nothing_running() {
    let program = Program::new();
    let mut server = Server::start(program.command(&["demo", "--seconds", "60"]));
    let pids: Vec<u32> = server.wait_for("its processes", |said| {
        let line = said.lines().find(|line| line.starts_with("started "))?;
        Some(
            line.split([' ', ','])
                .filter_map(|word| word.parse().ok())
                .collect(),
        )
    });
    assert_eq!(pids.len(), 4, "{}", server.said());
    let alive = |pid: &u32| Path::new(&format!("/proc/{pid}/cmdline")).exists();
    assert!(pids.iter().all(alive));
    let status = server.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(130), "{}", server.said());
    assert!(server.said().contains("interrupted"), "{}", server.said());
    assert!(!pids.iter().any(alive), "{pids:?}");
}
