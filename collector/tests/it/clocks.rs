//! `clocks`: its output for hosts whose clocks are wrong, and the stated errors.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::json_of;

const ORIGIN_NS: i64 = 1_767_322_800_000_000_000;

/// Returns the time of a host's clock at a true instant.
fn clock(host: &str, true_ns: i64) -> i64 {
    let elapsed_ns = true_ns - ORIGIN_NS;
    match host {
        "db" => true_ns + 100_000_000 + elapsed_ns / 20_000, // gains 50 ppm
        "cache" => true_ns - 80_000_000 - elapsed_ns / 50_000, // loses 20 ppm
        _ => true_ns,
    }
}

/// Requests over 20 minutes: web calls db, and db calls cache, with 150 to 250 µs in each
/// direction. `alone` calls no service.
fn log() -> String {
    let mut log = String::new();
    let mut write = |trace: i64, host: &str, task: &str, event: &str, true_ns: i64| {
        let ts_ns = clock(host, true_ns);
        log += &format!(
            r#"{{"trace":"r{trace}","host":"{host}","ts_ns":{ts_ns},"event":"{event}","task":"{task}"}}"#
        );
        log.push('\n');
    };
    for request in 0..400 {
        let way_ns = |salt: i64| 150_000 + (request * 7_919 + salt * 104_729) % 100_000;
        let mut now_ns = ORIGIN_NS + request * 3_000_000_000;
        let mut at = |host: &str, event: &str, after_ns: i64| {
            now_ns += after_ns;
            write(request, host, "request", event, now_ns);
        };
        at("web", "begin", 0);
        at("web", "asks db", 400_000);
        at("db", "asked", way_ns(1));
        at("db", "asks cache", 300_000);
        at("cache", "asked", way_ns(2));
        at("cache", "answers", 900_000);
        at("db", "answered", way_ns(3));
        at("db", "answers", 200_000);
        at("web", "answered", way_ns(4));
        at("web", "end", 100_000);
        write(
            request,
            "alone",
            "logger",
            "writes",
            ORIGIN_NS + request * 3_000_000_000,
        );
        write(
            request,
            "alone",
            "logger",
            "wrote",
            ORIGIN_NS + request * 3_000_000_000 + 50_000,
        );
    }
    log
}

fn stroboscope(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text_of(directory: &Path, arguments: &[&str]) -> String {
    let output = stroboscope(directory, arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn imported(log: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    text_of(directory.path(), &["import", "log.jsonl"]);
    directory
}

/// A store of hosts whose clocks differ.
pub(crate) fn stored() -> tempfile::TempDir {
    imported(&log())
}

#[test]
fn offsets_drift_and_rtt_are_within_their_bounds() {
    let directory = imported(&log());
    let report = json_of(
        directory.path(),
        &["clocks", "--json", "--reference", "web"],
    );
    assert_eq!(
        (&report["reference"], &report["differ"]),
        (&Value::from("web"), &Value::from(true))
    );
    assert_eq!(
        (
            report["round_trips"].as_u64(),
            report["contradicting_round_trips"].as_u64()
        ),
        (Some(800), Some(0))
    );
    assert_eq!(report["unaligned"], serde_json::json!(["alone"]));
    // At the last record of a host, the true offset is within the bound, which is below 2 ms.
    for host in report["hosts"].as_array().unwrap() {
        let name = host["host"].as_str().unwrap();
        if name == "alone" {
            assert!(host["ahead_ns"].is_null());
            continue;
        }
        let last_ns = host["last_ns"].as_i64().unwrap();
        // Inverts the clock, accurate to 10 ns over 20 minutes.
        let mut true_ns = last_ns;
        (0..5).for_each(|_| true_ns -= clock(name, true_ns) - last_ns);
        let (ahead_ns, error_ns) = (
            host["ahead_ns"].as_i64().unwrap(),
            host["error_ns"].as_i64().unwrap(),
        );
        assert!(
            (ahead_ns - (last_ns - true_ns)).abs() <= error_ns + 10,
            "{host}, {}",
            last_ns - true_ns
        );
        assert!(error_ns < 2_000_000, "{host}");
    }
    for (client, server, ppm) in [("web", "db", 50.0), ("db", "cache", -70.0)] {
        let pairs = report["pairs"].as_array().unwrap();
        let pair = pairs
            .iter()
            .find(|pair| pair["client"] == client && pair["server"] == server)
            .unwrap();
        assert!(
            (pair["drift_ppm"].as_f64().unwrap() - ppm).abs() < 1.0,
            "{pair}"
        );
        let (rtt_ns, error_ns) = (
            pair["rtt_ns"].as_u64().unwrap(),
            pair["error_ns"].as_u64().unwrap(),
        );
        assert!(
            (300_000..=500_100).contains(&rtt_ns) && error_ns.abs_diff(rtt_ns / 2) <= 1,
            "{pair}"
        );
        assert_eq!(pair["steps"], 0);
    }
    let text = text_of(directory.path(), &["clocks"]);
    for part in [
        "clocks differ",
        "web     db",
        "db      cache",
        "not aligned, because no round trips agree",
        "alone",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let wrong = stroboscope(directory.path(), &["clocks", "--reference", "nobody"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&wrong.stderr)
            .contains("no host is called nobody; there are: alone, cache, db, web")
    );
}

#[test]
fn a_clock_that_is_set_is_told() {
    // From request number 200 on, db's clock is three seconds behind its earlier course.
    let set: String = log()
        .lines()
        .map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            let request: u64 = event["trace"].as_str().unwrap()[1..].parse().unwrap();
            if event["host"] == "db" && request >= 200 {
                event["ts_ns"] = (event["ts_ns"].as_i64().unwrap() - 3_000_000_000).into();
            }
            event.to_string() + "\n"
        })
        .collect();
    let directory = imported(&set);
    let report = json_of(directory.path(), &["clocks", "--json"]);
    let steps: u64 = report["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| pair["steps"].as_u64().unwrap())
        .sum();
    assert_eq!(steps, 2, "web → db and db → cache");
    text_of(directory.path(), &["infer"]);
}

#[test]
fn one_host_and_right_clocks_are_no_news() {
    let directory = imported(
        &log()
            .lines()
            .filter(|line| line.contains("\"web\""))
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    assert!(text_of(directory.path(), &["clocks"]).contains("one host: nothing to compare"));
    let directory = imported(
        &log()
            .lines()
            .filter(|line| line.contains("\"web\"") || line.contains("\"alone\""))
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    assert!(
        text_of(directory.path(), &["clocks"])
            .contains("no round trips: nothing is known about the clocks")
    );
}
