//! Tests of the real processes over real sockets, without recording: pages load, and no process is
//! left running.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use stroboscope_newsfeed::{Fleet, FleetOptions, LinkKind, LoadReport};

const NEWSFEED: &str = env!("CARGO_BIN_EXE_newsfeed");

/// Maximum time until processes have ended: long enough for a busy machine, short enough to notice
/// a process that stays.
const PATIENCE: Duration = Duration::from_secs(15);

fn options() -> FleetOptions {
    FleetOptions {
        rate_per_s: 10.0,
        seconds: 2.0,
        ..FleetOptions::new(PathBuf::from(NEWSFEED))
    }
}

/// Reports whether a process runs. Zombies do not count: the children of a killed supervisor are
/// zombies until their new parent reaps them.
fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
    else {
        return false;
    };
    // The state follows the name, which is in parentheses and may itself hold some.
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    !matches!(state, Some("Z" | "X") | None)
}

#[track_caller]
fn assert_gone(pids: &[u32]) {
    let start = Instant::now();
    while pids.iter().any(|pid| runs(*pid)) {
        let left: Vec<&u32> = pids.iter().filter(|pid| runs(**pid)).collect();
        assert!(start.elapsed() < PATIENCE, "still running: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn load(options: FleetOptions) -> LoadReport {
    let mut fleet = Fleet::start(options).await.expect("started");
    let pids: Vec<u32> = fleet.pids().into_iter().map(|(_, pid)| pid).collect();
    assert_eq!(pids.len(), 4, "store, ranker, web, edge");
    assert!(pids.iter().all(|pid| runs(*pid)));
    let report = fleet.run_load().await.expect("a report");
    let stopped = fleet.stop().await;
    assert!(stopped.iter().all(|stopped| stopped.clean), "{stopped:?}");
    // Stopped means reaped: not even a zombie has the id.
    assert!(
        pids.iter()
            .all(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    );
    report
}

#[tokio::test]
async fn pages_load_and_no_process_is_left() {
    let report = load(options()).await;
    assert!(report.sent > 5, "{report}");
    assert_eq!((report.ok, report.failed), (report.sent, 0), "{report}");
    assert_eq!(
        report.links.iter().map(|link| link.sent).sum::<u64>(),
        report.sent
    );
    // Scoring alone takes 10 ms on an undisturbed processor; this leaves room for calibration.
    assert!(report.latency.p50_ns > 6_000_000, "{report}");
}

#[tokio::test]
async fn roles_can_be_part_of_another_program() {
    // `env PROGRAM ARGS…` becomes the program: a prefix before the role's name.
    let prefix_args = vec![NEWSFEED.to_owned()];
    let report = load(FleetOptions {
        program: "env".into(),
        prefix_args,
        ..options()
    })
    .await;
    assert_eq!((report.ok > 0, report.failed), (true, 0), "{report}");
}

#[tokio::test]
async fn faults_and_links_show_in_the_latency() {
    let one_link = |mix: &str| FleetOptions {
        mix: Some(mix.to_owned()),
        ..options()
    };
    // Even on a busy machine, no request can be faster than its waits.
    let slow_store = FleetOptions {
        faults: vec!["store.read=+20ms".to_owned()],
        ..one_link("fast=100")
    };
    let slow_store = load(slow_store).await;
    // Five properties and three parts of candidates are read one after the other.
    assert!(
        slow_store.latency.min_ns >= 8 * 20_000_000,
        "store.read=+20ms\n{slow_store}"
    );
    let slow_link = load(one_link("3g=100")).await;
    assert!(
        slow_link
            .links
            .iter()
            .all(|link| link.link == LinkKind::Slow3g)
    );
    // Even the smallest page takes longer at 1.6 Mbit/s.
    assert!(
        slow_link.latency.min_ns >= 40_000_000,
        "3g: {} ns\n{slow_link}",
        slow_link.latency.min_ns
    );
    eprintln!(
        "store.read=+20ms: {} ns; 3g: {} ns",
        slow_store.latency.min_ns, slow_link.latency.min_ns
    );
}

/// Starts `newsfeed all` for a minute, and waits until all roles run. Returns the supervisor and
/// the process ids of its children.
fn supervisor() -> (Child, Vec<u32>) {
    let mut supervisor = Command::new(NEWSFEED)
        .args(["all", "--seconds", "60", "--rate", "5"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let stderr = supervisor.stderr.take().expect("piped");
    let pids: Vec<u32> = BufReader::new(stderr)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| {
            line.rsplit_once("pid ")
                .and_then(|(_, pid)| pid.parse().ok())
        })
        .take(4)
        .collect();
    assert_eq!(pids.len(), 4);
    // The client comes last, and is a child like the others.
    std::thread::sleep(Duration::from_millis(300));
    let all = children(supervisor.id());
    assert!(
        pids.iter().all(|pid| all.contains(pid)),
        "{pids:?} are among {all:?}"
    );
    assert_eq!(all.len(), 5, "four roles and the client");
    (supervisor, all)
}

fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .expect("/proc")
        .map_while(Result::ok);
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let mut stat = String::new();
            let read = std::fs::File::open(format!("/proc/{pid}/stat"))
                .and_then(|mut file| file.read_to_string(&mut stat));
            let parent_of = stat
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(1));
            read.is_ok() && parent_of == Some(&*parent.to_string())
        })
        .collect()
}

#[test]
fn a_killed_supervisor_leaves_nothing() {
    let (mut supervisor, pids) = supervisor();
    supervisor.kill().expect("killed");
    supervisor.wait().expect("reaped");
    assert_gone(&pids);
}

#[test]
fn an_interrupted_supervisor_leaves_nothing() {
    for signal in ["-INT", "-TERM"] {
        let (mut supervisor, pids) = supervisor();
        let sent = Command::new("kill")
            .args([signal, &supervisor.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        assert_eq!(
            supervisor.wait().expect("ended").code(),
            Some(130),
            "after {signal}"
        );
        assert_gone(&pids);
    }
}

#[track_caller]
fn check_error(args: &[&str], status: i32, expected: &[&str]) {
    let output: Output = Command::new(NEWSFEED)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    for part in expected {
        assert!(text.contains(part), "{text} lacks {part}");
    }
}

#[test]
fn errors_name_what_and_where() {
    check_error(
        &["store", "--fault", "store.reed=+5ms"],
        2,
        &["store.reed", "store.read=+DURATION"],
    );
    check_error(&["all", "--mix", "fast=10"], 2, &["sum to 10"]);
    check_error(&["all", "--rate", "-3"], 2, &["-3"]);
    check_error(&["all", "--rate", "0"], 1, &["a rate of 0 requests/s"]);
    check_error(&["balancer"], 2, &["balancer"]);
    let unreachable = [
        "edge",
        "--web",
        "http://127.0.0.1:1",
        "--patience-ms",
        "100",
    ];
    check_error(
        &unreachable,
        1,
        &["newsfeed edge: cannot reach the web at http://127.0.0.1:1"],
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("its address").to_string();
    check_error(
        &["store", "--listen", &address],
        1,
        &["newsfeed store: cannot listen on", &address],
    );
    check_error(
        &["store", "--directory", "/nonexistent"],
        1,
        &["/nonexistent/newsfeed-store-", "--directory"],
    );
}
