//! Tests the subcommand `experiment` on a store with requests of both sides.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{check, json_of};
use crate::viewing::Viewing;

/// Imports 2,000 requests of 200 users, one every 100 ms. Those of build 42 take longer by the
/// share `slower`. Half of the requests are searches; if `is_mixed`, half of those of build 42.
fn store(directory: &Path, slower: f64, is_mixed: bool) {
    let mut spans = Vec::new();
    let mut state = 7_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    for at in 0..2_000_u64 {
        let user = (random() * 200.0) as u64;
        let is_test = user % 2 == 1;
        let is_search = match is_mixed {
            true => is_test && random() < 0.5,
            false => random() < 0.5,
        };
        let factor = if is_test { 1.0 + slower } else { 1.0 };
        let took_ns = 2e7 * factor * (1.0 + 0.3 * random());
        let start_ns = 1_700_000_000_000_000_000 + at * 100_000_000;
        let text = |key: &str, value: String| json!({"key": key, "value": {"stringValue": value}});
        spans.push(json!({
            "traceId": format!("{:032x}", at + 1),
            "spanId": "0000000000000001",
            "name": if is_search { "search" } else { "page" },
            "kind": 2,
            "startTimeUnixNano": start_ns.to_string(),
            "endTimeUnixNano": (start_ns + took_ns as u64).to_string(),
            "attributes": [
                text("build", if is_test { "42" } else { "41" }.to_owned()),
                text("user", format!("u{user}")),
            ],
        }));
    }
    let service = json!({"key": "service.name", "value": {"stringValue": "web"}});
    let all = json!({"resourceSpans": [{
        "resource": {"attributes": [service]},
        "scopeSpans": [{"spans": spans}],
    }]});
    std::fs::write(directory.join("spans.json"), all.to_string()).expect("written");
    check(directory, &["import", "spans.json"], 0);
}

const ASKED: [&str; 9] = [
    "experiment",
    "--by",
    "build",
    "--control",
    "41",
    "--test",
    "42",
    "--unit",
    "user",
];

fn of_all<'a>(found: &'a Value, metric: &str) -> &'a Value {
    let metrics = found["metrics"].as_array().expect("metrics");
    let is_it = |row: &&Value| row["root"].is_null() && row["metric"] == metric;
    metrics.iter().find(is_it).expect("of all requests")
}

#[test]
fn a_slower_side_is_found_and_equal_ones_are_not() {
    // At 0.95, one interval in twenty would miss the truth.
    for slower in [0.0, 0.05] {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        store(at, slower, false);
        let found = json_of(
            at,
            &[&ASKED[..], &["--json", "--certainty", "0.99"]].concat(),
        );
        assert_eq!(found["is_balanced"], true, "{found}");
        assert_eq!(found["control"]["units"], 100);
        for metric in ["mean", "p50"] {
            let row = of_all(&found, metric);
            assert_eq!(row["differs"], slower > 0.0, "{row}");
            let end = |key: &str| row[key].as_f64().expect("bounded");
            assert!(end("low") < slower && slower < end("high"), "{row}");
        }
        // About ten requests of a side are above its p99, which may be too few for a verdict.
        let p99 = of_all(&found, "p99");
        assert_eq!(
            p99["why_not"].is_string(),
            p99["q_value"].is_null(),
            "{p99}"
        );
        let (text, _) = check(at, &[&ASKED[..], &["--certainty", "0.99"]].concat(), 0);
        let said = ["No difference is seen", "The test differs: "][usize::from(slower > 0.0)];
        // The report has the noise, and the number of requests that would show more.
        let noise = found["noise"].as_array().expect("noise");
        assert!(noise.iter().any(|row| row["metric"] == "p50"), "{found}");
        let needed = &found["needed"][0];
        let times = needed["times"].as_f64().expect("times");
        assert!((needed["requests"].as_f64().expect("requests") / times - 2_000.0).abs() < 1.0);
        for part in [said, "Less than a week", "100 units"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        // A later look must be surer.
        let later = [
            &ASKED[..],
            &["--json", "--certainty", "0.99", "--look", "3"],
        ]
        .concat();
        let later = json_of(at, &later);
        let low = |found: &Value| of_all(found, "p50")["low"].as_f64();
        assert!(low(&later) < low(&found), "{later}");
    }
}

/// Exit statuses for pipelines, by the rise of the test's latency and the number of requests.
#[test]
fn a_pipeline_fails_on_a_slower_side() {
    let certain = ["--certainty", "0.99"];
    for (slower, status) in [(0.12, 1), (0.0, 0)] {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        store(at, slower, false);
        let gated =
            |more: &[&str], status: i32| check(at, &[&ASKED[..], &certain, more].concat(), status);
        let verdict = ["No regression", "Worse"][usize::from(status == 1)];
        for fail_on in ["worse", "unknown"] {
            let (text, _) = gated(&["--fail-on", fail_on], status);
            let last = text.lines().last().unwrap_or_default();
            assert!(last.starts_with(verdict), "{text}");
        }
        gated(&[], 0);
        if status == 1 {
            let (text, _) = gated(&["--fail-on", "worse", "--worse-by", "30%"], 0);
            assert!(text.contains("No regression: "), "{text}");
            continue;
        }
        // About thirty requests, of the first three seconds.
        let few = ["--until", "2023-11-14T22:13:23"];
        let (_, said) = gated(&[&few[..], &["--fail-on", "worse"]].concat(), 0);
        assert!(said.contains("warning: Unknown: "), "{said}");
        gated(&[&few[..], &["--fail-on", "unknown"]].concat(), 2);
    }
}

#[test]
fn sides_that_are_asked_for_different_things_are_not_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at, 0.0, true);
    let (text, _) = check(at, &ASKED, 0);
    assert!(
        text.contains("receive different kinds of requests"),
        "{text}"
    );
    let found = json_of(at, &[&ASKED[..], &["--json"]].concat());
    assert_eq!(found["is_balanced"], false);
}

