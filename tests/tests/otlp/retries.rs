//! OTLP has no numbers that identify a retry. Repeated data is stored twice, and every reader uses
//! one copy.

use serde_json::Value;
use stroboscope_tests::Program;

use crate::store::{ask, collect_with, rows};

const TRACES: usize = 20;

/// Returns requests with spans with events and an element, and with log lines inside and outside of
/// a span.
fn requests(trace: usize) -> [(&'static str, String); 2] {
    let at = |ms: usize| format!("\"{}000000\"", 1_544_712_660_000 + 100 * trace + ms);
    let id = format!("5b8efff798038103d269b633813f{trace:04x}");
    let service =
        r#""resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]}"#;
    let text = |key: &str, value: &str| {
        format!(r#"[{{"key":"{key}","value":{{"stringValue":"{value}"}}}}]"#)
    };
    let of_trace = format!(r#""traceId":"{id}""#);
    let spans = format!(
        r#"{{"resourceSpans":[{{{service},"scopeSpans":[{{"spans":[
            {{{of_trace},"spanId":"00000000000000a1","name":"pay","kind":2,"startTimeUnixNano":{},"endTimeUnixNano":{},
              "attributes":{},"events":[{{"timeUnixNano":{},"name":"read","attributes":{}}},{{"timeUnixNano":{},"name":"sent"}}]}},
            {{{of_trace},"spanId":"00000000000000a2","parentSpanId":"00000000000000a1","name":"get","kind":3,
              "startTimeUnixNano":{},"endTimeUnixNano":{},"attributes":{}}}]}}]}}]}}"#,
        at(0),
        at(50),
        text("route", "/pay"),
        at(5),
        text("size", "small"),
        at(40),
        at(10),
        at(20),
        text("element", "row-1"),
    );
    let line = |ms: usize, name: &str, attributes: &str| {
        format!(
            r#"{{{of_trace},"timeUnixNano":{},"eventName":"{name}","attributes":{attributes}}}"#,
            at(ms)
        )
    };
    let logs = format!(
        r#"{{"resourceLogs":[{{{service},"scopeLogs":[{{"logRecords":[{},{},{},
            {{{of_trace},"spanId":"00000000000000a1","timeUnixNano":{},"body":{{"stringValue":"chatter"}}}}]}}]}}]}}"#,
        line(1, "begun", &text("element", "e1")),
        line(2, "going", &text("element", "e1")),
        line(3, "done", &text("colour", "red")),
        at(30),
    );
    [("/v1/traces", spans), ("/v1/logs", logs)]
}

/// Returns the number of stored rows and the output of readers, for a store to which each request
/// was sent `times` times.
fn told(times: usize) -> (usize, Vec<Value>) {
    let program = Program::new();
    let (mut server, _, http, pages) = collect_with(&program, &["--live-quiet", "5s"]);
    let address = http
        .trim_start_matches("http://")
        .trim_end_matches("/v1/traces");
    // The second copies follow all first ones, as after a timeout.
    for _ in 0..times {
        for (path, body) in (0..TRACES).flat_map(requests) {
            let headers = ["Content-Type: application/json"];
            let (head, said) = ask(address, "POST", path, &headers, body.as_bytes());
            assert!(
                head.starts_with("HTTP/1.1 200") && said == "{}",
                "{head}\n{said}"
            );
        }
    }
    // The live model looks at a trace when it has been quiet for a while.
    let mut live = Value::Null;
    for _ in 0..600 {
        live = serde_json::from_str(&ask(&pages, "GET", "/model", &[], b"").1).expect("JSON");
        if live["traces"] == TRACES {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(server.stop(libc::SIGTERM).success());
    // The begin of the window differs from run to run.
    live.as_object_mut()
        .and_then(|live| live.remove("window_from_ns"))
        .expect("the window");
    let stored = rows(&program.data(), "spans").len() + rows(&program.data(), "events").len();
    let mut said = vec![live];
    for verb in [
        &["infer"][..],
        &["critical-path", "--by", "route"],
        &["critical-path", "--by", "colour"],
        &["slack"],
        &["anomalies"],
        &["operations"],
        &["map"],
        &["search", "{ name = \"get\" }"],
    ] {
        let mut args = verb.to_vec();
        args.push("--json");
        said.push(program.run(&args).succeeds().json());
    }
    (stored, said)
}

/// Removes the keys in [`NOT_COMPARED`].
fn without_counts(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !NOT_COMPARED.contains(&key.as_str()));
            map.values_mut().for_each(without_counts);
        }
        Value::Array(list) => list.iter_mut().for_each(without_counts),
        _ => {}
    }
}

/// Keys that count rows: copies, and timestamps.
const NOT_COMPARED: [&str; 2] = ["copies", "timestamps"];

#[test]
fn what_is_sent_twice_is_read_once() {
    let (once, mut said_once) = told(1);
    let (twice, mut said_twice) = told(2);
    assert_eq!((once, twice), (8 * TRACES, 16 * TRACES));
    for (one, two) in said_once.iter_mut().zip(&mut said_twice) {
        without_counts(one);
        without_counts(two);
        assert_eq!(one, two);
    }
}
