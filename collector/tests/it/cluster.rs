//! Reports with `--cluster` over real workers, which print what one run prints.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{check, others};
use crate::report_shards::damage;
use crate::shards::{self, REPORTS, imported, otlp, simulated, walk};

/// A worker process, killed when dropped.
pub(crate) struct Worker {
    child: Child,
    pub(crate) address: String,
}

impl Worker {
    /// Starts a worker on a store below `directory`, and waits until it listens.
    pub(crate) fn start(directory: &Path, data: &str, more: &[&str]) -> Self {
        Self::start_at(directory, data, "127.0.0.1:0", more)
    }

    pub(crate) fn start_at(directory: &Path, data: &str, listen: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
        command.args(["worker", "--data", data, "--listen", listen]);
        Self::of(command.args(more).current_dir(directory))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        assert!(line.starts_with("worker of"), "{line}");
        Self {
            address: address.to_owned(),
            child,
        }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the value of `--cluster` for these workers.
pub(crate) fn cluster(workers: &[Worker]) -> String {
    let addresses: Vec<&str> = workers.iter().map(|worker| &*worker.address).collect();
    addresses.join(",")
}

/// Runs a subcommand like [`run`](crate::shards::run), without lines of progress, which a busy
/// machine shows.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let (status, out, said) = shards::run(directory, arguments);
    let is_progress = |line: &&str| line.ends_with(" traces") || line.ends_with(" shards");
    let lines = said.lines().filter(|line| !is_progress(line));
    let said = lines.map(|line| format!("{line}\n")).collect();
    (status, out, said)
}

/// Removes cached models, which would spare a driver the inference.
pub(crate) fn forget(directory: &Path) {
    let cache = directory.join("data/cache");
    if cache.exists() {
        std::fs::remove_dir_all(cache).unwrap();
    }
}

/// Compares the JSON of a report of workers with that of one run, byte for byte, and exit status
/// and standard error. `data` is that of the driver. Returns the exit status.
fn check_same(
    directory: &Path,
    workers: &[Worker],
    data: &str,
    report: &str,
    more: &[&str],
) -> Option<i32> {
    let asked = [&[report, "--data", data, "--json"], more].concat();
    let cluster = cluster(workers);
    // The driver runs first, because the run without workers caches the model.
    let found = run(directory, &[&asked[..], &["--cluster", &cluster]].concat());
    let expected = run(directory, &asked);
    assert!(
        found == expected,
        "{report} {more:?}\n{found:?}\n{expected:?}"
    );
    found.0
}

/// Compares like [`check_same`], but the text and the page instead of the JSON.
fn check_same_text(directory: &Path, workers: &[Worker], report: &str) {
    let page = || std::fs::read_to_string(directory.join("page.html")).unwrap();
    let asked = [report, "--data", "data", "--html", "page.html"];
    let cluster = cluster(workers);
    let found = run(directory, &[&asked[..], &["--cluster", &cluster]].concat());
    let found_page = page();
    let expected = run(directory, &asked);
    assert!(found == expected, "{report}\n{found:?}\n{expected:?}");
    assert!(found_page == page(), "{report}");
}

fn started(directory: &Path, count: usize) -> Vec<Worker> {
    let worker = |_| Worker::start(directory, "data", &[]);
    (0..count).map(worker).collect()
}

#[test]
fn workers_print_what_one_run_prints() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    simulated(at, 5, 60);
    for (count, report) in [1, 2, 4, 2, 3, 2].into_iter().zip(REPORTS) {
        let workers = started(at, count);
        forget(at);
        let status = check_same(at, &workers, "data", report, &[]);
        assert_eq!(status, Some(0), "{report}");
    }
    let workers = started(at, 2);
    // The model is cached.
    check_same_text(at, &workers, "infer");
    check_same_text(at, &workers, "critical-path");
    let more = [
        "--tolerance",
        "0.05",
        "--include-incomplete",
        "--exclude",
        "rank",
    ];
    check_same(at, &workers, "data", "slack", &more);
    let by_host = ["--category-by", "host", "--top", "3"];
    check_same(at, &workers, "data", "critical-path", &by_host);
    let within = [
        "--since",
        "2026-01-02T03:00:00.02Z",
        "--until",
        "2030-01-01",
    ];
    check_same(at, &workers, "data", "operations", &within);
}

