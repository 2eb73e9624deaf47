//! `explain`: changes whose reason is known.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::common::{check, json_of};

/// Beginnings of the periods, in ns since the Unix epoch: 2026-11-21T10:00 and 11:00, UTC.
pub(crate) const BEFORE_NS: u64 = 1_795_255_200_000_000_000;
pub(crate) const AFTER_NS: u64 = BEFORE_NS + 3_600_000_000_000;

/// A noise without a pattern: 0 to 99 999.
fn noise(of: u64) -> u64 {
    of.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % 100_000
}

/// Event log of requests of a server that writes. Those of few bytes, `small_of_100` of a hundred,
/// read the block first.
fn writes(from_ns: u64, requests: u64, small_of_100: u64) -> String {
    let mut log = String::new();
    for request in 0..requests {
        let begin_ns = from_ns + request * 10_000_000;
        let is_small = noise(request) % 100 < small_of_100;
        let count = if is_small {
            512 + noise(request + 7) % 3_500
        } else {
            4_200 + noise(request + 7) * 10
        };
        let mut at_ns = begin_ns;
        let mut line = |after_us: u64, event: &str, attributes: &str| {
            at_ns += (after_us * 1_000) + noise(request + after_us);
            let _ = writeln!(
                log,
                r#"{{"trace":"{from_ns} {request}","host":"h","ts_ns":{at_ns},"event":"{event}","task":"server","attrs":{{{attributes}}}}}"#
            );
        };
        line(
            0,
            "begin",
            &format!(
                r#""count":{count},"request.id":"r{request}-{from_ns}","user":"u{}""#,
                noise(request + 3) % 5
            ),
        );
        if is_small {
            line(900, "block read", "");
        }
        line(500, "written", r#""blocks":1"#);
        line(100, "sent", "");
    }
    log
}

pub(crate) fn import(directory: &Path, data: &str, log: &str) {
    std::fs::write(directory.join("log.jsonl"), log).unwrap();
    check(directory, &["import", "--data", data, "log.jsonl"], 0);
}

const PERIODS: [&str; 4] = [
    "--before",
    "2026-11-21T10:00..2026-11-21T10:30",
    "--after",
    "2026-11-21T11:00..2026-11-21T11:30",
];

fn explained(directory: &Path, arguments: &[&str]) -> Value {
    let asked = [
        &["explain", "--json", "--data", "d"],
        &PERIODS[..],
        arguments,
    ]
    .concat();
    json_of(directory, &asked)
}

#[test]
fn a_parameter_that_changes_the_path_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (writes(BEFORE_NS, 400, 3), writes(AFTER_NS, 400, 60));
    import(directory.path(), "d", &format!("{old}{new}"));
    // `compare` reports the parameter as well.
    let asked = [&["compare", "--json", "--data", "d"], &PERIODS[..]].concat();
    let compared = json_of(directory.path(), &asked);
    let first = compared["leaves"][0]["conditions"][0].as_str().unwrap();
    assert!(first.starts_with("count <= "), "{compared}");
    for which in [["--cause", "1"], ["--mutation", "1"]] {
        let found = explained(directory.path(), &which);
        let leaf = &found["leaves"][0];
        let conditions = leaf["conditions"][0].as_str().unwrap();
        assert!(
            conditions.starts_with("count <= ") && conditions.ends_with("(server:begin)"),
            "{found}"
        );
        assert_eq!(leaf["changed"], true, "{found}");
        for of in ["precision", "recall"] {
            assert!(leaf[of].as_f64().unwrap() > 0.95, "{found}");
        }
        assert!(leaf["requests"].as_u64().unwrap() > 20, "{found}");
        let left_out = found["left_out"].to_string();
        assert!(left_out.contains("request.id (server:begin)"), "{found}");
    }
    // Nothing except `count` distinguishes the requests.
    let found = explained(directory.path(), &["--without", "count"]);
    assert_eq!(found["leaves"], serde_json::json!([]), "{found}");
    let (text, _) = check(
        directory.path(),
        &[&["explain", "--data", "d"], &PERIODS[..]].concat(),
        0,
    );
    assert!(
        text.contains("block read") && text.contains("count <= "),
        "{text}"
    );
}

