//! A store that an attacker has made hard to read: each subcommand and each page answers within its
//! memory, or rejects the request clearly.
//!
//! `STROBOSCOPE_POISON=whole` makes the store as large as an attacker would.

use std::path::Path;
use std::process::{Command, Output};

use stroboscope_fixtures::poisoned::{DEEP, LARGE, Poison};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};
use tempfile::TempDir;

use super::viewing::Viewing;

/// Memory limit that is less than the large request takes.
const LIMIT: &str = "64MiB";
/// Maximum acceptable length of a page.
const PAGE_BYTES_MAX: usize = 4 << 20;

fn poison() -> Poison {
    match std::env::var("STROBOSCOPE_POISON").as_deref() {
        Ok("whole") => Poison::WHOLE,
        _ => Poison::SMALL,
    }
}

fn poisoned() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(&directory.path().join("data"), runtime.handle().clone()).unwrap();
    let rows = poison().rows();
    let at_ns = rows.batches[0].received_ns;
    let rule = PartitionRule::received(at_ns, at_ns);
    write_rows(&store, "seg-0000000001", rows, &rule).unwrap();
    directory
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
    let asked = program.args(arguments).args(["--data", "data"]);
    asked.current_dir(directory).output().unwrap()
}

/// Checks that the program ended by itself, and gave a reason if it has no answer.
#[track_caller]
fn check(directory: &Path, arguments: &[&str]) -> (String, bool) {
    let output = run(directory, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    assert!(
        matches!(code, Some(0..=2)),
        "{arguments:?}: {code:?}: {said}"
    );
    assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    let is_answered = code == Some(0);
    assert!(is_answered || !said.trim().is_empty(), "{arguments:?}");
    (said, is_answered)
}

#[test]
fn every_verb_answers_or_refuses_clearly() {
    let directory = poisoned();
    let (large, deep) = (format!("{LARGE:032x}"), format!("{DEEP:032x}"));
    let operation = "service-00001:operation 1";
    let periods = [
        "--before",
        "2026-01-02T03:00:00..2026-01-02T03:00:01",
        "--after",
        "2026-01-02T03:00:01..2026-01-02T03:00:02",
    ];
    let limited: [&[&str]; 15] = [
        &["infer"],
        &["critical-path"],
        &["critical-path", "--each"],
        &["critical-path", "--trace", &deep],
        &["slack"],
        &["anomalies"],
        &["what-if", "--operation", operation, "--scale", "0.5"],
        &["predict"],
        &["flows"],
        &["failures"],
        &["clocks"],
        &["search", "{ name = \"operation 7\" }"],
        &["tradeoffs", "log"],
        &["report", "--html", "report.html"],
        &["model", "--json"],
    ];
    let mut lacking = 0;
    for verb in limited {
        let arguments = [verb, &["--memory-limit", LIMIT]].concat();
        let (said, _) = check(directory.path(), &arguments);
        let lacks = [
            "too large for the memory",
            "labels_full",
            "allowed for one query (--memory-limit)",
        ];
        let is_said = lacks.iter().any(|lack| said.contains(lack));
        lacking += usize::from(is_said);
    }
    let compared = [&["compare"][..], &periods, &["--memory-limit", LIMIT]].concat();
    check(directory.path(), &compared);
    assert!(
        lacking >= 12,
        "only {lacking} verbs say what there is no memory for"
    );
    for verb in [
        &["timeline"][..],
        &["timeline", "--trace", &large],
        &["timeline", "--trace", &deep],
    ] {
        check(directory.path(), verb);
    }
    // With enough memory, no request is too large.
    let (said, is_answered) = check(
        directory.path(),
        &["critical-path", "--memory-limit", "4GiB"],
    );
    assert!(is_answered && !said.contains("too large"), "{said}");
}

/// Returns the maximum resident memory of a process so far, in MiB.
fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    kb.unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn every_page_is_small_or_refused_and_memory_stays_within_the_limit() {
    let directory = poisoned();
    let viewing = Viewing::start(directory.path(), &["--memory-limit", "256MiB"]);
    let get = |path: &str| viewing.ask(&format!("GET {path}"), "");
    let mut paths = viewing.links();
    assert!(paths.len() > 15, "{paths:?}");
    paths.push(format!("/traces/{DEEP:032x}"));
    for path in &paths {
        let (head, page) = get(path);
        assert!(page.len() < PAGE_BYTES_MAX, "{path}: {} bytes", page.len());
        assert!(!page.contains("panicked; "), "{path}");
        let is_page = head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 4");
        assert!(is_page, "{path}: {head}");
    }
    // The error page of the large request names the address of a part of it, which works.
    let large = format!("/traces/{LARGE:032x}");
    let (_, refused) = get(&large);
    let spans = poison().spans_of_large.to_string();
    for part in [&*spans, "MiB", "?spans=5000"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let part = viewing.page(&format!("{large}?spans=5000"), 200);
    assert!(part.contains("first 5000 of its "), "{part}");
    for path in ["columns".to_owned(), format!("spans/{:016x}", 1)] {
        let (head, _) = get(&format!("{large}/{path}?spans=5000"));
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    }
    let peak_mib = peak_mib(viewing.pid());
    assert!(peak_mib < 282, "{peak_mib} MiB of 256");
}
