//! `compare`: two periods whose difference is known.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::common::{check, json_of, others};

/// Beginnings of the periods, in ns since the Unix epoch: 2026-11-21T10:00 and 11:00, UTC.
const BEFORE_NS: u64 = 1_795_255_200_000_000_000;
const AFTER_NS: u64 = BEFORE_NS + 3_600_000_000_000;

/// Event log of requests with two tasks: a server reads for `read_us` and up to 96 µs more, and
/// sends; then a page shows the answer.
fn log(from_ns: u64, requests: u64, read_us: u64, version: &str) -> String {
    let mut log = String::new();
    for request in 0..requests {
        let begin_ns = from_ns + request * 10_000_000;
        // A noise without a pattern.
        let noise_us = (request * 7_919) % 97;
        let read_ns = begin_ns + (read_us + noise_us) * 1_000;
        for (at_ns, task, event) in [
            (begin_ns, "server", "begin"),
            (read_ns, "server", "read"),
            (read_ns + 200_000, "server", "sent"),
            (read_ns + 200_000, "page", "begin"),
            (read_ns + 500_000, "page", "shown"),
        ] {
            let _ = writeln!(
                log,
                r#"{{"trace":"{version} {from_ns} {request}","host":"h","ts_ns":{at_ns},"event":"{event}","task":"{task}","attrs":{{"version":"{version}"}}}}"#
            );
        }
    }
    log
}

fn import(directory: &Path, data: &str, log: &str) {
    std::fs::write(directory.join("log.jsonl"), log).unwrap();
    check(directory, &["import", "--data", data, "log.jsonl"], 0);
}

const PERIODS: [&str; 4] = [
    "--before",
    "2026-11-21T10:00..2026-11-21T10:30",
    "--after",
    "2026-11-21T11:00..2026-11-21T11:30",
];

fn compared(directory: &Path, arguments: &[&str]) -> Value {
    json_of(directory, &[&["compare", "--json"], arguments].concat())
}

/// Checks that the first cause is the server, which is slower by 0.4 ms.
#[track_caller]
fn is_the_slower_read(found: &Value) {
    assert_eq!(found["verdict"], "changed", "{found}");
    let cause = &found["causes"][0];
    assert_eq!(
        (&cause["kind"], &cause["service"]),
        (&"response_time".into(), &"server".into()),
        "{cause}"
    );
    let adds_ns = cause["contribution_ns"].as_f64().unwrap();
    assert!((adds_ns - 400_000.0).abs() < 20_000.0, "{cause}");
    assert!(
        cause["edge"].as_str().unwrap().contains("begin … read"),
        "{cause}"
    );
    assert!(
        (found["explained_share"].as_f64().unwrap() - 1.0).abs() < 0.05,
        "{found}"
    );
    let mutation = &found["mutations"][0];
    assert_eq!(
        (&mutation["rank"], &mutation["causes"]),
        (&1.into(), &serde_json::json!([1])),
        "{mutation}"
    );
    assert!(mutation["q_value"].as_f64().unwrap() < 1e-6, "{mutation}");
    assert_eq!(mutation["edges"][0]["responsible"], true, "{mutation}");
}

#[test]
fn periods_of_one_store_of_two_and_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let (slow, fast) = (
        log(AFTER_NS, 300, 1_400, "1.5"),
        log(BEFORE_NS, 300, 1_000, "1.4"),
    );
    import(directory.path(), "one", &format!("{fast}{slow}"));
    let found = compared(
        directory.path(),
        &[&["--data", "one"], &PERIODS[..]].concat(),
    );
    is_the_slower_read(&found);
    assert_eq!(
        (&found["before"]["requests"], &found["after"]["requests"]),
        (&300.into(), &300.into())
    );
    let example = |side: &str| {
        found["causes"][0]["example"][side]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(example("before").starts_with("1.4 ") && example("after").starts_with("1.5 "));
    // One range determines the other one.
    is_the_slower_read(&compared(
        directory.path(),
        &["--data", "one", "--after", "2026-11-21T10:30.."],
    ));
    is_the_slower_read(&compared(
        directory.path(),
        &["--data", "one", "--before", "..2026-11-21T10:30"],
    ));
    is_the_slower_read(&compared(
        directory.path(),
        &[
            "--data",
            "one",
            "--before",
            "version=1.4",
            "--after",
            "version=1.5",
        ],
    ));
    import(directory.path(), "before", &fast);
    import(directory.path(), "after", &slow);
    is_the_slower_read(&compared(
        directory.path(),
        &["--data", "after", "--before-data", "before"],
    ));
    let (text, _) = check(
        directory.path(),
        &[
            "compare",
            "--data",
            "after",
            "--before-data",
            "before",
            "--html",
            "page.html",
            "--parquet",
            "tables",
        ],
        0,
    );
    assert!(
        text.contains("server") && text.contains("1 cause explains"),
        "{text}"
    );
    assert!(directory.path().join("tables/mutations.parquet").exists());
}