/// Event log of requests of ten users. Those of users with odd numbers take `odd_ns` longer.
pub(crate) fn users(from_ns: u64, odd_ns: u64) -> String {
    let mut log = String::new();
    for request in 0..400 {
        let mut at_ns = from_ns + request * 10_000_000;
        let user = noise(request + 3) % 10;
        let slower_ns = user % 2 * odd_ns;
        let steps = [
            ("begin", 0),
            ("asked", 300_000),
            ("found", 900_000 + slower_ns),
        ];
        for (event, after_ns) in steps {
            at_ns += after_ns + 2 * noise(request + after_ns);
            let _ = writeln!(
                log,
                r#"{{"trace":"{from_ns} {request}","host":"h","ts_ns":{at_ns},"event":"{event}","task":"server","attrs":{{"user":"u{user}","partition":"{}"}}}}"#,
                user % 2
            );
        }
    }
    log
}

#[test]
fn whom_a_change_hits_is_told_though_both_periods_have_them() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (users(BEFORE_NS, 0), users(AFTER_NS, 5_000_000));
    import(directory.path(), "d", &format!("{old}{new}"));
    let check_leaf = |leaf: &Value| {
        assert_eq!(leaf["among_later"], true, "{leaf}");
        assert_eq!(leaf["changed"], true, "{leaf}");
        let conditions = leaf["conditions"].to_string();
        assert!(conditions.contains("partition = 1 "), "{leaf}");
        assert!(leaf["precision"].as_f64().unwrap() > 0.95, "{leaf}");
    };
    for _ in ["read", "as it is kept"] {
        let found = explained(directory.path(), &[]);
        check_leaf(&found["leaves"][0]);
        let of = &found["among_later"];
        let boundary_ns = of["boundary_ns"].as_u64().unwrap();
        assert!((900_000..5_900_000).contains(&boundary_ns), "{found}");
        let share = of["later_share"].as_f64().unwrap();
        assert!((0.4..0.6).contains(&share), "{found}");
    }
    let asked = [&["compare", "--json", "--data", "d"], &PERIODS[..]].concat();
    check_leaf(&json_of(directory.path(), &asked)["leaves"][0]);
    let asked = [&["explain", "--data", "d"], &PERIODS[..]].concat();
    let (text, _) = check(directory.path(), &asked, 0);
    assert!(text.contains(" take longer than "), "{text}");
    assert!(
        text.contains("Requests with partition = 1 are slower\n"),
        "{text}"
    );
    // Without a change, no requests are distinguished.
    import(
        directory.path(),
        "same",
        &format!("{old}{}", users(AFTER_NS, 0)),
    );
    let asked = [&["compare", "--json", "--data", "same"], &PERIODS[..]].concat();
    assert_eq!(
        json_of(directory.path(), &asked)["leaves"],
        serde_json::json!([])
    );
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (writes(BEFORE_NS, 400, 3), writes(AFTER_NS, 400, 60));
    import(directory.path(), "d", &format!("{old}{new}"));
    let refused = |arguments: &[&str], says: &str| {
        let asked = [&["explain", "--data", "d"], &PERIODS[..], arguments].concat();
        let (_, error) = check(directory.path(), &asked, 2);
        assert!(error.contains(says), "{error}");
    };
    refused(&["--cause", "7"], "there is no cause 7: compare finds ");
    refused(&["--cause", "0"], "there is no cause 0");
    refused(&["--mutation", "99"], "there is no mutation 99");
    refused(
        &["--without", "cuont"],
        "no request has that; available are count (server:begin)",
    );
    refused(&["--cause", "1", "--mutation", "1"], "cannot be used with");
    let (_, error) = check(directory.path(), &["explain", "--data", "d"], 2);
    assert!(error.contains("explain needs two periods"), "{error}");
}
