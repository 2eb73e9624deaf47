//! The demo names the bottleneck, also when it is moved; its processes record the same windows; nothing stays behind.

use std::path::Path;

use serde_json::Value;
use stroboscope_tests::{Program, Server};

fn demo(program: &Program, args: &[&str]) -> Value {
    let all = [&["demo", "--json", "--seconds", "8"], args].concat();
    program.run(&all).succeeds().json()
}

/// What must hold of any run.
fn check_whole(report: &Value) {
    assert_eq!(report["processes"], 5, "{report:#}");
    assert_eq!(report["failed_requests"], 0, "{report:#}");
    assert_eq!((&report["lost_records"], &report["missing_batches"]), (&0.into(), &0.into()), "{report:#}");
    assert!(report["bursts"].as_u64() >= Some(6), "{report:#}");
    assert!(report["complete_traces"].as_u64() >= Some(20), "{report:#}");
    assert_eq!(
        report["incomplete_traces"], 0,
        "only fragments of requests older than their burst: {report:#}"
    );
    assert!(report["window_overlap"].as_f64() >= Some(0.99), "{report:#}");
}

#[test]
fn names_the_bottleneck_and_follows_it_when_it_moves() {
    let program = Program::new();
    let healthy = demo(&program, &[]);
    check_whole(&healthy);
    let server_side = |report: &Value| -> String {
        let operations = report["operations"].as_array().expect("operations");
        let mut names = operations.iter().map(|part| part["operation"].as_str().expect("a name"));
        names.find(|name| !name.starts_with("client:")).expect("one").to_owned()
    };
    assert_eq!(server_side(&healthy), "ranker:score", "{healthy:#}");
    let broken = demo(&program, &["--fault", "store.read=+5ms"]);
    check_whole(&broken);
    assert_eq!(broken["bottleneck"], "store:read", "{broken:#}");
}

#[test]
fn an_interrupted_demo_leaves_nothing_running() {
    let program = Program::new();
    let mut server = Server::start(program.command(&["demo", "--seconds", "60"]));
    let pids: Vec<u32> = server.wait_for("its processes", |said| {
        let line = said.lines().find(|line| line.starts_with("started "))?;
        Some(line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect())
    });
    assert_eq!(pids.len(), 4, "{}", server.said());
    let alive = |pid: &u32| Path::new(&format!("/proc/{pid}/cmdline")).exists();
    assert!(pids.iter().all(alive));
    let status = server.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(2), "{}", server.said());
    assert!(server.said().contains("interrupted"), "{}", server.said());
    assert!(!pids.iter().any(alive), "{pids:?}");
}
