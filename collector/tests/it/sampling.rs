//! Sampling weights: spans that a sampler of OpenTelemetry kept stand for those that it did not.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{check, json_of};

const FROM_NS: u64 = 1_795_255_200_000_000_000;
/// Thresholds of samplers that keep 1 %, 10 %, a half.
const ONE_PERCENT: &str = "ot=th:fd70a3d70a3d7";
const TEN_PERCENT: &str = "vendor=1,ot=rv:ffffffffffffff;th:e6666666666666";
const HALF: &str = "ot=th:8";

/// A request: the `tracestate` of its root, that of the call inside it, and its duration in ns.
type Request = (&'static str, &'static str, u64);

fn span(number: usize, id: usize, parent: usize, state: &str, took_ns: u64) -> Value {
    let from_ns = FROM_NS + number as u64 * 1_000_000_000;
    let mut span = json!({
        "traceId": format!("{:032x}", number + 1),
        "spanId": format!("{:016x}", 2 * number + id),
        "name": if parent == 0 { "get" } else { "read" },
        "kind": if parent == 0 { 2 } else { 1 },
        "startTimeUnixNano": from_ns.to_string(),
        "endTimeUnixNano": (from_ns + took_ns).to_string(),
    });
    if parent > 0 {
        span["parentSpanId"] = format!("{:016x}", 2 * number + parent).into();
    }
    if !state.is_empty() {
        span["traceState"] = state.into();
    }
    span
}

fn imported(requests: &[Request]) -> TempDir {
    imported_with(requests, 0)
}

/// Imports requests whose spans have this number of additional attributes. Leaves out requests
/// without a duration.
fn imported_with(requests: &[Request], attributes: usize) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let attribute = |number| json!({"key": format!("a{number}"), "value": {"intValue": "1"}});
    let attributes: Vec<Value> = (0..attributes).map(attribute).collect();
    let recorded = requests.iter().enumerate();
    let spans = recorded.filter(|(_, request)| request.2 > 0);
    let spans = spans.flat_map(|(number, request)| {
        let (root, inside, took_ns) = *request;
        [
            span(number, 1, 0, root, took_ns),
            span(number, 2, 1, inside, took_ns / 2),
        ]
    });
    let spans = spans.map(|mut span| {
        span["attributes"] = attributes.clone().into();
        span
    });
    let service = json!({"key": "service.name", "value": {"stringValue": "web"}});
    let document = json!({"resourceSpans": [{
        "resource": {"attributes": [service]},
        "scopeSpans": [{"scope": {"name": "x"}, "spans": spans.collect::<Vec<_>>()}],
    }]});
    std::fs::write(directory.path().join("spans.json"), document.to_string()).unwrap();
    check(
        directory.path(),
        &["import", "--data", "d", "spans.json"],
        0,
    );
    directory
}

fn said(directory: &Path, arguments: &[&str]) -> Value {
    json_of(
        directory,
        &[arguments, &["--json", "--data", "d"][..]].concat(),
    )
}

/// Returns 10 requests of 10 ms that represent 100 each, and 10 of 900 ms that represent 1 each.
fn mixed() -> Vec<Request> {
    let fast = (ONE_PERCENT, ONE_PERCENT, 10_000_000);
    let slow = ("ot=th:0", "ot=th:0", 900_000_000);
    [vec![fast; 10], vec![slow; 10]].concat()
}

#[track_caller]
fn near(found: &Value, expected: f64, part: f64) {
    let found = found.as_f64().unwrap();
    assert!(
        (found - expected).abs() <= expected * part,
        "{found} instead of {expected}"
    );
}

#[test]
fn what_was_sampled_stands_for_what_was_not() {
    let directory = imported(&mixed());
    let found = said(directory.path(), &["critical-path"]);
    assert_eq!(found["used_traces"], 1_010, "{found}");
    near(&found["latency"]["p95_ns"], 10e6, 1e-3);
    near(&found["latency"]["p99_ns"], 10e6, 1e-3);
    near(&found["latency"]["mean_ns"], 19e9 / 1_010.0, 1e-9);
    assert_eq!(found["latency"]["max_ns"], 900_000_000);
    let root = &found["roots"][0];
    assert_eq!(
        (&root["requests"], &root["complete"], &root["recorded"]),
        (&1_010.into(), &1_010.into(), &20.into()),
        "{root}"
    );
    let effective = 1_010.0 * 1_010.0 / 100_010.0;
    near(&root["effective_sample"], effective, 1e-9);
    let sampling = &found["sampling"];
    assert_eq!(
        (&sampling["recorded"], &sampling["requests"]),
        (&20.into(), &1_010.0.into())
    );
    assert_eq!(sampling["weighted"], true);
    near(&sampling["effective_sample"], effective, 1e-9);
    let shares = found["segments"].as_array().unwrap().iter();
    let shares: f64 = shares.map(|of| of["mean_share"].as_f64().unwrap()).sum();
    near(&shares.into(), 1.0, 1e-9);
    let slack = said(directory.path(), &["slack"]);
    assert_eq!(slack["used_traces"], 1_010);
    let flows = said(directory.path(), &["flows"]);
    assert_eq!(flows["requests"], 1_010);
    let category = &flows["categories"][0];
    assert_eq!(
        (&category["requests"], &category["recorded"]),
        (&1_010.into(), &20.into())
    );
    near(&category["mean_ns"], 19e9 / 1_010.0, 1e-9);
    let strata = said(directory.path(), &["critical-path", "--by", "kind"]);
    assert_eq!(strata["used_traces"], 1_010);
}

