//! Tests with the requests that Jaeger's UI and Grafana make, with the parameters in their
//! spelling.

use serde_json::{Value, json};
use stroboscope_store::decode::{otlp_json, otlp_logs_json};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

use crate::served::Served;

/// 2023-11-14, 22:13:20, in seconds since the Unix epoch.
pub(crate) const T0_S: u64 = 1_700_000_000;

fn span(
    trace: u8,
    id: u8,
    parent: u8,
    name: &str,
    at_ms: u64,
    took_ms: u64,
    more: &Value,
) -> Value {
    let ns = |ms: u64| (T0_S * 1_000_000_000 + ms * 1_000_000).to_string();
    let mut span = json!({
        "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name,
        "startTimeUnixNano": ns(at_ms), "endTimeUnixNano": ns(at_ms + took_ms),
    });
    if parent != 0 {
        span["parentSpanId"] = format!("{parent:016x}").into();
    }
    for (key, value) in more.as_object().unwrap() {
        span[key] = value.clone();
    }
    span
}

fn request(service: &str, spans: &[Value]) -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": service}},
            {"key": "zone", "value": {"stringValue": "a"}},
        ]},
        "scopeSpans": [{"scope": {"name": "lib"}, "spans": spans}],
    }]})
}

/// Creates a store with two requests to a shop, the second of which failed, and one to another
/// service.
pub(crate) fn shops() -> Served {
    let served = Served::new();
    for (trace, at_ms, took_ms) in [(1, 0, 50), (2, 1_000, 200)] {
        let attributes = json!([{"key": "user", "value": {"intValue": trace.to_string()}}]);
        let status = if trace == 2 {
            json!({"code": 2, "message": "no"})
        } else {
            json!({})
        };
        let root = json!({"kind": 2, "attributes": attributes, "status": status});
        let call = json!({"kind": 3});
        let spans = [
            span(trace, 1, 0, "GET /cart", at_ms, took_ms, &root),
            span(trace, 2, 1, "call store", at_ms + 10, took_ms - 20, &call),
        ];
        served.take(&request("shop", &spans));
        let serve = json!({"kind": 2});
        let spans = [span(trace, 3, 2, "read", at_ms + 15, took_ms - 30, &serve)];
        served.take(&request("store", &spans));
    }
    let other = json!({"kind": 4});
    served.take(&request(
        "mailer",
        &[span(3, 1, 0, "send", 2_000, 5, &other)],
    ));
    served
}

fn ids(answer: &Value) -> Vec<u64> {
    let data = answer["data"].as_array().unwrap();
    let id = |trace: &Value| u64::from_str_radix(trace["traceID"].as_str().unwrap(), 16).unwrap();
    data.iter().map(id).collect()
}

#[test]
fn grafana_asks_for_services_and_operations() {
    let served = shops();
    let services = served.json("/api/services");
    assert_eq!(
        services,
        json!({"data": ["mailer", "shop", "store"], "total": 0, "limit": 0, "offset": 0, "errors": null})
    );
    let operations = served.json("/api/services/shop/operations");
    assert_eq!(operations["data"], json!(["GET /cart", "call store"]));
    assert_eq!(
        served.json("/api/services/no%20one/operations")["data"],
        json!([])
    );
    let operations = served.json("/api/operations?service=shop&spanKind=client");
    assert_eq!(
        operations["data"],
        json!([{"name": "call store", "spanKind": "client"}])
    );
    let refused = served.ask("/api/operations");
    assert_eq!(
        (refused.status, refused.json()["errors"][0]["code"].as_u64()),
        (400, Some(400))
    );
}

/// The list of services follows the store's files. A damaged file is no error.
#[test]
fn services_follow_the_files() {
    let served = Served::new();
    assert_eq!(served.json("/api/services")["data"], json!([]));
    served.take(&request("one", &[span(1, 1, 0, "a", 0, 1, &json!({}))]));
    assert_eq!(served.json("/api/services")["data"], json!(["one"]));
    served.take(&request("two", &[span(2, 1, 0, "b", 0, 1, &json!({}))]));
    assert_eq!(served.json("/api/services")["data"], json!(["one", "two"]));
    let store = served.store();
    let files = store
        .list(stroboscope_store::tables::StoreTable::Spans)
        .unwrap();
    std::fs::write(store.display(&files[0].0), b"PAR1 is not").unwrap();
    assert_eq!(served.json("/api/services")["data"], json!(["one", "two"]));
    store.remove(&[files[0].0.clone()]).unwrap();
    assert_eq!(served.json("/api/services")["data"], json!(["two"]));
}

