//! The command line: output and exit status.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{ShipOutcome, ShipRequest};

fn stroboscope(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a verb and expects its exit status and parts of both its outputs.
fn check(directory: &Path, arguments: &[&str], status: i32, out: &str, err: &str) -> String {
    let output = stroboscope(arguments, directory);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}\n{stdout}\n{stderr}"
    );
    assert!(stdout.contains(out), "{arguments:?}: {out}\n{stdout}");
    assert!(stderr.contains(err), "{arguments:?}: {err}\n{stderr}");
    stdout
}

fn json_of(directory: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&check(directory, arguments, 0, "", "")).unwrap()
}

/// Two requests: a server sends, then a page shows, and a logger writes in parallel. The page of
/// the second is slower.
fn log() -> String {
    let event = |trace: &str, ts_ns: u64, task: &str, event: &str| {
        format!(
            r#"{{"trace":"{trace}","host":"h","ts_ns":{ts_ns},"event":"{event}","task":"{task}"}}"#
        ) + "\n"
    };
    let mut log = String::new();
    for (trace, begin, shown) in [("request one", 1_000, 1_120), ("request two", 5_000, 5_140)] {
        log += &event(trace, begin, "server", "begin");
        log += &event(trace, begin + 80, "server", "sent");
        log += &event(trace, begin + 95, "page", "begin");
        log += &event(trace, shown, "page", "shown");
        log += &event(trace, begin + 10, "logger", "open");
        log += &event(trace, begin + 100, "logger", "close");
    }
    log
}

fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("log.jsonl"), log()).unwrap();
    check(
        directory.path(),
        &["import", "log.jsonl"],
        0,
        "log.jsonl: 12 events, 0 bad lines",
        "",
    );
    directory
}

#[test]
fn infer_says_what_happens_before_what() {
    let directory = imported();
    let found = json_of(directory.path(), &["infer", "--json"]);
    assert_eq!(
        (&found["traces"], &found["complete_traces"]),
        (&json!(2), &json!(2))
    );
    let id = |task: &str| {
        let segments = found["segments"].as_array().unwrap();
        let segment = segments
            .iter()
            .find(|segment| segment["task"] == task)
            .unwrap();
        assert_eq!(segment["count"], 2);
        segment["id"].as_u64().unwrap()
    };
    assert_eq!(found["segments"].as_array().unwrap().len(), 3);
    assert_eq!(found["happens_before"], json!([[id("server"), id("page")]]));
    assert_eq!(found["mutual_exclusion"], json!([]));
    assert_eq!(found["pipelines"], json!([]));
    check(
        directory.path(),
        &["infer"],
        0,
        "1 pair in which one happens before the other",
        "",
    );
    check(directory.path(), &["model"], 0, "\nserver ", "");
    let dot = check(
        directory.path(),
        &["model", "--dot"],
        0,
        "digraph model",
        "",
    );
    assert_eq!(dot.matches(" -> ").count(), 1);
    let model = json_of(directory.path(), &["model", "--json"]);
    assert_eq!(model["happens_before"][0]["traces"], 2);
}

#[test]
fn a_request_is_found_by_the_end_of_its_id() {
    let directory = tempfile::tempdir().unwrap();
    let id = "0123456789abcdef0fedcba987654321";
    let log = log().replace("request two", id);
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(directory.path(), &["import", "log.jsonl"], 0, "", "");
    for (trace, status, out, err) in [
        (&id[16..], 0, "140ns", ""),
        ("0fedcba987654322", 2, "", "no trace 0fedcba987654322"),
    ] {
        let arguments = ["critical-path", "--trace", trace];
        check(directory.path(), &arguments, status, out, err);
    }
}

