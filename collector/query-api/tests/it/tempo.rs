//! Tests with the requests that Grafana's Tempo data source makes.

use prost::Message as _;
use serde_json::{Value, json};
use stroboscope_otlp::message::ResourceSpans;

use crate::jaeger::{T0_S, shops};
use crate::round_trip::normal;
use crate::served::Served;

/// Escapes a query for use as a parameter.
pub(crate) fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn found(served: &Served, query: &str) -> Vec<u64> {
    let range = format!("start={T0_S}&end={}", T0_S + 10);
    let answer = served.json(&format!(
        "/tempo/api/search?q={}&limit=20&spss=3&{range}",
        escaped(query)
    ));
    let id = |trace: &Value| u64::from_str_radix(trace["traceID"].as_str().unwrap(), 16).unwrap();
    answer["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(id)
        .collect()
}

#[test]
fn explore_asks_whether_it_is_there() {
    let served = Served::new();
    let echo = served.ask("/tempo/api/echo");
    assert_eq!((echo.status, &*echo.text()), (200, "echo"));
    let none = served.ask("/tempo/api/metrics/query_range?q=%7B%7D");
    assert_eq!(none.status, 404);
    assert!(
        none.text().contains("metrics of TraceQL are not supported"),
        "{}",
        none.text()
    );
    assert_eq!(
        served.json("/tempo/api/search?q=%7B%7D"),
        json!({"traces": [], "metrics": {}})
    );
}

#[test]
fn traces_are_found_by_traceql() {
    let served = shops();
    for (query, expected) in [
        ("", &[3, 2, 1][..]),
        ("{}", &[3, 2, 1]),
        ("{ resource.service.name = \"shop\" }", &[2, 1]),
        (
            "{ resource.service.name = \"shop\" && name = \"read\" }",
            &[],
        ),
        (
            "{ resource.service.name = \"shop\" } && { name = \"read\" }",
            &[2, 1],
        ),
        ("{ resource.zone = \"a\" }", &[3, 2, 1]),
        ("{ span.zone = \"a\" }", &[]),
        ("{ .zone = \"a\" }", &[3, 2, 1]),
        ("{ .user = 2 }", &[2]),
        ("{ span.user >= 1 && span.user < 2 }", &[1]),
        ("{ status = error }", &[2]),
        (
            "{ status != error && kind = server && name =~ \"GET.*\" }",
            &[1],
        ),
        ("{ status = unset && kind = producer }", &[3]),
        ("{ duration > 100ms }", &[2]),
        ("{ trace:duration > 100ms || rootName = \"send\" }", &[3, 2]),
        ("{ rootServiceName = \"mailer\" }", &[3]),
        (
            "{ name = \"GET /cart\" } >> { name = \"read\" && duration < 30ms }",
            &[1],
        ),
        ("{ kind = client } | count() > 0", &[2, 1]),
        (
            "{ .user = 2 } | select(resource.zone, name) with(most_recent=true)",
            &[2],
        ),
        ("{ name !~ \"s.*|read|call.*\" }", &[2, 1]),
    ] {
        assert_eq!(found(&served, query), expected, "{query}");
    }
    for (query, why) in [
        ("{ .user = }", "column 11: expected a text in quotes"),
        ("{ name = \"\" ", "column 13"),
        ("{} | rate()", "count() > 3"),
        ("{} then {}", "column 4"),
        ("{ .user = 1 and .b = 2 }", "column 13"),
    ] {
        let answer = served.ask(&format!("/tempo/api/search?q={}", escaped(query)));
        assert_eq!(
            (answer.status, &*answer.kind),
            (400, "text/plain; charset=utf-8"),
            "{query}"
        );
        assert!(answer.text().contains(why), "{query}: {}", answer.text());
    }
}

/// The response has no other fields, its 64-bit integers are texts, and its duration has 32 bits,
/// because clients reject other responses.
#[test]
fn a_found_trace_says_no_more_than_readers_know() {
    let served = shops();
    let query = escaped("{ kind = server } | select(span.user, resource.zone, status)");
    let answer = served.json(&format!(
        "/tempo/api/search?q={query}&limit=1&start={T0_S}&end={}",
        T0_S + 2
    ));
    let start_ns = (T0_S + 1) * 1_000_000_000;
    let attributes = |status: &str, user: Option<&str>| {
        let mut all = Vec::new();
        all.extend(user.map(|user| json!({"key": "user", "value": {"intValue": user}})));
        all.push(json!({"key": "zone", "value": {"stringValue": "a"}}));
        all.push(json!({"key": "status", "value": {"stringValue": status}}));
        all.push(json!({"key": "kind", "value": {"stringValue": "server"}}));
        all
    };
    assert_eq!(
        answer,
        json!({"metrics": {}, "traces": [{
            "traceID": format!("{:032x}", 2), "rootServiceName": "shop", "rootTraceName": "GET /cart",
            "startTimeUnixNano": start_ns.to_string(), "durationMs": 200,
            "spanSets": [{"matched": 2, "spans": [
                {"spanID": format!("{:016x}", 1), "name": "GET /cart", "startTimeUnixNano": start_ns.to_string(),
                 "durationNanos": "200000000", "attributes": attributes("error", Some("2"))},
                {"spanID": format!("{:016x}", 3), "name": "read",
                 "startTimeUnixNano": (start_ns + 15_000_000).to_string(),
                 "durationNanos": "170000000", "attributes": attributes("unset", None)},
            ]}],
            "serviceStats": {
                "shop": {"spanCount": 2, "errorCount": 1}, "store": {"spanCount": 1, "errorCount": 0},
            },
        }]})
    );
}

#[test]
fn a_trace_comes_in_protobuf_and_in_json() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        resource_spans: Vec<ResourceSpans>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Response {
        #[prost(message, optional, tag = "1")]
        trace: Option<Trace>,
    }
    let served = shops();
    let expected = served.by_id(2).unwrap();
    let expected = normal(&stroboscope_otlp::resource_spans(expected.otlp_parts()));
    assert_eq!(expected.len(), 3);
    let answer = served.ask_for(
        &format!("/tempo/api/v2/traces/{:032x}", 2),
        "application/protobuf",
    );
    assert_eq!(
        (answer.status, &*answer.kind),
        (200, "application/protobuf")
    );
    let trace = Response::decode(&*answer.body).unwrap().trace.unwrap();
    assert_eq!(normal(&trace.resource_spans), expected);
    let answer = served.ask_for("/tempo/api/traces/2", "application/protobuf");
    assert_eq!(
        normal(&Trace::decode(&*answer.body).unwrap().resource_spans),
        expected
    );
    let json = served.json("/tempo/api/traces/2");
    assert_eq!(
        json["batches"][0]["scopeSpans"][0]["spans"][0]["name"],
        "GET /cart"
    );
    let json = served.json("/tempo/api/v2/traces/2?start=1&end=2");
    assert_eq!(json["trace"]["resourceSpans"].as_array().unwrap().len(), 2);
    for (id, status) in [("77", 404), ("xyz", 400)] {
        for version in ["", "v2/"] {
            let answer = served.ask_for(
                &format!("/tempo/api/{version}traces/{id}"),
                "application/protobuf",
            );
            assert_eq!(
                (answer.status, &*answer.kind),
                (status, "text/plain; charset=utf-8"),
                "{id}"
            );
        }
    }
}