#[test]
fn grafana_searches() {
    let served = shops();
    let (from_us, to_us) = (T0_S * 1_000_000, (T0_S + 10) * 1_000_000);
    let search = |more: &str| {
        ids(&served.json(&format!(
            "/api/traces?start={from_us}&end={to_us}&lookback=custom{more}"
        )))
    };
    assert_eq!(search(""), [3, 2, 1], "the last first");
    assert_eq!(search("&limit=2"), [3, 2]);
    assert_eq!(search("&service=shop"), [2, 1]);
    assert_eq!(
        search("&service=shop&operation=read"),
        [0; 0],
        "all of one span"
    );
    assert_eq!(search("&service=store&operation=read&limit=20"), [2, 1]);
    assert_eq!(search("&service=shop&minDuration=100ms"), [2]);
    assert_eq!(
        search("&service=shop&operation=GET%20%2Fcart&maxDuration=0.1s"),
        [1]
    );
    assert_eq!(search("&service=shop&tags=%7B%22user%22%3A%222%22%7D"), [2]);
    assert_eq!(
        search("&service=shop&tags=%7B%22error%22%3A%22true%22%7D"),
        [2]
    );
    assert_eq!(search("&tags=%7B%22span.kind%22%3A%22producer%22%7D"), [3]);
    assert_eq!(
        search("&tags=%7B%22zone%22%3A%22a%22%2C%22user%22%3A%221%22%7D"),
        [1]
    );
    assert_eq!(search("&service=nobody"), [0; 0]);
    let later = format!(
        "/api/traces?service=shop&start={}&end={to_us}",
        from_us + 500_000
    );
    assert_eq!(ids(&served.json(&later)), [2]);
    let by_id = format!("/api/traces?traceID={:032x}&traceID=1&traceID=99", 2);
    assert_eq!(ids(&served.json(&by_id)), [2, 1]);
    // Clients that sort by the first span need one.
    let all = served.json("/api/traces");
    assert!(
        all["data"]
            .as_array()
            .unwrap()
            .iter()
            .all(|trace| trace["spans"][0].is_object())
    );
}

/// Checks that the counts of failed spans follow the rule by which failed spans are found.
#[test]
fn a_failure_is_one_whatever_the_type_of_its_value() {
    let served = Served::new();
    let values = json!([
        {"intValue": "1"}, {"intValue": "0"}, {"doubleValue": 0.5}, {"stringValue": "no"},
        {"stringValue": "0"}, {"boolValue": false}, {"arrayValue": {"values": [{"intValue": "0"}]}},
    ]);
    for (trace, value) in (1u8..).zip(values.as_array().unwrap()) {
        let more = json!({"attributes": [{"key": "error", "value": value}]});
        let at_ms = u64::from(trace);
        served.take(&request(
            "shop",
            &[span(trace, 1, 0, "GET /cart", at_ms, 5, &more)],
        ));
    }
    let counted = |id: &u64| served.by_id(u128::from(*id)).unwrap().spans[0].is_error();
    let failed: Vec<u64> = (1..8).rev().filter(counted).collect();
    assert_eq!(failed, [7, 4, 3, 1]);
    let (from_us, to_us) = (T0_S * 1_000_000, (T0_S + 10) * 1_000_000);
    let found = served.json(&format!(
        "/api/traces?start={from_us}&end={to_us}&tags=%7B%22error%22%3A%22true%22%7D"
    ));
    assert_eq!(ids(&found), failed);
}