#[test]
fn the_critical_path_is_as_long_as_the_request() {
    let directory = imported();
    let one = json_of(
        directory.path(),
        &["critical-path", "--json", "--trace", "request one"],
    );
    assert_eq!(one["trace"], "request one");
    assert_eq!(
        (&one["latency_ns"], &one["critical_path_ns"]),
        (&json!(120), &json!(120))
    );
    let segment = |task: &str| {
        one["segments"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["task"] == task)
            .unwrap()
            .clone()
    };
    assert_eq!(
        (&segment("page")["wait_ns"], &segment("page")["critical"]),
        (&json!(15), &json!(true))
    );
    assert_eq!(
        (
            &segment("logger")["critical"],
            &segment("logger")["slack_ns"]
        ),
        (&json!(false), &json!(20))
    );
    let all = json_of(directory.path(), &["critical-path", "--json"]);
    assert_eq!(all["used_traces"], 2);
    let shares: f64 = all["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["mean_share"].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let each = check(
        directory.path(),
        &["critical-path", "--json", "--each"],
        0,
        "",
        "",
    );
    let traces: Vec<Value> = each
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        traces.len() == 2
            && traces
                .iter()
                .all(|trace| trace["latency_ns"] == trace["critical_path_ns"])
    );
    check(
        directory.path(),
        &["critical-path"],
        0,
        "2 requests; latency p50 120ns",
        "",
    );
    check(
        directory.path(),
        &["critical-path", "--trace", "request two"],
        0,
        "Trace request two: 140ns",
        "",
    );
    check(
        directory.path(),
        &["critical-path", "--trace", "request three"],
        2,
        "",
        "no trace request three",
    );
    let slack = json_of(directory.path(), &["slack", "--json"]);
    assert_eq!(slack["segments"][0]["task"], "logger");
    check(directory.path(), &["slack"], 0, "logger", "");
}

#[test]
fn imports_exit_by_what_became_of_the_lines() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let many_bad: String = (0..30).map(|i| format!("bad {i}\n")).collect();
    std::fs::write(at.join("mixed.jsonl"), many_bad + &log()).unwrap();
    std::fs::write(at.join("empty.jsonl"), "").unwrap();
    let output = stroboscope(&["import", "mixed.jsonl"], at);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("mixed.jsonl:1: expected value") && errors.contains("10 more lines"),
        "{errors}"
    );
    assert_eq!(errors.matches("mixed.jsonl:").count(), 21, "{errors}");
    // A retry does not hide what is missing.
    let again = "imported before, from mixed.jsonl (12 events, 30 bad lines)";
    check(at, &["import", "mixed.jsonl"], 1, "", again);
    check(
        at,
        &["import", "empty.jsonl"],
        2,
        "",
        "no event that can be used",
    );
    check(at, &["import", "gone.jsonl"], 2, "", "gone.jsonl");
    check(
        at,
        &["import", "gone.jsonl", "mixed.jsonl"],
        1,
        "",
        "gone.jsonl",
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["import", "--data", "other", "-"])
        .current_dir(at)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(log().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("standard input: 12 events"));
}

#[test]
fn a_directory_without_traces_says_what_to_run() {
    let directory = tempfile::tempdir().unwrap();
    for verb in ["infer", "model", "critical-path", "slack", "anomalies"] {
        check(directory.path(), &[verb], 2, "", "stroboscope collect");
        check(
            directory.path(),
            &[verb, "--data", "."],
            2,
            "",
            "holds no data of Stroboscope",
        );
    }
    // A collector that receives nothing leaves a directory like this one.
    let made = directory.path().join("made");
    std::fs::create_dir_all(made.join("wal")).unwrap();
    check(
        directory.path(),
        &["infer", "--data", "made"],
        2,
        "",
        "holds no traces yet",
    );
    std::fs::write(directory.path().join("file"), "").unwrap();
    check(
        directory.path(),
        &["infer", "--data", "file"],
        2,
        "",
        "not a directory",
    );
}

#[test]
fn a_damaged_file_is_named_and_shows_in_the_exit_status() {
    let directory = imported();
    let data = directory
        .path()
        .join("stroboscope-data/events/date=1970-01-01/hour=00");
    std::fs::write(data.join("seg-0000000009.parquet"), "not parquet").unwrap();
    let found = check(
        directory.path(),
        &["infer", "--json"],
        1,
        "",
        "seg-0000000009.parquet is damaged",
    );
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["traces"], 2);
    assert!(
        found["damaged_files"][0]["file"]
            .as_str()
            .unwrap()
            .ends_with("seg-0000000009.parquet")
    );
}

#[test]
fn bursts_are_explained_and_planned() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    check(
        at,
        &["burst", "--config", "0b11100"],
        0,
        "4 ms every 32 ms",
        "",
    );
    let found = json_of(at, &["burst", "--config", "4ms/32ms", "--json"]);
    assert_eq!(
        (&found["config"], &found["duty"], &found["period_ms"]),
        (&json!(28), &json!(0.125), &json!(32))
    );
    for window in found["windows"].as_array().unwrap() {
        let (open, close) = (
            window["open_ms"].as_u64().unwrap(),
            window["close_ms"].as_u64().unwrap(),
        );
        assert!((open..close).all(|ms| ms & 28 == 28) && close & 28 != 28);
    }
    check(
        at,
        &["burst", "--request", "3ms", "--duty", "5%"],
        0,
        "32 ms every 1024 ms",
        "",
    );
    check(at, &["burst", "--config", "often"], 2, "", "often");
    check(at, &["burst"], 2, "", "--config");
    check(at, &["burst", "--request", "3"], 2, "", "500us, 3ms, 10s");
}