#[test]
fn users_that_are_lost_and_sides_that_differed_before_are_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at, 0.05, false);
    // Both sides have a hundred users, although a tenth was assigned to the test.
    let lost = [&ASKED[..], &["--share", "10%"]].concat();
    let (text, _) = check(at, &lost, 0);
    assert!(text.contains("than were assigned"), "{text}");
    let even = [&ASKED[..], &["--share", "50%", "--json"]].concat();
    assert_eq!(json_of(at, &even)["is_balanced"], true);
    // The difference was there from the first request on.
    let before = [
        &ASKED[..],
        &["--equal", "2023-11-14T22:13..2023-11-14T22:15"],
    ]
    .concat();
    let found = json_of(at, &[&before[..], &["--json"]].concat());
    assert_eq!(found["differed_before"], true, "{found}");
    let (text, _) = check(at, &before, 0);
    assert!(text.contains("differed already"), "{text}");
    // `--of` does not apply to an attribute. `--test` may be repeated.
    let (_, said) = check(at, &[&ASKED[..], &["--of", "web"]].concat(), 2);
    assert!(said.contains("omit --of"), "{said}");
    let several = [&ASKED[..], &["--test", "43", "--json"]].concat();
    assert_eq!(json_of(at, &several)["test"]["value"], "42, 43");
    let process = [
        "experiment",
        "--by",
        "process",
        "--of",
        "web",
        "--control",
        "a",
        "--test",
        "b",
    ];
    let (_, said) = check(at, &process, 2);
    assert!(said.contains("process"), "{said}");
}

#[test]
fn what_cannot_be_compared_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let (_, said) = check(at, &ASKED, 2);
    assert!(!said.is_empty());
    store(at, 0.0, false);
    let ask = |by: &str, test: &str, unit: &str| {
        let sides = ["--by", by, "--control", "41", "--test", test];
        let all = [&["experiment"], &sides[..], &["--unit", unit]].concat();
        check(at, &all, 2).1
    };
    let said = ask("biuld", "42", "user");
    assert!(said.contains("biuld") && said.contains("build"), "{said}");
    let said = ask("build", "43", "user");
    assert!(
        said.contains("one side is empty; there are: 41, 42"),
        "{said}"
    );
    let said = ask("build", "42", "usr");
    assert!(said.contains("(is it user?)"), "{said}");
    let said = ask("build", "41", "user");
    assert!(said.contains("both 41"), "{said}");
    let (_, said) = check(at, &[&ASKED[..], &["--certainty", "95"]].concat(), 2);
    assert!(said.contains("0.5 to 0.9999"), "{said}");

    let pair = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let span = json!({
        "traceId": "0000000000000000000000000000ffff",
        "spanId": "0000000000000001",
        "name": "page",
        "kind": 2,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000000020000000",
        "attributes": [pair("build", "40"), pair("session", "s1")],
    });
    let of_no_side = json!({"resourceSpans": [{
        "resource": {"attributes": [pair("service.name", "web")]},
        "scopeSpans": [{"spans": [span]}],
    }]});
    std::fs::write(at.join("other.json"), of_no_side.to_string()).expect("written");
    check(at, &["import", "other.json"], 0);
    let said = ask("build", "42", "session");
    assert!(said.contains("only other requests have it"), "{said}");

    // Without `--unit`, the report states the consequence.
    let (text, _) = check(at, &ASKED[..7], 0);
    assert!(text.contains("name them by --unit"), "{text}");
}

#[test]
fn times_ago_on_the_page_count_back_from_the_newest_request() {
    let directory = tempfile::tempdir().expect("a directory");
    store(directory.path(), 0.0, false);
    let viewing = Viewing::of_default_data(directory.path(), &[]);
    let asked = "by=build&control=41&test=42&unit=user&equal=3min..1min";
    let page = viewing.page(&format!("/experiment?{asked}"), 200);
    // The newest request begins 199.9 s after 2023-11-14T22:13:20.
    let equal = "--equal 2023-11-14T22:13:39.900Z..2023-11-14T22:15:39.900Z";
    assert!(page.contains(equal), "{page}");
}
