//! `tradeoffs` over a store: models learned from recorded data, and logged omissions.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{check, json_of};

/// Returns a span of a ranker with this latency and these events, as OTLP.
fn span(number: u64, latency_ms: f64, events: &[Value]) -> Value {
    let start_ns = 1_700_000_000_000_000_000 + number * 20_000_000;
    let end_ns = start_ns + (latency_ms * 1e6) as u64;
    json!({
        "traceId": format!("{:032x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        "spanId": format!("{:016x}", number + 1),
        "name": "rank",
        "kind": 2,
        "startTimeUnixNano": start_ns.to_string(),
        "endTimeUnixNano": end_ns.to_string(),
        "events": events.iter().map(|event| {
            let mut event = event.clone();
            event["timeUnixNano"] = json!((start_ns + 1_000).to_string());
            event
        }).collect::<Vec<_>>(),
    })
}

fn attributes(pairs: &[(&str, Value)]) -> Value {
    pairs
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect()
}

fn text(value: &str) -> Value {
    json!({"stringValue": value})
}

fn tradeoff(load: f64, omitted: u64, is_explored: bool) -> Value {
    let by = format!("ads={omitted}");
    json!({"name": "stroboscope.tradeoff", "attributes": attributes(&[
        ("tradeoff.point", text("ranker.candidates")),
        ("tradeoff.kind", text("omit")),
        ("tradeoff.proactive", json!({"boolValue": true})),
        ("tradeoff.items", json!({"intValue": "20"})),
        ("tradeoff.omitted", json!({"intValue": omitted.to_string()})),
        ("tradeoff.omitted_by", text(if omitted == 0 { "" } else { &by })),
        ("tradeoff.requests_per_second", json!({"doubleValue": load})),
        ("tradeoff.under_way", json!({"intValue": "1"})),
        ("tradeoff.policy", json!({"intValue": "7"})),
        ("tradeoff.explored", json!({"boolValue": is_explored})),
        ("tradeoff.by_model", json!({"boolValue": !is_explored})),
        ("tradeoff.cause", text("")),
    ])})
}

/// Twenty items. Friends have the first place in nine of ten answers.
fn items(number: u64) -> Value {
    let first = if number.is_multiple_of(10) {
        15
    } else {
        number % 10
    };
    let row = |place: u64| {
        let generator = if place < 10 { "friends" } else { "ads" };
        format!("{generator}\t{}\n", u64::from(place == first))
    };
    json!({"name": "stroboscope.tradeoff.items", "attributes": attributes(&[
        ("tradeoff_items.point", text("ranker.candidates")),
        ("tradeoff_items.schema", text("generator")),
        ("tradeoff_items.rows", text(&(0..20).map(row).collect::<String>())),
    ])})
}

/// Imports requests that explore rates 0 and 0.5, at 10 and 40 requests per second, and twelve
/// requests that omit half without exploring.
fn store(directory: &Path) {
    let mut spans = Vec::new();
    for number in 0..400 {
        let (load, omitted) = (
            [10.0, 40.0][number as usize % 2],
            [0, 10][number as usize / 2 % 2],
        );
        let latency_ms =
            5.0 + load * if omitted == 0 { 2.0 } else { 1.0 } + (number % 5) as f64 * 0.1;
        let mut events = vec![tradeoff(load, omitted, true)];
        if omitted == 0 {
            events.push(items(number));
        }
        spans.push(span(number, latency_ms, &events));
    }
    spans.extend((400..412).map(|number| span(number, 30.0, &[tradeoff(33.0, 10, false)])));
    let service = attributes(&[("service.name", text("ranker"))]);
    let all = json!({"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{"spans": spans}]}]});
    std::fs::write(directory.join("spans.json"), all.to_string()).expect("written");
    check(directory, &["import", "spans.json"], 0);
}

#[test]
fn models_are_learned_planned_by_and_what_was_given_up_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let learned = json_of(
        at,
        &[
            "tradeoffs",
            "learn",
            "--goal",
            "ranker.candidates=latency:60ms",
            "--out",
            "policy.json",
            "--json",
        ],
    );
    let curves = learned["curves"].as_array().expect("curves");
    assert_eq!(curves.len(), 4, "{curves:#?}");
    let latency_ms = |rate: f64, load: f64| {
        let found = curves
            .iter()
            .find(|row| row["tradeoff_rate"] == rate && row["requests_per_second"] == load);
        found.expect("measured")["latency_ns"]
            .as_f64()
            .expect("a number")
            / 1e6
    };
    assert!(
        (latency_ms(0.0, 40.0) - 85.2).abs() < 0.3 && (latency_ms(0.5, 10.0) - 15.2).abs() < 0.3
    );
    let weight = |value: &str| {
        let weights = learned["weights"].as_array().expect("weights");
        weights
            .iter()
            .find(|row| row["value"] == value)
            .expect("a weight")["weight"]
            .as_f64()
            .expect("a number")
    };
    assert!((weight("friends") - 0.09).abs() < 0.01 && (weight("ads") - 0.01).abs() < 0.01);
    let half = learned["drops"]
        .as_array()
        .expect("drops")
        .iter()
        .find(|row| row["tradeoff_rate"] == 0.5);
    let half = half.expect("judged");
    assert!(half["share_with_drop"].as_f64() < Some(0.25), "{half}");
    assert!(
        half["random_share_with_drop"].as_f64() > Some(0.3),
        "{half}"
    );

    let plan = json_of(
        at,
        &[
            "tradeoffs",
            "plan",
            "policy.json",
            "--load",
            "10",
            "--load",
            "40",
            "--load",
            "500",
            "--json",
        ],
    );
    let planned: Vec<(f64, bool)> = plan["plan"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            (
                row["tradeoff_rate"].as_f64().expect("a rate"),
                row["met"] == true,
            )
        })
        .collect();
    assert_eq!(planned[0], (0.0, true));
    assert!(
        planned[1].0 > 0.2 && planned[1].0 <= 0.5 && planned[1].1,
        "{planned:?}"
    );
    assert_eq!(planned[2], (0.9, false), "more load than was ever measured");
    let (shown, _) = check(
        at,
        &["tradeoffs", "show", "policy.json", "--html", "page.html"],
        0,
    );
    assert!(
        shown.contains("friends") && shown.contains("ranker.candidates"),
        "{shown}"
    );
    assert!(
        std::fs::read_to_string(at.join("page.html"))
            .expect("a page")
            .contains("<svg")
    );

    let arguments = [
        "report",
        "--html",
        "report.html",
        "--tradeoffs",
        "policy.json",
    ];
    check(at, &arguments, 0);
    let page = std::fs::read_to_string(at.join("report.html")).expect("a page");
    assert!(page.contains("Tradeoffs made") && page.contains("latency by load"));

    let log = json_of(at, &["tradeoffs", "log", "--json"]);
    assert_eq!(
        (&log["requests"], &log["explored"]),
        (&json!(12), &json!(400))
    );
    let row = &log["log"][0];
    assert_eq!(
        (&row["policy"], &row["mean_rate"], &row["left_out"]),
        (&json!(7), &json!(0.5), &json!("ads 100.0%"))
    );
}

#[test]
fn what_cannot_be_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let refused = |args: &[&str], expected: &str, status: i32| {
        let (_, said) = check(at, args, status);
        assert!(said.contains(expected), "{args:?}: {said}");
    };
    std::fs::write(
        at.join("log.jsonl"),
        r#"{"trace":"1","host":"a","ts_ns":1,"event":"e","task":"t"}"#,
    )
    .expect("written");
    check(at, &["import", "log.jsonl"], 0);
    refused(
        &["tradeoffs", "learn", "--out", "p.json"],
        "no tradeoffs are recorded",
        2,
    );
    assert!(
        check(at, &["tradeoffs", "log"], 0)
            .0
            .contains("gave anything up")
    );
    refused(&["tradeoffs", "show", "absent.json"], "absent.json", 2);
    std::fs::write(at.join("p.json"), "{}").expect("written");
    refused(&["tradeoffs", "show", "p.json"], "no policy", 2);
    let bad = r#"{"version":1,"learned_ns":0,"valid_for_ns":0,"points":[{"point":"a","rate_max":7.0,"goal":"full",
        "performance":{"quantile":0.5,"curves":[],"class_costs":null},
        "quality":{"schema":[],"intercept":0.0,"weights":[],"drops":[]}}]}"#;
    std::fs::write(at.join("p.json"), bad).expect("written");
    refused(&["tradeoffs", "plan", "p.json"], "rate_max is 7", 2);
    refused(
        &[
            "collect",
            "--tradeoffs",
            "p.json",
            "--listen",
            "127.0.0.1:0",
        ],
        "rate_max is 7",
        2,
    );
    refused(
        &["tradeoffs", "learn", "--goal", "a=soon", "--out", "x"],
        "POINT=latency:40ms",
        2,
    );
}