#[test]
fn texts_say_how_certain_that_is() {
    let directory = imported(&mixed());
    let whole = "20 recorded requests stand for 1,010 (effective sample 10.2)";
    let of = |arguments: &[&str]| {
        check(
            directory.path(),
            &[arguments, &["--data", "d"][..]].concat(),
            0,
        )
    };
    let (out, notes) = of(&["critical-path"]);
    assert!(
        out.contains("1010 requests (20 recorded, effective sample 10.2)"),
        "{out}"
    );
    assert!(notes.contains(&format!("note: {whole}")), "{notes}");
    let (out, _) = of(&["flows"]);
    assert!(out.contains("1010 requests (20 recorded"), "{out}");
    // Reports that are not weighted say so, as do their documents.
    let unweighted =
        format!("this report counts recorded requests; by their sampling weights, {whole}");
    let search = ["search", "{ name = \"read\" }"];
    let (_, notes) = of(&search);
    assert!(notes.contains(&unweighted), "{notes}");
    let found = said(directory.path(), &search);
    assert_eq!(found["sampling"]["weighted"], false);
    assert_eq!(found["sampling"]["note"], *unweighted);
    let (_, notes) = of(&["infer"]);
    assert!(
        notes.contains("counts recorded requests, except by root operation"),
        "{notes}"
    );
}

#[test]
fn sections_of_a_report_are_weighted() {
    let directory = imported(&mixed());
    let report = ["report", "--data", "d", "--html", "page.html"];
    let periods = ["--before", "..2026-11-21T10:00:10"];
    let (_, notes) = check(directory.path(), &[&report[..], &periods].concat(), 0);
    assert!(notes.contains("note: 20 recorded requests"), "{notes}");
    let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
    let (_, rest) = page.split_once("id=\"changed\"").expect("a comparison");
    let (changed, rest) = rest.split_once("</section>").unwrap();
    let unweighted = "This section counts recorded requests";
    assert!(!changed.contains(unweighted), "{changed}");
    assert!(changed.contains("with 95 % certainty"), "{changed}");
    assert!(!rest.contains(unweighted), "{rest}");
}

#[test]
fn one_in_ten_of_all_is_ten_times_as_many() {
    let requests: Vec<Request> = (1..=50)
        .map(|number| (TEN_PERCENT, TEN_PERCENT, number * 1_000_000))
        .collect();
    let sampled = imported(&requests);
    let whole: Vec<Request> = requests.iter().map(|of| ("", "", of.2)).collect();
    let whole = imported(&whole);
    let of = |directory: &TempDir| said(directory.path(), &["critical-path"]);
    let (found, expected) = (of(&sampled), of(&whole));
    assert_eq!(found["used_traces"], 500);
    // Percentiles and shares are those of the sample, which is a tenth of all.
    for key in ["latency", "mean_tail_share"] {
        let is_same = found[key] == expected[key];
        assert!(is_same, "{key}: {} {}", found[key], expected[key]);
    }
    near(&found["sampling"]["effective_sample"], 50.0, 1e-9);
    assert_eq!(found["segments"][0]["traces"], 500);
    let slow = |directory: &TempDir| said(directory.path(), &["anomalies", "--slowest", "10%"]);
    let (found, expected) = (slow(&sampled), slow(&whole));
    assert_eq!(
        (&found["outliers"], &found["others"]),
        (&json!(50), &json!(450))
    );
    for key in ["mean_share", "mean_slack_share"] {
        let of = |of: &Value| of["segments"][0]["others"][key].clone();
        assert_eq!(of(&found), of(&expected), "{key}");
    }
    let halved = ["what-if", "--segment", ".", "--scale", "0.5"];
    let (found, expected) = (said(sampled.path(), &halved), said(whole.path(), &halved));
    assert_eq!(found["faster"], 500);
    assert_eq!(found["after"], expected["after"]);
}

