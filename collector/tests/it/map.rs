//! The service map: which services call which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{check, json_of};
use crate::{failures, requests};

fn rows<'a>(found: &'a Value, table: &str) -> &'a [Value] {
    found[table].as_array().unwrap()
}

/// The edges: caller, callee, requests, calls, failed ones, the longest in ns.
fn edges(found: &Value) -> Value {
    let edge = |edge: &Value| {
        let [caller, callee, requests, calls, failed] =
            ["caller", "callee", "requests", "calls", "failed"].map(|key| &edge[key]);
        json!([
            caller,
            callee,
            requests,
            calls,
            failed,
            edge["latency"]["max_ns"]
        ])
    };
    rows(found, "edges").iter().map(edge).collect()
}

/// Checks that figures of services are sums over their operations.
#[track_caller]
fn check_sums(directory: &Path, found: &Value) {
    let operations = json_of(directory, &["operations", "--json"]);
    let mut sums: BTreeMap<&str, (u64, u64, f64)> = BTreeMap::new();
    for row in rows(&operations, "operations") {
        let (service, _) = row["operation"].as_str().unwrap().split_once(':').unwrap();
        let (spans, failed, share) = sums.entry(service).or_default();
        *spans += row["spans"].as_u64().unwrap();
        *failed += row["failed"].as_u64().unwrap();
        *share += row["critical_share"].as_f64().unwrap();
    }
    assert_eq!(rows(found, "services").len(), sums.len());
    for row in rows(found, "services") {
        let (spans, failed, share) = sums[row["service"].as_str().unwrap()];
        assert_eq!(
            (&row["spans"], &row["failed"]),
            (&json!(spans), &json!(failed)),
            "{row}"
        );
        assert!(
            (row["critical_share"].as_f64().unwrap() - share).abs() < 1e-9,
            "{row}"
        );
    }
    assert_eq!(found["used_traces"], operations["used_traces"]);
}

#[test]
fn calls_are_counted_by_caller_and_callee() {
    let directory = requests::imported();
    let found = json_of(directory.path(), &["map", "--json"]);
    // A checkout has its mail sent and its index made by the worker.
    let expected = json!([
        ["shop", "worker", 100, 200, 0, 2_120_000],
        ["job", "db", 10, 10, 0, 398_000_000],
    ]);
    assert_eq!(edges(&found), expected);
    check_sums(directory.path(), &found);
    let (text, _) = check(directory.path(), &["map"], 0);
    assert!(
        text.contains("No other service calls job, shop.\n"),
        "{text}"
    );
}

#[test]
fn callers_see_their_clients_spans_and_what_failed() {
    let directory = failures::imported();
    let found = json_of(directory.path(), &["map", "--json"]);
    // The client's span takes 9.77 ms, the bank's 9.66 ms.
    assert_eq!(
        edges(&found),
        json!([["shop", "bank", 599, 599, 59, 9_770_000]])
    );
    check_sums(directory.path(), &found);
}

#[test]
fn a_focus_is_a_service_with_its_neighbours() {
    let directory = requests::imported();
    let services = |found: &Value| -> BTreeSet<String> {
        let rows = rows(found, "services").iter();
        rows.map(|row| row["service"].as_str().unwrap().to_owned())
            .collect()
    };
    let found = json_of(directory.path(), &["map", "--focus", "worker", "--json"]);
    assert_eq!(
        services(&found),
        ["shop", "worker"].map(str::to_owned).into()
    );
    assert_eq!(rows(&found, "edges").len(), 1);
    let (_, said) = check(directory.path(), &["map", "--focus", "wroker"], 2);
    assert!(
        said.contains("no span is of the service wroker (is it worker?)"),
        "{said}"
    );
}

const SERVICES: u64 = 200;

/// Imports requests through 200 services. Each request has its root in the first service, and its
/// spans call others, also in circles. Returns the calls by caller and callee.
fn import_many(directory: &Path) -> BTreeMap<(u64, u64), u64> {
    let mut calls = BTreeMap::new();
    let mut spans = Vec::new();
    for request in 1..=SERVICES {
        let mut services = vec![0];
        for number in 0..8 {
            // Number of the span that calls the next span.
            let parent = if number % 3 == 2 { number / 2 } else { number };
            let service = (request * (number + 1) * 7 + number * 31) % SERVICES;
            services.push(service);
            let pair = (services[parent as usize], service);
            if pair.0 != pair.1 {
                *calls.entry(pair).or_default() += 1;
            }
        }
        for (number, service) in (0..).zip(&services) {
            let mut span = json!({
                "traceId": format!("{request:032x}"),
                "id": format!("{:016x}", request * 100 + number + 1),
                "name": "work",
                "timestamp": 1_000_000 * request + 10 * number,
                "duration": 10_000 - 100 * number,
                "localEndpoint": {"serviceName": format!("service-{service}")},
            });
            if let Some(before) = number.checked_sub(1) {
                let parent = if before % 3 == 2 { before / 2 } else { before };
                span["parentId"] = json!(format!("{:016x}", request * 100 + parent + 1));
            }
            spans.push(span);
        }
    }
    std::fs::write(directory.join("spans.json"), Value::from(spans).to_string()).unwrap();
    check(directory, &["import", "spans.json"], 0);
    calls
}

#[test]
fn two_hundred_services_are_counted_and_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let calls = import_many(directory.path());
    let found = json_of(directory.path(), &["map", "--html", "map.html", "--json"]);
    assert_eq!(rows(&found, "services").len() as u64, SERVICES);
    let name = |service: &u64| format!("service-{service}");
    let expected: BTreeMap<(String, String), u64> = calls
        .iter()
        .map(|((caller, callee), calls)| ((name(caller), name(callee)), *calls))
        .collect();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let counted: BTreeMap<(String, String), u64> = rows(&found, "edges")
        .iter()
        .map(|row| {
            (
                (text(row, "caller"), text(row, "callee")),
                row["calls"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(counted, expected);
    let page = std::fs::read_to_string(directory.path().join("map.html")).unwrap();
    assert_eq!(page.matches(" data-node=").count() as u64, SERVICES);
    let drawn = page.matches("class=\"edge").count();
    assert_eq!(drawn, calls.len().min(600));
}