#[cfg(not(feature = "sql"))]
#[test]
fn sql_says_how_to_get_it() {
    let directory = tempfile::tempdir().unwrap();
    check(
        directory.path(),
        &["sql", "SELECT 1"],
        2,
        "",
        "--features sql",
    );
}

#[cfg(feature = "sql")]
#[test]
fn sql_reads_the_tables() {
    let directory = imported();
    check(
        directory.path(),
        &[
            "sql",
            "SELECT count(*) AS n FROM events WHERE date = '1970-01-01'",
        ],
        0,
        "| 12 |",
        "",
    );
    check(
        directory.path(),
        &[
            "sql",
            "--json",
            "SELECT task, count(*) AS n FROM events GROUP BY task ORDER BY task",
        ],
        0,
        r#"{"task":"logger","n":4}"#,
        "",
    );
    check(
        directory.path(),
        &["sql", "SELECT nothing FROM events"],
        2,
        "",
        "nothing",
    );
}

#[test]
fn help_names_every_verb() {
    let directory = tempfile::tempdir().unwrap();
    let help = check(directory.path(), &["--help"], 0, "", "");
    for verb in [
        "collect",
        "import",
        "infer",
        "model",
        "critical-path",
        "slack",
        "anomalies",
        "what-if",
        "burst",
        "sql",
    ] {
        assert!(help.contains(&format!("  {verb} ")), "{verb}\n{help}");
        check(
            directory.path(),
            &[verb, "--help"],
            0,
            "Usage: stroboscope",
            "",
        );
    }
    check(
        directory.path(),
        &["infer", "--tolerance", "2"],
        2,
        "",
        "from 0 to 1",
    );
    check(directory.path(), &["dance"], 2, "", "dance");
}

struct Collecting {
    child: Child,
    address: String,
}

/// Starts `collect` on free ports, and waits until it prints them.
fn collect(directory: &PathBuf) -> Collecting {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args([
            "collect",
            "--listen",
            "127.0.0.1:0",
            "--otlp-http",
            "none",
            "--http",
            "127.0.0.1:0",
            "--flush-interval",
            "1h",
            "--data",
            "data",
        ])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first
        .strip_prefix("collecting on grpc ")
        .unwrap()
        .to_owned();
    // The rest is read too, or the child would find its output closed.
    std::thread::spawn(move || lines.for_each(drop));
    Collecting { child, address }
}

async fn ship(address: &str, sequences: std::ops::Range<u64>) -> usize {
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = CollectorClient::new(channel.connect().await.unwrap());
    let requests: Vec<_> = sequences
        .map(|sequence| ShipRequest {
            batch: Some(batch(3, sequence, 3)),
        })
        .collect();
    let mut replies = client
        .ship(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut stored = 0;
    while let Some(reply) = replies.message().await.unwrap() {
        stored += usize::from(reply.outcome() == ShipOutcome::Stored);
    }
    stored
}

#[test]
fn a_killed_collector_loses_nothing_it_acknowledged() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().to_owned();
    let mut first = collect(&at);
    assert_eq!(runtime.block_on(ship(&first.address, 0..40)), 40);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    // A query reads the log, because no collector is running.
    let found = json_of(
        &at,
        &["infer", "--json", "--include-incomplete", "--data", "data"],
    );
    assert_eq!(found["traces"], 40);
    let mut second = collect(&at);
    check(
        &at,
        &["collect", "--listen", "127.0.0.1:0", "--data", "data"],
        2,
        "",
        "another stroboscope",
    );
    assert_eq!(runtime.block_on(ship(&second.address, 20..60)), 20);
    // A collector that is terminated flushes everything into the store.
    let kill = Command::new("kill")
        .args(["-TERM", &second.child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert!(second.child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(at.join("data/wal")).unwrap().count(), 0);
    let found = json_of(
        &at,
        &["infer", "--json", "--include-incomplete", "--data", "data"],
    );
    assert_eq!(found["traces"], 60);
    let count: u64 = found["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["count"].as_u64().unwrap())
        .sum();
    assert!(count >= 180, "{count}");
}