#[test]
fn what_is_typed_is_completed() {
    let served = shops();
    let tags = served.json("/tempo/api/v2/search/tags?scope=none&limit=5000");
    let of = |name: &str| {
        let scopes = tags["scopes"].as_array().unwrap();
        scopes.iter().find(|scope| scope["name"] == name).unwrap()["tags"].clone()
    };
    assert_eq!(of("resource"), json!(["service.name", "zone"]));
    assert_eq!(of("span"), json!(["error", "span.kind", "user"]));
    assert!(
        of("intrinsic")
            .as_array()
            .unwrap()
            .contains(&json!("rootServiceName"))
    );
    let one = served.json("/tempo/api/v2/search/tags?scope=resource");
    assert_eq!(one["scopes"].as_array().unwrap().len(), 1);
    let values = |tag: &str| {
        served.json(&format!("/tempo/api/v2/search/tag/{tag}/values"))["tagValues"].clone()
    };
    let text = |value: &str| json!({"type": "string", "value": value});
    assert_eq!(
        values("resource.service.name"),
        json!([text("mailer"), text("shop"), text("store")])
    );
    assert_eq!(values("resource.zone"), json!([text("a")]));
    assert_eq!(values(".zone"), json!([text("a")]));
    assert_eq!(values("span.zone"), json!([]));
    assert_eq!(
        values("span.user"),
        json!([{"type": "int", "value": "1"}, {"type": "int", "value": "2"}])
    );
    assert_eq!(
        values("status")[0],
        json!({"type": "keyword", "value": "error"})
    );
    assert_eq!(values("name").as_array().unwrap().len(), 4);
    let old = served.json("/tempo/api/search/tag/user/values");
    assert_eq!(old, json!({"tagValues": ["1", "2"]}));
    assert!(
        served.json("/tempo/api/search/tags")["tagNames"]
            .as_array()
            .unwrap()
            .contains(&json!("zone"))
    );
}