#[test]
fn percentiles_are_those_of_all_that_is_stood_for() {
    let states = [
        "ot=th:0",
        HALF,
        "ot=th:c",
        "ot=th:e",
        TEN_PERCENT,
        ONE_PERCENT,
    ];
    let weights = [1, 2, 4, 8, 10, 100];
    let requests: Vec<Request> = (0..60u64)
        .map(|number| {
            let state = states[number as usize % 6];
            (state, state, 1_000_000 + number * 7_919 % 101 * 1_000_000)
        })
        .collect();
    let mut all: Vec<u64> = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        (0..weights[number % 6]).for_each(|_| all.push(request.2));
    }
    all.sort_unstable();
    let directory = imported(&requests);
    let found = said(directory.path(), &["critical-path"]);
    assert_eq!(found["used_traces"], all.len());
    for (key, part) in [("p50_ns", 0.5), ("p95_ns", 0.95), ("p99_ns", 0.99)] {
        let rank = (all.len() as f64 * part).ceil() as usize;
        near(&found["latency"][key], all[rank - 1] as f64, 1e-3);
    }
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    near(&found["latency"]["mean_ns"], mean, 1e-6);
}

#[test]
fn thresholds_that_are_none_count_once_and_are_counted() {
    let requests: Vec<Request> = ["ot=th:", "ot=th:xyz", "ot=th:fffffffffffffff", "ot=th:-1"]
        .map(|state| (state, state, 5_000_000))
        .into();
    let directory = imported(&requests);
    let found = said(directory.path(), &["critical-path"]);
    assert_eq!(found["used_traces"], 4);
    assert_eq!(found["sampling"]["malformed_thresholds"], 4);
    let (_, notes) = check(directory.path(), &["critical-path", "--data", "d"], 0);
    assert!(
        notes.contains("4 of the requests used have a malformed sampling threshold"),
        "{notes}"
    );
}

#[test]
fn the_root_says_how_many_a_trace_stands_for() {
    let took_ns = 4_000_000;
    let requests = [
        (HALF, ONE_PERCENT, took_ns),
        (ONE_PERCENT, HALF, took_ns),
        ("", HALF, took_ns),
        (HALF, "", took_ns),
    ];
    let directory = imported(&requests);
    let found = said(directory.path(), &["critical-path"]);
    assert_eq!(found["used_traces"], 2 + 100 + 2 + 2);
    assert_eq!(found["sampling"]["differing_thresholds"], 2);
}

/// A file has columns for its most frequent attributes, and a JSON text with the others.
#[test]
fn weights_without_a_column_are_read() {
    let requests = [(HALF, HALF, 5_000_000), ("", "", 5_000_000)];
    let directory = imported_with(&requests, 150);
    assert_eq!(said(directory.path(), &["critical-path"])["used_traces"], 3);
}

/// A `tracestate` with a sampling rate of 1, or without one, changes nothing.
#[test]
fn without_weights_all_is_as_it_was() {
    let with = |state: &'static str| -> Vec<Request> {
        (0..30)
            .map(|number| (state, state, 1_000_000 + number * 40_000))
            .collect()
    };
    let plain = imported(&with(""));
    for state in ["ot=th:0", "vendor=th:8", "ot=rv:ffffffffffffff"] {
        let other = imported(&with(state));
        for arguments in [
            &["critical-path"][..],
            &["infer"],
            &["flows"],
            &["slack"],
            &["anomalies"],
            &["critical-path", "--by", "kind"],
        ] {
            let [before, after] = [&plain, &other].map(|of| said(of.path(), arguments));
            assert_eq!(before, after, "{arguments:?} {state}");
            assert_eq!(before.get("sampling"), None);
        }
    }
}