#[test]
fn what_makes_no_sense_is_refused_in_the_envelope() {
    let served = shops();
    for (query, why) in [
        ("start=yesterday", "start=yesterday"),
        ("minDuration=5", "minDuration=5"),
        ("minDuration=5s&maxDuration=1s", "is longer than"),
        ("tags=x", "an object of JSON"),
        ("tag=x", "KEY:VALUE"),
        ("limit=-1", "limit=-1"),
        ("limit=0", "1 or more"),
        ("traceID=xyz", "`xyz` is not a trace id"),
    ] {
        let answer = served.ask(&format!("/api/traces?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        let said = answer.json()["errors"][0]["msg"].to_string();
        assert!(said.contains(why), "{query}: {said}");
    }
    for id in ["0", "xyz", &"1".repeat(33), "%3Cscript%3E"] {
        let answer = served.ask(&format!("/api/traces/{id}"));
        assert_eq!(
            (answer.status, &*answer.kind),
            (400, "application/json"),
            "{id}"
        );
    }
    let none = served.ask(&format!("/api/traces/{:032x}?start=1&end=2", 77));
    assert_eq!(none.status, 404);
    assert_eq!(
        none.json()["errors"],
        json!([{"code": 404, "msg": "trace not found"}])
    );
    let empty = Served::new();
    assert_eq!(
        empty.json("/api/traces?service=shop&limit=20")["data"],
        json!([])
    );
    assert_eq!(empty.ask("/api/traces/1").status, 404);
}

#[test]
fn a_trace_is_as_the_timeline_has_it() {
    let served = shops();
    let answer = served.json("/api/traces/2?prettyPrint=true");
    let trace = &answer["data"][0];
    let spans = trace["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 3);
    let root = &spans[0];
    assert_eq!(root["operationName"], "GET /cart");
    assert_eq!(root["references"], json!([]));
    assert_eq!(root["startTime"], (T0_S + 1) * 1_000_000);
    assert_eq!(root["duration"], 200_000);
    let has = |tag: Value| root["tags"].as_array().unwrap().contains(&tag);
    assert!(
        has(json!({"key": "user", "type": "int64", "value": 2})),
        "{root:#}"
    );
    assert!(has(
        json!({"key": "span.kind", "type": "string", "value": "server"})
    ));
    assert!(has(json!({"key": "error", "type": "bool", "value": true})));
    assert!(has(
        json!({"key": "otel.status_code", "type": "string", "value": "ERROR"})
    ));
    assert!(has(
        json!({"key": "otel.status_description", "type": "string", "value": "no"})
    ));
    assert_eq!(
        spans[1]["references"],
        json!([{"refType": "CHILD_OF", "traceID": format!("{:032x}", 2), "spanID": format!("{:016x}", 1)}])
    );
    assert_eq!(
        trace["processes"],
        json!({
            "p1": {"serviceName": "shop", "tags": [{"key": "zone", "type": "string", "value": "a"}]},
            "p2": {"serviceName": "store", "tags": [{"key": "zone", "type": "string", "value": "a"}]},
        })
    );
    assert_eq!(
        (&spans[0]["processID"], &spans[2]["processID"]),
        (&json!("p1"), &json!("p2"))
    );
}

#[test]
fn dependencies_are_calls_between_services() {
    let served = shops();
    let end_ms = (T0_S + 10) * 1_000;
    let all = served.json(&format!("/api/dependencies?endTs={end_ms}&lookback=60000"));
    assert_eq!(
        all["data"],
        json!([{"parent": "shop", "child": "store", "callCount": 2}])
    );
    let before = served.json(&format!(
        "/api/dependencies?endTs={}&lookback=60000",
        T0_S * 1_000 + 500
    ));
    assert_eq!(before["data"][0]["callCount"], 1);
    assert_eq!(
        served.json("/api/dependencies?endTs=1000&lookback=1000")["data"],
        json!([])
    );
}

#[test]
fn newer_uis_ask_the_third_version() {
    let served = shops();
    assert_eq!(
        served.json("/api/v3/services"),
        json!({"services": ["mailer", "shop", "store"]})
    );
    assert_eq!(
        served.json("/api/v3/operations?service=mailer"),
        json!({"operations": [{"name": "send", "spanKind": "producer"}]})
    );
    let range =
        "query.startTimeMin=2023-11-14T22:13:20.000000000Z&query.startTimeMax=2023-11-14T22:13:30Z";
    let summaries = served.json(&format!(
        "/api/v3/trace-summaries?query.serviceName=shop&{range}&query.searchDepth=20&query.durationMin=100ms\
         &query.attributes=%7B%22user%22%3A%222%22%7D"
    ));
    let start_ns = (T0_S + 1) * 1_000_000_000;
    assert_eq!(
        summaries,
        json!({"summaries": [{
            "traceId": format!("{:032x}", 2), "rootServiceName": "shop", "rootOperationName": "GET /cart",
            "minStartTimeUnixNano": start_ns.to_string(),
            "maxEndTimeUnixNano": (start_ns + 200_000_000).to_string(),
            "spanCount": 3, "errorSpanCount": 1, "orphanSpanCount": 0,
            "services": [
                {"name": "shop", "spanCount": 2, "errorSpanCount": 1},
                {"name": "store", "spanCount": 1, "errorSpanCount": 0},
            ],
        }]})
    );
    // The service is optional, and names may have the form of protobuf.
    let snake = range
        .replace("startTimeMin", "start_time_min")
        .replace("startTimeMax", "start_time_max");
    let all = served.json(&format!("/api/v3/trace-summaries?{snake}"));
    assert_eq!(all["summaries"].as_array().unwrap().len(), 3);
    let found = served.json(&format!("/api/v3/traces?{range}&query.service_name=mailer"));
    let spans = &found["result"]["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans[0]["kind"], 4);
    assert_eq!(
        spans[0]["startTimeUnixNano"],
        ((T0_S + 2) * 1_000_000_000).to_string()
    );
    let none = served.ask(&format!("/api/v3/traces?{range}&query.service_name=nobody"));
    assert_eq!(none.status, 404);
    assert_eq!(
        none.json(),
        json!({"error": {"httpCode": 404, "message": "No traces found"}})
    );
    assert_eq!(
        served.ask("/api/v3/traces/77").json()["error"]["httpCode"],
        404
    );
    // The id may be hex of up to 32 digits, or base64.
    for id in [
        "2",
        "00000000000000000000000000000002",
        "AAAAAAAAAAAAAAAAAAAAAg==",
    ] {
        let found = served.json(&format!(
            "/api/v3/traces/{id}?startTime=2023-11-14T22:13:20Z"
        ));
        assert!(
            found["result"]["resourceSpans"].as_array().unwrap().len() > 1,
            "{id}"
        );
    }
    for (query, why) in [
        ("", "query.startTimeMin is required"),
        (
            "query.startTimeMin=now&query.startTimeMax=now",
            "expected a time such as",
        ),
        (
            &*format!("{range}&query.filter=x"),
            "filters are not supported",
        ),
    ] {
        let answer = served.ask(&format!("/api/v3/trace-summaries?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(
            answer.json()["error"]["message"]
                .as_str()
                .unwrap()
                .contains(why),
            "{query}"
        );
    }
}

/// A log line of OTLP inside a span is an event of it in both versions of Jaeger's API and in
/// Tempo's.
#[test]
fn log_lines_are_events_of_their_span() {
    let served = Served::new();
    let limits = Limits::default();
    let mut rows = Rows::default();
    let spans = request("shop", &[span(1, 1, 0, "pay", 0, 10, &json!({}))]).to_string();
    otlp_json(spans.as_bytes(), &limits, &mut rows).unwrap();
    let line = json!({
        "timeUnixNano": (T0_S * 1_000_000_000 + 1_000_000).to_string(),
        "traceId": format!("{:032x}", 1),
        "spanId": format!("{:016x}", 1),
        "body": {"stringValue": "declined"},
    });
    let logs = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [line]}]}]}).to_string();
    let taken = otlp_logs_json(logs.as_bytes(), &limits, &mut rows).unwrap();
    assert_eq!((taken.records, taken.rejected), (1, 0));
    served.write(rows);
    let first = served.json("/api/traces/1");
    let logs = &first["data"][0]["spans"][0]["logs"];
    assert_eq!(logs.as_array().unwrap().len(), 1, "{first:#}");
    let third = served.json("/api/v3/traces/1");
    let tempo = served.json("/tempo/api/traces/1");
    for resources in [&third["result"]["resourceSpans"], &tempo["batches"]] {
        let events = &resources[0]["scopeSpans"][0]["spans"][0]["events"];
        assert_eq!(events.as_array().unwrap().len(), 1, "{resources:#}");
        assert_eq!(events[0]["name"], "declined");
        let body = json!({"key": "log.body", "value": {"stringValue": "declined"}});
        let attributes = events[0]["attributes"].as_array().unwrap();
        assert!(attributes.contains(&body), "{events:#}");
    }
}
