//! Requests that follow others, from OTLP to what `critical-path` prints.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{check, json_of};
use crate::snapshots::check_schema;

const EPOCH_NS: i64 = 1_767_322_800_000_000_000;

/// A span of OTLP, from and to in ns, with links to spans of other traces.
fn span(
    (trace, id, parent): (u64, u64, u64),
    name: &str,
    (from_ns, to_ns): (i64, i64),
    links: &[(u64, u64)],
) -> Value {
    let link = |(trace, span): &(u64, u64)| json!({"traceId": format!("{trace:032x}"), "spanId": format!("{span:016x}")});
    let parent = match parent {
        0 => String::new(),
        parent => format!("{parent:016x}"),
    };
    json!({
        "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "parentSpanId": parent,
        "name": name, "startTimeUnixNano": (EPOCH_NS + from_ns).to_string(),
        "endTimeUnixNano": (EPOCH_NS + to_ns).to_string(),
        "links": links.iter().map(link).collect::<Vec<_>>(),
    })
}

/// Orders that publish a message each, one every 10 µs, and a batch that reads them at 50 ms.
fn store(directory: &Path, orders: u64) {
    let order = |at: u64| {
        let from_ns = at as i64 * 10_000;
        let publish = (from_ns + 2_000, from_ns + 5_000);
        [
            span((at, 1, 0), "order", (from_ns, from_ns + 7_000), &[]),
            span((at, 2, 1), "publish", publish, &[]),
        ]
    };
    let mut spans: Vec<Value> = (1..=orders).flat_map(order).collect();
    let links: Vec<(u64, u64)> = (1..=orders + 1).map(|trace| (trace, 2)).collect();
    spans.push(span(
        (0xbaaa, 1, 0),
        "batch",
        (50_000_000, 51_000_000),
        &links,
    ));
    let resource = json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "host.name", "value": {"stringValue": "a"}},
    ]});
    let otlp = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
    std::fs::write(directory.join("otlp.json"), otlp.to_string()).unwrap();
    check(directory, &["import", "otlp.json"], 0);
}

#[test]
fn the_critical_path_of_a_batch_goes_on_at_the_last_message() {
    const ORDERS: u64 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    store(directory.path(), ORDERS);
    let batch = ["critical-path", "--trace", "baaa", "--json"];
    let plain = json_of(directory.path(), &batch);
    check_schema("critical-path", &plain);
    let follows = &plain["follows"];
    let count = |of: &str| follows[of].as_u64().unwrap();
    let counts = ["links", "found", "before", "unknown", "missing", "unread"].map(count);
    assert_eq!(counts, [ORDERS + 1, ORDERS, ORDERS, 0, 1, 0]);
    let first = &follows["first"][0];
    assert_eq!(first["producer"]["trace_id"], format!("{ORDERS:032x}"));
    assert_eq!(first["waited_ns"], 50_000_000 - (ORDERS * 10_000 + 5_000));
    assert_eq!(follows["first"].as_array().unwrap().len(), 50);
    assert!(plain.get("across").is_none() && plain.get("followed_by").is_none());

    let followed = json_of(
        directory.path(),
        &[&batch[..], &["--follow-links"]].concat(),
    );
    check_schema("critical-path", &followed);
    let across = &followed["across"];
    assert_eq!(across["length_ns"], 51_000_000 - ORDERS * 10_000);
    assert_eq!(
        (&across["is_cut"], &across["missing"]),
        (&json!(false), &json!(1))
    );
    let requests = across["requests"].as_array().unwrap();
    let roots: Vec<&str> = requests
        .iter()
        .map(|of| of["root"].as_str().unwrap())
        .collect();
    assert_eq!(roots, ["shop:order", "shop:batch"]);
    assert_eq!(requests[1]["queued_ns"], first["waited_ns"]);
    assert_eq!(followed["critical_path_ns"], plain["critical_path_ns"]);

    let order = json_of(
        directory.path(),
        &["critical-path", "--trace", "7", "--json"],
    );
    check_schema("critical-path", &order);
    assert_eq!(order["followed_by"]["links"], 1);
    assert_eq!(
        order["followed_by"]["first"][0]["consumer"]["root"],
        "shop:batch"
    );
}

#[test]
fn the_text_has_a_row_for_the_queue() {
    let directory = tempfile::tempdir().unwrap();
    store(directory.path(), 3);
    let batch = ["critical-path", "--trace", "baaa", "--follow-links"];
    let (text, _) = check(directory.path(), &batch, 0);
    let after = text.split_once("Spans that it links to").unwrap().1;
    assert_eq!(after.trim_end(), EXPECTED.trim(), "{text}");
    check(directory.path(), &["critical-path", "--follow-links"], 2);
    let (full, _) = check(
        directory.path(),
        &[&batch[..], &["--full-names"]].concat(),
        0,
    );
    // The link's producer, and its two segments on the path.
    assert_eq!(full.matches(&format!("{:032x}", 3)).count(), 3, "{full}");
}

const EXPECTED: &str = "
: 4 links, 1 to spans that are not in the store
request           span          of          own span      wait  producer ended
0000000000000003  shop:publish  shop:order  shop:batch  50.0ms  before
0000000000000002  shop:publish  shop:order  shop:batch  50.0ms  before
0000000000000001  shop:publish  shop:order  shop:batch  50.0ms  before

Across traces: 51.0ms in 2 requests

These requests also have 1 link to spans that were not read.

request           segment                          from   takes  after waiting
0000000000000003  shop:order [start … →publish]     0ns  2.00µs            0ns
0000000000000003  shop:publish                   2.00µs  3.00µs            0ns
000000000000baaa  (in the queue)                 5.00µs  50.0ms            0ns
000000000000baaa  shop:batch                     50.0ms  1.00ms            0ns
";