#[test]
fn nothing_changed_and_too_little_are_said() {
    let directory = tempfile::tempdir().unwrap();
    import(
        directory.path(),
        "same",
        &format!(
            "{}{}",
            log(BEFORE_NS, 300, 1_000, "a"),
            log(AFTER_NS, 400, 1_000, "b")
        ),
    );
    let found = compared(
        directory.path(),
        &[&["--data", "same"], &PERIODS[..]].concat(),
    );
    assert_eq!(
        (&found["verdict"], &found["causes"]),
        (&"no_change".into(), &serde_json::json!([])),
        "{found}"
    );
    import(
        directory.path(),
        "few",
        &format!(
            "{}{}",
            log(BEFORE_NS, 1, 1_000, "a"),
            log(AFTER_NS, 400, 9_000, "b")
        ),
    );
    let (text, _) = check(
        directory.path(),
        &[&["compare", "--data", "few"], &PERIODS[..]].concat(),
        0,
    );
    assert!(text.contains("too few requests"), "{text}");
}

/// Exit statuses for pipelines, by a baseline and a later run: slower, alike, and of one request.
#[test]
fn a_pipeline_fails_on_a_regression() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import(at, "baseline", &log(BEFORE_NS, 300, 1_000, "a"));
    import(at, "slower", &log(AFTER_NS, 300, 1_400, "b"));
    import(at, "alike", &log(AFTER_NS, 400, 1_000, "b"));
    import(at, "few", &log(AFTER_NS, 1, 9_000, "b"));
    let gated = |data: &str, more: &[&str], status: i32| {
        let fixed = ["compare", "--before-data", "baseline", "--data", data];
        check(at, &[&fixed[..], more].concat(), status)
    };
    let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    for data in ["slower", "alike", "few"] {
        let (text, _) = gated(data, &[], 0);
        assert!(!text.contains("regression"), "{text}");
    }
    for fail_on in ["worse", "unknown"] {
        let fail_on = ["--fail-on", fail_on];
        let (text, _) = gated("slower", &fail_on, 1);
        assert!(last(&text).starts_with("Worse: mean latency of "), "{text}");
        assert!(last(&text).ends_with("the limit is 5.0%."), "{text}");
        let (text, _) = gated("alike", &fail_on, 0);
        assert!(last(&text).starts_with("No regression: "), "{text}");
        // The requests became slower by about a quarter.
        let (text, _) = gated(
            "slower",
            &[&fail_on[..], &["--worse-by", "50%"]].concat(),
            0,
        );
        assert!(last(&text).ends_with("the limit is 50.0%."), "{text}");
        let (_, error) = gated("none", &fail_on, 2);
        assert!(!error.is_empty());
    }
    let (text, error) = gated("few", &["--fail-on", "worse"], 0);
    let unknown = "Unknown: the later period has 1 request, and 20 are needed";
    assert!(last(&text).starts_with(unknown), "{text}");
    assert!(error.contains(&format!("warning: {unknown}")), "{error}");
    let (text, error) = gated("few", &["--fail-on", "unknown", "--json"], 2);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["regression"]["verdict"], "unknown", "{found}");
    assert!(!error.contains("warning"), "{error}");
    // The verdict does not depend on --fail-on.
    let (text, _) = gated("slower", &["--json"], 0);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["regression"]["verdict"], "worse", "{found}");
    assert_eq!(found["verdict"], "changed", "{found}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), "d", &log(BEFORE_NS, 30, 1_000, "a"));
    let refused = |arguments: &[&str], says: &str| {
        let (_, error) = check(
            directory.path(),
            &[&["compare", "--data", "d"], arguments].concat(),
            2,
        );
        assert!(error.contains(says), "{error}");
    };
    refused(&[], "needs two periods");
    refused(
        &["--before", "yesterday", "--after", "1h.."],
        "expected a range",
    );
    refused(&["--before", "2h..1h", "--after", "90min.."], "overlap");
    refused(&["--before", "2h..1h", "--after", "1h.."], "no request");
    refused(
        &["--before", "version=9", "--after", "version=a"],
        "no request has 9 as version",
    );
    refused(&["--before-data", "nowhere"], "nowhere");
}