#[test]
fn another_systems_requests_are_read_alike() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(3, 30, 0));
    for count in [1, 2, 4] {
        let workers = started(at, count);
        for report in REPORTS {
            forget(at);
            let status = check_same(at, &workers, "data", report, &[]);
            assert_ne!(status, Some(2), "{report}");
        }
    }
    let workers = started(at, 3);
    let some = ["--root", "front:page", "--where", "{ duration > 1ms }"];
    check_same(at, &workers, "data", "infer", &some);
    check_same(at, &workers, "data", "operations", &some);
    // No request is of that time, or of that root operation.
    check_same(at, &workers, "data", "slack", &["--since", "2030-01-01"]);
    check_same(at, &workers, "data", "infer", &["--root", "no:such"]);
    let requests = ["--request", "back:load"];
    check_same(at, &workers, "data", "infer", &requests);
    let Some(path) = others("cases/sampled-and-scopes.json") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    check(at, &["import", path.to_str().unwrap(), "--data", "data"], 0);
    let workers = started(at, 2);
    for report in REPORTS {
        check_same(at, &workers, "data", report, &["--include-incomplete"]);
    }
}

/// The first traces suggest another alignment than all traces do, so the driver repeats the
/// inference.
#[test]
fn clocks_take_a_second_round() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(7, 700, 5_000_000));
    let workers = started(at, 2);
    for report in ["infer", "critical-path"] {
        forget(at);
        check_same(at, &workers, "data", report, &[]);
    }
}

#[test]
fn damage_is_reported_as_by_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for seed in [6, 7] {
        imported(at, &otlp(seed, 40, 0));
    }
    damage(at);
    let workers = started(at, 2);
    for report in ["infer", "slack"] {
        check_same(at, &workers, "data", report, &[]);
    }
    let more = ["--category-by", "no-such"];
    check_same(at, &workers, "data", "critical-path", &more);
}

/// Workers and driver read a published store by its URL.
#[test]
fn an_object_store_is_read_alike() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(3, 60, 0));
    let url = format!("file://{}/published", at.display());
    let mut collector = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["collect", "--data", "data", "--publish", &url])
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(["--otlp-http", "none"])
        .current_dir(at)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let is_published = || {
        let found = walk(at).into_iter();
        let mut found = found.filter(|file| file.ends_with("manifest.json"));
        found.any(|file| std::fs::read_to_string(file).unwrap().contains("spans/"))
    };
    for _ in 0..600 {
        if is_published() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let id = rustix::process::Pid::from_child(&collector);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    collector.wait().unwrap();
    assert!(is_published());
    let worker = |_| Worker::start(at, &url, &[]);
    let workers: Vec<Worker> = (0..2).map(worker).collect();
    for report in ["infer", "operations"] {
        let status = check_same(at, &workers, &url, report, &[]);
        assert_eq!(status, Some(0), "{report}");
    }
}

/// Processor time of children of this process that have ended.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // User and system time of children, in hundredths of a second.
    let ticks: u64 = fields[13..15]
        .iter()
        .map(|of| of.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(10 * ticks)
}

/// Compares the processor time of reports by one run and by workers, all on one core, so that they
/// do not slow each other: `STROBOSCOPE_CLUSTER_REQUESTS=120000 cargo test … -- --ignored
/// --nocapture cluster_costs`.
#[test]
#[ignore = "measures; takes minutes"]
fn cluster_costs() {
    let asked = std::env::var("STROBOSCOPE_CLUSTER_REQUESTS").ok();
    let requests = asked.map_or(5_000, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    simulated(at, 5, requests);
    let pinned = || {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", env!("CARGO_BIN_EXE_stroboscope")]);
        command.current_dir(at);
        command
    };
    let timed = |arguments: &[&str]| {
        let before = spent();
        let output = pinned().args(arguments).output().unwrap();
        assert!(output.status.success());
        (spent() - before).as_secs_f64()
    };
    for report in ["infer", "slack"] {
        let asked = [report, "--data", "data", "--json"];
        forget(at);
        println!("{report}: one run {:.2} s", timed(&asked));
        for count in [1, 2] {
            forget(at);
            let worker = |_| {
                let worker = ["worker", "--data", "data", "--listen", "127.0.0.1:0"];
                Worker::of(pinned().args(worker))
            };
            let workers: Vec<Worker> = (0..count).map(worker).collect();
            let addresses = cluster(&workers);
            let driver = timed(&[&asked[..], &["--cluster", &addresses]].concat());
            let each = workers.into_iter().map(|worker| {
                let before = spent();
                drop(worker);
                format!("{:.2}", (spent() - before).as_secs_f64())
            });
            let each = each.collect::<Vec<_>>().join(", ");
            println!("  {count} workers: driver {driver:.2} s, workers {each} s");
        }
    }
}
