//! Card numbers that services plant wherever they can send a text are neither in the log nor in the
//! store, reports, pages, metrics, errors and log lines.

use std::process::Command;
use std::time::{Duration, Instant};

use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::json;
use stroboscope::{event, span, tracked};
use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{ShipOutcome, ShipRequest};
use stroboscope_tests::Program;
use tonic::transport::Endpoint;

use crate::client::{ask, metrics};
use crate::redaction::{everything, found};
use crate::{Collector, collect};

const COLLECTOR: &str = "STROBOSCOPE_TEST_MASKED_BY";
const CARDS: [&str; 2] = ["4111111111111111", "4111 1111 1111 1111"];
const NUMBER: i64 = 4_111_111_111_111_111;

/// Runs a service with the SDK in a process of its own, if [`COLLECTOR`] is set. Does nothing
/// without the variable.
#[test]
fn service() {
    let Ok(address) = std::env::var(COLLECTOR) else {
        return;
    };
    let _tracing = stroboscope::builder()
        .service("pay 4111111111111111")
        .collector(address)
        .burst_config(stroboscope::BurstConfig::ALWAYS_ON)
        .init()
        .expect("it starts");
    while stroboscope::stats().windows == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    span!(
        "charge 4111111111111111",
        card = CARDS[0],
        number = NUMBER,
        kept = "native-kept"
    )
    .scope(|| {
        event!(
            "paid 4111111111111111",
            text = "card 4111 1111 1111 1111",
            card = NUMBER
        );
        tracked::scope(|| {
            let source = tracked::source("row 4111111111111111", "card=4111111111111111");
            tracked::send_with_content(&source, "invoice 4111 1111 1111 1111", 100);
        });
    });
}

/// Exports a span with OpenTelemetry's SDK and exporter.
fn export(grpc: &str) {
    let exporter = SpanExporter::builder().with_tonic();
    let exporter = exporter.with_endpoint(format!("http://{grpc}")).build();
    let resource = Resource::builder()
        .with_service_name("shop 4111111111111111")
        .with_attribute(KeyValue::new("owner.card", CARDS[1]));
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter.expect("an exporter"))
        .with_resource(resource.build())
        .build();
    let scope = InstrumentationScope::builder("scope 4111111111111111")
        .with_version(CARDS[0])
        .with_schema_url("https://example.com/4111111111111111")
        .with_attributes([KeyValue::new("of.scope", CARDS[0])]);
    let tracer = provider.tracer_with_scope(scope.build());
    let state = TraceState::from_key_value([("vendor", CARDS[0])]).expect("a trace state");
    let context = SpanContext::new(
        TraceId::from(7),
        SpanId::from(7),
        TraceFlags::SAMPLED,
        true,
        state,
    );
    let link = Link::new(context, vec![KeyValue::new("of.link", NUMBER)], 0);
    let list = Value::Array(Array::String(vec![CARDS[0].into(), "otlp-kept".into()]));
    let numbers = Value::Array(Array::I64(vec![NUMBER, 7]));
    let attributes = [
        KeyValue::new("key 4111111111111111", "x"),
        KeyValue::new("text", format!("to {} please", CARDS[1])),
        KeyValue::new("number", NUMBER),
        KeyValue::new("double", NUMBER as f64),
        KeyValue::new("list", list),
        KeyValue::new("numbers", numbers),
    ];
    let builder = tracer.span_builder("GET /cards/4111111111111111");
    let mut span = builder
        .with_attributes(attributes)
        .with_links(vec![link])
        .start(&tracer);
    span.add_event(
        "used 4111111111111111",
        vec![KeyValue::new("of.event", NUMBER)],
    );
    span.set_status(Status::error("declined 4111111111111111"));
    span.end();
    provider.shutdown().expect("all is sent");
}

