//! A store that somebody has made hard to read: each verb and each page answers, or refuses clearly, within its memory.
//!
//! `STROBOSCOPE_POISON=whole` makes it as large as somebody who means harm would.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use stroboscope_store::tables::{PartitionRule, Store, write_rows};
use stroboscope_testkit::poisoned::{DEEP, LARGE, Poison};
use tempfile::TempDir;

/// Less than the large request takes.
const LIMIT: &str = "64MiB";
/// More nobody reads of a page.
const PAGE_BYTES_MAX: usize = 4 << 20;

fn poison() -> Poison {
    match std::env::var("STROBOSCOPE_POISON").as_deref() {
        Ok("whole") => Poison::WHOLE,
        _ => Poison::SMALL,
    }
}

fn poisoned() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(&folder.path().join("data"), runtime.handle().clone()).unwrap();
    let rows = poison().rows();
    let at_ns = rows.batches[0].received_ns;
    let rule = PartitionRule::received(at_ns, at_ns);
    write_rows(&store, "seg-0000000001", rows, &rule).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
    let asked = program.args(arguments).args(["--data", "data"]);
    asked.current_dir(folder).output().unwrap()
}

/// It ended by itself, and said why if there is no answer.
#[track_caller]
fn check(folder: &Path, arguments: &[&str]) -> (String, bool) {
    let output = run(folder, arguments);
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
    let folder = poisoned();
    let (large, deep) = (format!("{LARGE:032x}"), format!("{DEEP:032x}"));
    let operation = "service-00001:operation 1";
    let periods = [
        "--before",
        "2026-01-02T03:00:00..2026-01-02T03:00:01",
        "--after",
        "2026-01-02T03:00:01..2026-01-02T03:00:02",
    ];
    let limited: [&[&str]; 14] = [
        &["infer"],
        &["critical-path"],
        &["critical-path", "--each"],
        &["critical-path", "--trace", &deep],
        &["slack"],
        &["anomalies"],
        &["what-if", "--operation", operation, "--scale", "0.5"],
        &["predict"],
        &["flows"],
        &["clocks"],
        &["search", "{ name = \"operation 7\" }"],
        &["tradeoffs", "log"],
        &["report", "--html", "report.html"],
        &["model", "--json"],
    ];
    let mut lacking = 0;
    for verb in limited {
        let arguments = [verb, &["--memory-limit", LIMIT]].concat();
        let (said, _) = check(folder.path(), &arguments);
        let lacks = [
            "too large for the memory",
            "labels_full",
            "that one query may (--memory-limit)",
        ];
        let is_said = lacks.iter().any(|lack| said.contains(lack));
        lacking += usize::from(is_said);
    }
    let compared = [&["compare"][..], &periods, &["--memory-limit", LIMIT]].concat();
    check(folder.path(), &compared);
    assert!(
        lacking >= 12,
        "only {lacking} verbs say what there is no memory for"
    );
    for verb in [
        &["timeline"][..],
        &["timeline", "--trace", &large],
        &["timeline", "--trace", &deep],
    ] {
        check(folder.path(), verb);
    }
    // With enough of it, nothing is.
    let (said, is_answered) = check(folder.path(), &["critical-path", "--memory-limit", "4GiB"]);
    assert!(is_answered && !said.contains("too large"), "{said}");
}

/// A program that is ended when the test is.
struct Viewing {
    program: Child,
    address: String,
}

impl Drop for Viewing {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Viewing {
    fn of(folder: &Path) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .args([
                "view",
                "--data",
                "data",
                "--http",
                "127.0.0.1:0",
                "--memory-limit",
                "256MiB",
            ])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(program.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("pages on http://").unwrap();
        let address = address.trim_end_matches('/').to_owned();
        Self { program, address }
    }

    fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let address = &self.address;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn peak_mib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.program.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .unwrap()
            >> 10
    }
}

#[test]
fn every_page_is_small_or_refused_and_memory_stays_within_the_limit() {
    let folder = poisoned();
    let viewing = Viewing::of(folder.path());
    let overview = viewing.page("/");
    let (_, header) = overview.split_once("<nav").unwrap();
    let (header, _) = header.split_once("</nav>").unwrap();
    let links = header.split("href=\"").skip(1);
    let mut paths: Vec<String> = links
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    assert!(paths.len() > 15, "{paths:?}");
    paths.push(format!("/traces/{DEEP:032x}"));
    for path in &paths {
        let page = viewing.page(path);
        assert!(page.len() < PAGE_BYTES_MAX, "{path}: {} bytes", page.len());
        assert!(!page.contains("fell over"), "{path}");
        let said = page.split("<main").nth(1).unwrap_or(&page);
        let is_page = page.starts_with("HTTP/1.1 200 ") || page.starts_with("HTTP/1.1 4");
        assert!(is_page, "{path}: {said}");
    }
    // The large request is refused with the way to a part of it, which is there.
    let large = format!("/traces/{LARGE:032x}");
    let refused = viewing.page(&large);
    let spans = poison().spans_of_large.to_string();
    for part in [&*spans, "MiB", "?spans=5000"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let part = viewing.page(&format!("{large}?spans=5000"));
    assert!(part.starts_with("HTTP/1.1 200 "), "{part}");
    assert!(part.contains("first 5000 of its "), "{part}");
    let columns = viewing.page(&format!("{large}/columns?spans=5000"));
    assert!(columns.starts_with("HTTP/1.1 200 "), "{columns}");
    let span = viewing.page(&format!("{large}/spans/{:016x}?spans=5000", 1));
    assert!(span.starts_with("HTTP/1.1 200 "), "{span}");
    let peak_mib = viewing.peak_mib();
    assert!(peak_mib < 282, "{peak_mib} MiB of 256");
}