/// Compares the first minute with the second one.
#[test]
fn a_verdict_is_on_all_requests_and_its_certainty_on_the_recorded_ones() {
    let compared = |kept: u64, later_ns: u64| {
        let took_ns = |number: u64| match number < 60 {
            true => 10_000_000 + number % 7 * 100_000,
            false => later_ns + number % 7 * 100_000,
        };
        let all = (0..120).map(|number| (ONE_PERCENT, ONE_PERCENT, took_ns(number)));
        let mut all: Vec<Request> = all.collect();
        for number in (0..all.len()).filter(|number| *number as u64 % 60 >= kept) {
            all[number].2 = 0;
        }
        let directory = imported(&all);
        let periods = [
            "compare",
            "--before",
            "2026-11-21T10:00..2026-11-21T10:01",
            "--after",
            "2026-11-21T10:01..2026-11-21T10:02",
        ];
        said(directory.path(), &periods)
    };
    let found = compared(60, 15_000_000);
    let root = &found["mix"][0];
    near(&root["mean_before_ns"], 10_300_000.0, 0.01);
    near(&found["before"]["mean_ns"], 10_300_000.0, 0.01);
    near(&root["caused_ns"], 5_000_000.0, 0.05);
    assert_eq!(found["regression"]["verdict"], "worse", "{found}");
    let intervals = found["before"]["percentile_intervals_ns"]
        .as_array()
        .unwrap();
    let median = found["before"]["p50_ns"].as_u64().unwrap();
    assert!(intervals[0][0].as_u64().unwrap() <= median, "{found}");
    assert!(intervals[0][1].as_u64().unwrap() >= median, "{found}");
    // 10 recorded requests stand for 1,000, and are few.
    let found = compared(10, 10_000_000);
    let reasons = found["regression"]["reasons"].to_string();
    assert!(
        reasons.contains("10 requests, and 20 are needed"),
        "{found}"
    );
}

/// Two seconds of requests every 700 µs, of which a sampler of OpenTelemetry's SDK kept those that
/// began in bursts of 4 ms every 32 ms.
#[test]
fn the_rate_of_requests_is_that_in_bursts() {
    let directory = tempfile::tempdir().unwrap();
    let starts_ns = (0..2_000_000_000).step_by(700_000);
    let starts_ns = starts_ns.filter(|after_ns| ((FROM_NS + after_ns) / 1_000_000) & 0x1c == 0x1c);
    let spans: Vec<Value> = starts_ns
        .map(|after_ns| {
            json!({
                "traceId": format!("{:032x}", after_ns + 1),
                "spanId": format!("{:016x}", after_ns + 1),
                "traceState": "stroboscope=burst:1c",
                "name": "get",
                "kind": 2,
                "startTimeUnixNano": (FROM_NS + after_ns).to_string(),
                "endTimeUnixNano": (FROM_NS + after_ns + 900_000 + after_ns % 1_000).to_string(),
            })
        })
        .collect();
    let recorded = spans.len();
    let service = json!({"key": "service.name", "value": {"stringValue": "web"}});
    let document = json!({"resourceSpans": [{
        "resource": {"attributes": [service]},
        "scopeSpans": [{"scope": {"name": "x"}, "spans": spans}],
    }]});
    std::fs::write(directory.path().join("spans.json"), document.to_string()).unwrap();
    let import = ["import", "--data", "d", "spans.json"];
    check(directory.path(), &import, 0);
    let periods = [
        "compare",
        "--before",
        "2026-11-21T10:00:00..2026-11-21T10:00:01",
        "--after",
        "2026-11-21T10:00:01..2026-11-21T10:00:02",
    ];
    let found = said(directory.path(), &periods);
    for period in ["before", "after"] {
        near(&found[period]["inter_arrival_mean_ns"], 700_000.0, 0.02);
    }
    assert_eq!(found["regression"]["verdict"], "no_regression", "{found}");
    let bursts = &found["sampling"]["bursts"];
    assert_eq!(
        *bursts,
        json!([{"config": "0b11100 (4ms/32ms)", "requests": recorded, "duty": 0.125}])
    );
    let goal = "requests up to 30 ms, duty 1 %, 200 whole requests an hour";
    let plan = said(directory.path(), &["burst", "plan", "--goal", goal]);
    near(&plan["begin_per_hour"], 3.6e12 / 700_000.0, 0.02);
}

/// The clock of one request was 56 years behind.
#[test]
fn a_wrong_clock_does_not_fill_the_memory_with_bursts() {
    let directory = tempfile::tempdir().unwrap();
    let span = |id: u64, from_ns: u64| {
        json!({
            "traceId": format!("{id:032x}"),
            "spanId": format!("{id:016x}"),
            "traceState": "stroboscope=burst:1c",
            "name": "get",
            "startTimeUnixNano": from_ns.to_string(),
            "endTimeUnixNano": (from_ns + 1_000).to_string(),
        })
    };
    let spans = [span(1, 28_000_000), span(2, FROM_NS), span(3, FROM_NS + 1)];
    let document = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
    std::fs::write(directory.path().join("spans.json"), document.to_string()).unwrap();
    let import = ["import", "--data", "d", "spans.json"];
    check(directory.path(), &import, 0);
    let goal = "requests up to 30 ms, duty 1 %, 200 whole requests an hour";
    let plan = ["burst", "plan", "--data", "d", "--goal", goal];
    let (_, errors) = check(directory.path(), &plan, 2);
    assert!(errors.contains("choose a shorter time"), "{errors}");
    let since = [&plan[..], &["--since", "2026-01-01"]].concat();
    check(directory.path(), &since, 0);
}
