//! Untrusted names never control a terminal, in the output of any subcommand.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

/// Text that sets colours and a title, and reverses the direction of text.
const NASTY: &str = "pa\u{1b}[31mge\u{1b}]0;owned\u{7}\u{202e}\u{9b}32m";

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut spans = Vec::new();
    for request in 1..=60u64 {
        let slow_us = if request % 20 == 0 { 900 } else { 0 };
        for (id, parent, name, kind, from_us, to_us) in [
            (1, 0, "root", "SERVER", 0, 1_000 + slow_us),
            (2, 1, "inner", "CLIENT", 100, 700 + slow_us),
        ] {
            let mut span = json!({
                "traceId": format!("{request:032x}"),
                "id": format!("{:016x}", request * 10 + id),
                "name": format!("{name} {NASTY}"),
                "timestamp": 1_700_000_000_000_000u64 + request * 10_007 + from_us,
                "duration": to_us - from_us,
                "kind": kind,
                "localEndpoint": {"serviceName": format!("web{NASTY}")},
                "tags": {NASTY: format!("{NASTY}{}", request % 3), "user": format!("{NASTY}{}", request % 3)},
            });
            if parent > 0 {
                span["parentId"] = json!(format!("{:016x}", request * 10 + parent));
            }
            spans.push(span);
        }
    }
    std::fs::write(
        directory.path().join("spans.json"),
        json!(spans).to_string(),
    )
    .unwrap();
    let log: String = (0..20u64)
        .flat_map(|request| (0..3u64).map(move |step| (request, step)))
        .map(|(request, step)| {
            let ts_ns = 1_700_000_000_000_000_000 + request * 1_000_003 + step * 1_017;
            let line = json!({"trace": format!("r{NASTY}{request}"), "host": format!("h{NASTY}"), "ts_ns": ts_ns,
                "event": format!("e{step}{NASTY}"), "task": format!("t{NASTY}")});
            format!("{line}\n")
        })
        .collect();
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    for file in ["spans.json", "log.jsonl"] {
        assert!(run(directory.path(), &["import", file]).status.success());
    }
    directory
}

#[test]
fn no_verb_lets_an_escape_through() {
    let directory = imported();
    let log_trace = format!("r{NASTY}1");
    let span_trace = format!("{:032x}", 20);
    let attribute = [&["critical-path", "--by"][..], &["user"]].concat();
    let verbs: [&[&str]; 26] = [
        &["infer"],
        &["model"],
        &["model", "--dot"],
        &["critical-path"],
        &["critical-path", "--full-names"],
        &["critical-path", "--cdf"],
        &attribute,
        &["critical-path", "--trace", &span_trace],
        &["critical-path", "--trace", &log_trace],
        &["critical-path", "--each"],
        &["critical-path", "--json"],
        &["infer", "--json"],
        &["timeline", "--trace", &span_trace, "--json"],
        // Without the feature `sql`, this prints an error.
        &["sql", "--json", "SELECT * FROM spans LIMIT 3"],
        &["slack"],
        &["slack", "--validate"],
        &["anomalies"],
        &["what-if", "--segment", ".", "--scale", "0.5"],
        &["predict"],
        &["clocks"],
        &["timeline"],
        &["timeline", "--trace", &span_trace],
        &["timeline", "--trace", &log_trace],
        &["critical-path", "--root", NASTY],
        &["critical-path", "--by", NASTY],
        &["report", "--html", "report.html"],
    ];
    let mut shown = 0;
    for arguments in verbs {
        let output = run(directory.path(), arguments);
        for (stream, bytes) in [("output", &output.stdout), ("error", &output.stderr)] {
            let text = String::from_utf8_lossy(bytes);
            let is_raw = |c: char| c.is_control() || c == '\u{202e}';
            let raw = text.lines().find(|line| line.contains(is_raw));
            assert!(raw.is_none(), "{arguments:?}, standard {stream}: {raw:?}");
            shown += usize::from(text.contains("[31m"));
        }
    }
    assert!(
        shown > 12,
        "only {shown} texts show the names: this test has gone blind"
    );
}
