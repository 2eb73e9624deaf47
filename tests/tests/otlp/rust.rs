//! OpenTelemetry's SDK for Rust, over gRPC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::{Value, json};
use stroboscope_tests::Program;

use crate::clients::{check_span, has_id};
use crate::store::{Row, collect, rows, rows_in_sql};

const REQUESTS: u64 = 20;

#[test]
fn rusts_exporter_over_grpc() {
    let program = Program::new();
    let (mut server, grpc, ..) = collect(&program);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let inside = runtime.enter();
    let exporter = SpanExporter::builder().with_tonic();
    let exporter = exporter.with_endpoint(format!("http://{grpc}")).build();
    let resource = Resource::builder()
        .with_service_name("shop")
        .with_attributes([
            KeyValue::new("host.name", "web1"),
            KeyValue::new("deployment.zone", "a"),
        ]);
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter.expect("an exporter"))
        .with_resource(resource.build())
        .build();
    drop(inside);
    let scope = InstrumentationScope::builder("shop.tracing").with_version("1.2");
    let tracer = provider.tracer_with_scope(scope.build());
    let begun = SystemTime::now();
    let at = |ns: u64| begun + Duration::from_nanos(ns);
    let ns = |ns: u64| at(ns).duration_since(UNIX_EPOCH).expect("now").as_nanos() as u64;
    let mut told: Vec<Value> = Vec::new();
    for number in 0..REQUESTS {
        let from = number * 1_000_000;
        let root = tracer.span_builder("GET /cart").with_kind(SpanKind::Server);
        let attributes = [
            KeyValue::new("http.route", "/cart"),
            KeyValue::new("share", 0.5),
        ];
        let root = root.with_start_time(at(from)).with_attributes(attributes);
        let within = Context::new().with_span(root.start_with_context(&tracer, &Context::new()));
        let child = tracer.span_builder("SELECT").with_kind(SpanKind::Client);
        let child = child.with_start_time(at(from + 100));
        let mut child = child.start_with_context(&tracer, &within);
        let rows = vec![KeyValue::new("rows", 2)];
        child.add_event_with_timestamp("row", at(from + 200), rows);
        child.set_status(Status::Ok);
        child.end_with_timestamp(at(from + 900));
        within.span().end_with_timestamp(at(from + 1_000));
        let ids = [within.span().span_context(), child.span_context()].map(|context| {
            let span_id = u64::from_be_bytes(context.span_id().to_bytes());
            (format!("{:032x}", context.trace_id()), span_id)
        });
        told.push(json!({
            "trace_id": ids[0].0, "span_id": ids[0].1, "parent_id": 0, "name": "GET /cart", "kind": "SERVER",
            "start_ns": ns(from), "end_ns": ns(from + 1_000), "status": "UNSET",
            "attributes": {"http.route": "/cart", "share": 0.5}, "events": [], "links": [],
        }));
        told.push(json!({
            "trace_id": ids[1].0, "span_id": ids[1].1, "parent_id": ids[0].1, "name": "SELECT", "kind": "CLIENT",
            "start_ns": ns(from + 100), "end_ns": ns(from + 900), "status": "OK", "attributes": {},
            "events": [{"name": "row", "time_ns": ns(from + 200), "attributes": {"rows": 2}}], "links": [],
        }));
    }
    provider.shutdown().expect("all is sent");
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
    let tables = ["spans", "events"];
    let stored = tables.map(|table| rows(&program.data(), table));
    check(&stored, &told);
    if let [Some(spans), Some(events)] = tables.map(|table| rows_in_sql(&program, table)) {
        check(&[spans, events], &told);
    }
    let model = program.run(&["infer", "--json"]).succeeds().json();
    assert_eq!(model["complete_traces"], REQUESTS);
}

/// Compares spans and events with the exported ones.
fn check([spans, events]: &[Vec<Row>; 2], told: &[Value]) {
    assert_eq!(spans.len(), told.len());
    for told in told {
        let row = spans.iter().find(|row| has_id(row, told));
        let row = row.unwrap_or_else(|| panic!("{told:#} is lost"));
        let of_span: Vec<&Row> = events.iter().filter(|row| has_id(row, told)).collect();
        check_span(told, row, &of_span);
    }
}