/// Sends a log record in JSON, and malformed requests of spans.
async fn send_json(collector: &Collector) {
    let post = async |path: &str, body: &[u8]| {
        let kind = ["Content-Type: application/json"];
        ask(&collector.otlp, &format!("POST {path}"), &kind, body).await
    };
    let bytes = "NDExMTExMTExMTExMTExMQ==";
    let map = json!({"kvlistValue": {"values": [
        {"key": "4111111111111111", "value": {"bytesValue": bytes}},
        {"key": "kept", "value": {"stringValue": "json-kept"}},
    ]}});
    let record = json!({
        "traceId": "07".repeat(16), "timeUnixNano": "1700000000000000000",
        "severityText": "4111111111111111", "eventName": "event 4111111111111111", "body": map,
        "attributes": [{"key": "number", "value": {"intValue": "4111111111111111"}}],
        "unknown": {"texts": ["4111111111111111", NUMBER]},
    });
    let logs = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]});
    let answer = post("/v1/logs", logs.to_string().as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{}"),
        "{answer}"
    );
    let without_id = json!({"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "none", "name": "4111111111111111", "unknown": "4111111111111111"},
    ]}]}]});
    for (bad, status) in [
        (without_id.to_string(), 200),
        (r#"{"resourceSpans":"4111111111111111"}"#.to_owned(), 400),
        (r#"{"resourceSpans" "4111111111111111"}"#.to_owned(), 400),
    ] {
        let answer = post("/v1/traces", bad.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        check(&answer, "the answer to a bad request");
    }
}

/// Sends a batch that is rejected, and that a line in the collector's log names by its service.
async fn send_bad_batch(collector: &Collector) {
    let mut bad = batch(9, 0, 2);
    bad.process.as_mut().expect("a process").service = "pay 4111111111111111".to_owned();
    bad.spans.as_mut().expect("spans").flags.clear();
    let channel = Endpoint::from_shared(format!("http://{}", collector.grpc));
    let channel = channel.expect("an address").connect().await;
    let requests = tokio_stream::iter([ShipRequest { batch: Some(bad) }]);
    let mut client = CollectorClient::new(channel.expect("it listens"));
    let replies = client.ship(requests).await;
    let reply = replies.expect("a stream").into_inner().message().await;
    let reply = reply.expect("an answer").expect("one");
    assert_eq!(reply.outcome(), ShipOutcome::Refused, "{}", reply.detail);
}

/// Checks that a text has no card number.
fn check(text: &str, name: &str) {
    let cards = CARDS.map(str::to_owned);
    let found = found(text.as_bytes(), &cards);
    assert!(found.is_empty(), "{name}: {found:?} in {text}");
}

/// Checks that the files of a data directory have no card numbers, but have other texts and the
/// masked names.
fn check_files(program: &Program, name: &str) {
    let all = everything(&program.data());
    let cards = CARDS.map(str::to_owned);
    assert_eq!(found(&all, &cards), [""; 0], "{name}");
    let kept = [
        "native-kept",
        "otlp-kept",
        "json-kept",
        "charge ****",
        "shop ****",
    ]
    .map(str::to_owned);
    assert_eq!(found(&all, &kept).len(), kept.len(), "{name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn card_numbers_are_nowhere() {
    let program = Program::new();
    let arguments = ["--redact", "mask:{card}", "--live-quiet", "100ms"];
    let mut collector = collect(&program, &arguments);
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "masks::service", "--nocapture"])
        .env(COLLECTOR, format!("http://{}", collector.grpc))
        .output()
        .expect("the service runs");
    assert!(output.status.success(), "{output:?}");
    let grpc = collector.grpc.clone();
    let exporting = tokio::task::spawn_blocking(move || export(&grpc));
    exporting.await.expect("it exports");
    send_json(&collector).await;
    send_bad_batch(&collector).await;
    check_files(&program, "the log");

    // The live model, and metrics and pages from it.
    let deadline = Instant::now() + Duration::from_secs(30);
    let live = loop {
        let live = ask(&collector.pages, "GET /metrics/requests", &[], b"").await;
        if live.contains("charge ****") && live.contains("GET /cards/****") {
            break live;
        }
        assert!(Instant::now() < deadline, "{live}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    check(&live, "/metrics/requests");
    for page in [
        "/metrics",
        "/api/model",
        "/api/processes",
        "/model",
        "/",
        "/traces",
    ] {
        let answer = ask(&collector.pages, &format!("GET {page}"), &[], b"").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{page}: {answer}");
        check(&answer, page);
    }
    let counted = metrics(&collector.pages).await;
    let line = |line: &&str| line.starts_with("stroboscope_redacted_values_total{action=\"mask\"}");
    let line = counted.lines().find(line).expect("the metric");
    let count: u64 = line
        .rsplit(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .expect("a number");
    assert!(count >= 30, "{line}");

    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    assert!(said.contains("refused batch 0 of pay ****"), "{said}");
    check(&said, "the collector's log");
    check_files(&program, "the store");
    for report in [
        &["infer", "--json"][..],
        &["search", "--json", "{ name =~ \".*\" }"],
        &["provenance", "show", "--json"],
        &["slack", "--json"],
    ] {
        let report = program.run(report).succeeds();
        check(&format!("{}", report.json()), "a report");
    }
}

/// A wrong pattern is an error at the start, which names the problem.
#[test]
fn a_wrong_pattern_is_an_error_at_the_start() {
    let program = Program::new();
    let collect = |rule| program.run(&["collect", "--listen", "127.0.0.1:0", "--redact", rule]);
    let words = [
        "mask:ab(c",
        "    ab(c\n      ^\nerror: unclosed group",
        "correct or shorten the pattern",
    ];
    collect("mask:ab(c").fails_with(2, &words);
    collect("mask:{visa}").fails_with(2, &["no pattern is named {visa}: write {bearer}, {card}"]);
    collect("mask:a*").fails_with(2, &["matches the empty text"]);
}
