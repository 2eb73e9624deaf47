//! Tests spans that are declared as requests: each begins a trace of its own and has a link to the
//! span of the connection that contains it, if any.

mod collector;

use collector::{Collector, Span, wait_for};
use stroboscope::{BurstConfig, FutureExt as _, span};
use stroboscope_proto::v1::SpanFlag;

#[stroboscope::trace(request, fields(key))]
fn set(key: u32) -> u32 {
    span!("write").scope(|| key)
}

#[stroboscope::trace(request, err)]
fn delete(key: u32) -> Result<u32, String> {
    Err(format!("no key {key}"))
}

#[stroboscope::trace(request)]
async fn publish() {
    tokio::task::yield_now().await;
    inside().await;
}

#[stroboscope::trace(name = "subscribe", request, fields(topic), err)]
async fn subscribed(topic: &str) -> Result<(), String> {
    tokio::task::yield_now().await;
    topic.parse::<u32>().map_err(|error| error.to_string())?;
    Ok(())
}

#[stroboscope::trace]
async fn inside() {
    tokio::task::yield_now().await;
}

fn nothing() {
    let _request = span!(request: "idle").entered();
    assert!(!stroboscope::current().is_valid());
    assert_eq!(set(3), 3);
}

#[test]
fn requests_are_their_own_traces_and_know_their_connection() {
    nothing();
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .expect("recording starts");
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(
        async {
            publish().await;
            subscribed("7").await.expect("a number");
            subscribed("x").await.expect_err("no number");
        }
        .in_span(span!("worker")),
    );
    {
        let connection = span!("connection").entered();
        let before = connection.context();
        {
            let key = 7;
            let _request = span!(request: "get", key, kind = "fast").entered();
            drop(span!("read"));
        }
        assert_eq!(set(1), 1);
        delete(2).expect_err("nothing to delete");
        assert_eq!(stroboscope::current(), before);
        drop(span!("between"));
    }
    drop(span!(request: "alone"));
    drop(guard);
    nothing();

    let connection = collector.span("connection");
    let worker = collector.span("worker");
    let check = |request: &Span, outer: &Span| {
        assert_eq!(request.parent, 0);
        assert!(request.has(SpanFlag::LocalRoot) && request.trace != outer.trace);
        assert!(outer.has(SpanFlag::Connection) && !request.has(SpanFlag::Connection));
        assert!(request.has(SpanFlag::Request) && !outer.has(SpanFlag::Request));
        let trace = &outer.trace;
        let link = format!(
            r#"[{{"trace_id":"{trace}","span_id":"{:016x}"}}]"#,
            outer.id
        );
        assert_eq!(request.attributes["links"], link);
    };
    let (get, set, delete) = (
        collector.span("get"),
        collector.span("set"),
        collector.span("delete"),
    );
    for request in [&get, &set, &delete] {
        check(request, &connection);
    }
    assert_eq!(
        (&*get.attributes["key"], &*get.attributes["kind"]),
        ("7", "fast")
    );
    assert_eq!(set.attributes["key"], "1");
    assert_eq!(delete.attributes["otel.status_description"], "no key 2");
    for (inner, request) in [("read", &get), ("write", &set), ("between", &connection)] {
        let inner = collector.span(inner);
        assert_eq!((&inner.trace, inner.parent), (&request.trace, request.id));
    }
    let publish = collector.span("publish");
    check(&publish, &worker);
    let inside = collector.span("inside");
    assert_eq!((&inside.trace, inside.parent), (&publish.trace, publish.id));
    let spans = collector.spans();
    let subscribed = spans.iter().filter(|span| span.name == "subscribe");
    let topics = subscribed.map(|span| {
        check(span, &worker);
        (
            &*span.attributes["topic"],
            span.attributes.contains_key("error"),
        )
    });
    assert_eq!(topics.collect::<Vec<_>>(), [("7", false), ("x", true)]);
    let alone = collector.span("alone");
    assert!(alone.parent == 0 && !alone.attributes.contains_key("links"));
    let requests = spans.iter().filter(|span| span.has(SpanFlag::LocalRoot));
    assert_eq!(requests.count(), 9);
}