/// Half of the files of both periods are damaged. `compare` uses the rest, and reports the damage.
#[test]
fn half_of_a_store_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    for (data, logs) in [
        (
            "before",
            [
                log(BEFORE_NS, 150, 1_000, "a"),
                log(BEFORE_NS + 60_000_000_000, 150, 1_000, "a"),
            ],
        ),
        (
            "after",
            [
                log(AFTER_NS, 150, 1_400, "b"),
                log(AFTER_NS + 60_000_000_000, 150, 1_400, "b"),
            ],
        ),
    ] {
        logs.iter()
            .for_each(|log| import(directory.path(), data, log));
    }
    let files = |data: &str| -> Vec<std::path::PathBuf> {
        let mut files: Vec<_> = walk(&directory.path().join(data))
            .into_iter()
            .filter(|path| path.extension().is_some_and(|of| of == "parquet"))
            .filter(|path| path.to_string_lossy().contains("events"))
            .collect();
        files.sort();
        files
    };
    for data in ["before", "after"] {
        let files = files(data);
        assert_eq!(files.len(), 2, "{files:?}");
        let mut bytes = std::fs::read(&files[0]).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle..middle + 64].fill(0x5a);
        std::fs::write(&files[0], bytes).unwrap();
    }
    let (text, error) = check(
        directory.path(),
        &[
            "compare",
            "--json",
            "--data",
            "after",
            "--before-data",
            "before",
        ],
        1,
    );
    let found: Value = serde_json::from_str(&text).unwrap();
    is_the_slower_read(&found);
    assert_eq!(
        (&found["before"]["requests"], &found["after"]["requests"]),
        (&150.into(), &150.into())
    );
    let damaged = found["damaged_files"].as_array().unwrap();
    assert_eq!(damaged.len(), 2, "of both periods: {damaged:?}");
    assert!(error.contains("damaged"), "{error}");
}

fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn others_compared(before: &str, after: &str) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    for (data, name) in [("before", before), ("after", after)] {
        let path = others(name)?.display().to_string();
        check(directory.path(), &["import", "--data", data, &path], 0);
    }
    let periods = ["--data", "after", "--before-data", "before"];
    Some(compared(directory.path(), &periods))
}

/// Logins behind a gateway, whose handler runs in parallel with the call. The verification of one
/// kind of login takes a second longer.
#[test]
fn a_slow_call_behind_a_gateway_is_named() {
    let cases = [
        "cases/verif-baseline.json.zst",
        "cases/verif-fault05.json.zst",
    ];
    let Some(found) = others_compared(cases[0], cases[1]) else {
        return;
    };
    let cause = &found["causes"][0];
    assert_eq!(cause["service"], "ts-verification-code-service", "{cause}");
    assert!(
        cause["caller"]
            .as_str()
            .unwrap()
            .starts_with("ts-auth-service"),
        "{cause}"
    );
    assert!(cause["share"].as_f64().unwrap() > 0.9, "{cause}");
}

/// One slow call of 60, in either direction of time.
#[test]
fn one_slow_call_is_no_change() {
    let [calm, outlier] = ["cases/outlier-before.json", "cases/outlier-after.json"];
    for (before, after) in [(calm, outlier), (outlier, calm)] {
        let Some(found) = others_compared(before, after) else {
            return;
        };
        assert_eq!(found["causes"], serde_json::json!([]), "{found}");
    }
}

/// Twenty requests of others, split in two, are too few to tell.
#[test]
fn halves_of_others_requests_are_too_few() {
    let Some(path) = others("dsb/socialNetwork_compose_post_20traces.jaeger.json.zst") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    check(
        directory.path(),
        &["import", "--data", "d", &path.display().to_string()],
        0,
    );
    let packed = std::fs::File::open(&path).unwrap();
    let source: Value = serde_json::from_slice(&zstd::decode_all(packed).unwrap()).unwrap();
    let mut starts_us: Vec<i64> = source["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trace| {
            let starts = trace["spans"].as_array().unwrap().iter();
            starts
                .map(|span| span["startTime"].as_i64().unwrap())
                .min()
                .unwrap()
        })
        .collect();
    starts_us.sort_unstable();
    let middle = chrono::DateTime::from_timestamp_micros(starts_us[starts_us.len() / 2]).unwrap();
    let middle = middle.format("%Y-%m-%dT%H:%M:%S%.6f").to_string();
    let found = compared(
        directory.path(),
        &[
            "--data",
            "d",
            "--before",
            &format!("..{middle}"),
            "--after",
            &format!("{middle}.."),
        ],
    );
    assert_eq!(
        (&found["before"]["requests"], &found["after"]["requests"]),
        (&10.into(), &10.into())
    );
    assert_eq!(
        (&found["verdict"], &found["causes"]),
        (&"too_few".into(), &serde_json::json!([])),
        "{found}"
    );
}
