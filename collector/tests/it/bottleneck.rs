//! Bottlenecks and failed requests in the output of subcommands, for a gateway with many short and
//! few long requests.

use serde_json::{Value, json};

use crate::common::{check, json_of};

const SHORT: u64 = 90;
const LONG: u64 = 10;

/// Imports short requests of 10 ms, of which a cache takes 9 ms, and long ones of a second, of
/// which a database takes 900 ms. If `failing`, four of the ten long ones fail.
fn imported(failing: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut spans = Vec::new();
    for request in 0..SHORT + LONG {
        let is_long = request >= SHORT;
        let (root, callee, operation, scale) = match is_long {
            true => ("export", "database", "scan", 100_000),
            false => ("look", "cache", "get", 1_000),
        };
        let start_us = 1_700_000_000_000_000 + request * 2_000_000 + request * 123 % 997;
        let id = |at: u64| format!("{:016x}", request * 100 + at);
        let span = |at: u64, service: &str, name: &str, kind: &str, from: u64, to: u64| {
            json!({
                "traceId": format!("{:032x}", request + 1),
                "id": id(at),
                "name": name,
                "kind": kind,
                "timestamp": start_us + from * scale / 100,
                "duration": (to - from) * scale / 100,
                "localEndpoint": {"serviceName": service},
            })
        };
        let mut first = span(1, "gateway", root, "SERVER", 0, 1_000);
        if failing && is_long && request % 3 == 0 {
            first["tags"] = json!({"error": "true"});
        }
        let mut second = span(2, callee, operation, "", 50, 950);
        second["parentId"] = json!(id(1));
        spans.extend([first, second]);
    }
    let text = Value::from(spans).to_string();
    std::fs::write(directory.path().join("spans.json"), text).unwrap();
    check(directory.path(), &["import", "spans.json"], 0);
    directory
}

#[test]
fn time_names_the_bottleneck_and_each_root_has_its_own() {
    let directory = imported(false);
    let found = json_of(directory.path(), &["critical-path", "--json"]);
    // Short requests lead the mean of shares, and long ones the share of all time.
    let first = &found["operations"][0];
    assert_eq!(first["operation"], "database:scan", "{found}");
    assert!(
        first["share_of_time"].as_f64() > Some(0.8) && first["mean_share"].as_f64() < Some(0.1)
    );
    let bottlenecks = found["bottlenecks"].as_array().unwrap();
    let named = |at: usize| [&bottlenecks[at]["root"], &bottlenecks[at]["operation"]];
    assert_eq!(named(0), ["gateway:export", "database:scan"], "{found}");
    assert!(bottlenecks[0]["share_of_time"].as_f64().unwrap() > 0.85);
    assert_eq!(named(1), ["gateway:look", "cache:get"], "{found}");
    assert_eq!(found["circumstances"], json!([]));
    let (text, _) = check(directory.path(), &["critical-path"], 0);
    assert!(
        text.contains(
            "Requests wait most for database:scan, 90 % of the time of requests of gateway:export."
        ),
        "{text}"
    );
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn failed_requests_are_counted_before_the_figures() {
    let directory = imported(true);
    let (text, _) = check(directory.path(), &["critical-path"], 0);
    assert!(text.contains("4 of 100 requests failed"), "{text}");
    check(directory.path(), &["report", "--html", "page.html"], 0);
    let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
    assert!(page.contains("4 of 100 requests failed"));
}
