//! Log records by the protocol.

use serde_json::Value;
use stroboscope_tests::Program;

use crate::store::{ask, attributes, collect, number, rows, text};

/// Three records: one in a span, one with an event name in that span, and one of no request.
const LOGS: &str = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeLogs":[{
    "scope":{"name":"app"},"logRecords":[
    {"timeUnixNano":"1544712660300000000","severityNumber":9,"body":{"stringValue":"took 5 steps"},
     "traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174"},
    {"timeUnixNano":"1544712660500000000","eventName":"paid","traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174"},
    {"timeUnixNano":"1544712660600000000","body":{"stringValue":"for nobody"}}]}]}]}"#;

const SPAN: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
    "scopeSpans":[{"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","name":"pay","kind":2,
    "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000"}]}]}]}"#;

const JSON: &str = "Content-Type: application/json";

#[test]
fn records_of_requests_are_kept_and_others_are_counted() {
    let program = Program::new();
    let (server, _, http, pages) = collect(&program);
    let address = http
        .trim_start_matches("http://")
        .trim_end_matches("/v1/traces");
    let post =
        |path: &str, headers: &[&str], body: &[u8]| ask(address, "POST", path, headers, body);
    let (head, body) = post("/v1/logs", &[JSON], LOGS.as_bytes());
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let partial: Value = serde_json::from_str(&body).expect("JSON");
    let partial = &partial["partialSuccess"];
    assert_eq!(partial["rejectedLogRecords"], "1", "{partial}");
    let message = "a log record was left out: it has no trace id";
    assert_eq!(partial["errorMessage"], message);
    assert_eq!(post("/v1/traces", &[JSON], SPAN.as_bytes()).1, "{}");
    assert_eq!(post("/v1/logs", &[JSON], b"{}").1, "{}");
    // As for traces, an error is a status in the encoding of the request.
    for (headers, body, status) in [
        (&[JSON][..], &b"{\"resourceLogs\":7"[..], "400"),
        (&[JSON, "Content-Encoding: br"], b"x", "415"),
        (&["Content-Type: text/plain"], b"x", "415"),
        (
            &["Content-Type: application/x-protobuf"],
            b"\x0a\xff\x01x",
            "400",
        ),
        (&[JSON], &vec![b' '; (64 << 20) + 1], "413"),
    ] {
        let (head, said) = post("/v1/logs", headers, body);
        let status = format!("HTTP/1.1 {status}");
        assert!(head.starts_with(&status), "{head}\n{said}");
    }
    let metrics = ask(&pages, "GET", "/metrics", &[], b"").1;
    for line in [
        "otlp_requests_total 2",
        "otlp_rejected_spans_total 0",
        "otlp_rejected_logs_total 0",
        "otlp_logs_without_trace_total 1",
        "records_total 3",
    ] {
        let line = format!("stroboscope_{line}\n");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    // Data moves from the log to the tables also after a kill.
    server.kill();
    let (mut server_again, ..) = collect(&program);
    assert!(server_again.stop(libc::SIGTERM).success());
    let mut events = rows(&program.data(), "events");
    events.sort_by_key(|row| number(&row["time_ns"]));
    let names: Vec<String> = events.iter().map(|row| text(&row["name"])).collect();
    assert_eq!(names, ["took", "paid"]);
    assert_eq!(attributes(&events[0])["log.body"], "took 5 steps");
    // The line cuts no segment, and the event does.
    let model = program.run(&["infer", "--json"]).succeeds().json();
    let said = model.to_string();
    assert!(said.contains("paid") && !said.contains("took"), "{said}");
    assert_eq!(model["left_out"], Value::Null, "{said}");
}
