//! Tests fields that are added to a span after it has begun.

mod collector;

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use collector::{Collector, wait_for};
use stroboscope::{
    BurstConfig, FutureExt as _, LossCause, SpanContext, display, event, record, span,
};

/// One process can record for one service only, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A value that must not be formatted: its `fmt` panics.
struct Unread;

impl Display for Unread {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("formatted for nobody");
    }
}

/// A value whose `fmt` records an event and a field.
struct Nosy;

impl Display for Nosy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        event!("from_inside");
        record("inside", 1);
        f.write_str("nosy")
    }
}

#[stroboscope::trace(fields(rows = 0))]
fn query(rows: u64) {
    record("rows", rows);
    span!("inner").scope(|| record("depth", 2));
    record("cached", true);
}

#[stroboscope::trace]
async fn answer() {
    tokio::task::yield_now().await;
    record("size", 7);
}

fn unread() {
    let span = span!("unread");
    span.record("field", display(Unread));
    span.follows(SpanContext::new(7, 8, true));
    span.error(Unread);
    let entered = span.entered();
    entered.record("field", display(Unread));
    entered.error(Unread);
    record("field", display(Unread));
    stroboscope::error(Unread);
}

#[test]
fn fields_are_added_to_the_span_they_are_of() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    unread();
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .expect("recording starts");
    wait_for("the gate", || stroboscope::stats().windows > 0);

    record("outside", display(Unread));
    query(42);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(answer());
    runtime.block_on(async { record("size", 8) }.in_span(span!("future")));
    let span = span!("job", state = "new");
    {
        // The field is added to `span` although `other` is the current span.
        let other = span!("other").entered();
        span.record("state", "done");
        std::thread::scope(|scope| drop(scope.spawn(|| span.record("elsewhere", -1))));
        other.record("ratio", 0.5);
        other.record("", "no name");
        other.error("broken");
    }
    span.record("absent", None::<u64>);
    span.record("by", String::from("owned"));
    span.record("value", display(Nosy));
    span.error(format_args!("{} of {}", 1, 2));
    drop(span);
    let batch = span!("batch").entered();
    batch.follows(SpanContext::new(7, 8, true));
    batch.follows(SpanContext::NONE);
    batch.follows(SpanContext::new(9 << 64, 10, false));
    drop(batch);
    drop(guard);

    let check = |name: &str, expected: &[&str]| {
        let attributes = collector.span(name).attributes;
        let attributes = attributes
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        assert_eq!(attributes.collect::<Vec<_>>(), expected, "{name}");
    };
    let link = |trace: u128, span: u64| {
        format!(r#"{{"trace_id":"{trace:032x}","span_id":"{span:016x}"}}"#)
    };
    let links = format!("links=[{},{}]", link(7, 8), link(9 << 64, 10));
    check("batch", &[&links]);
    check("query", &["cached=true", "rows=42"]);
    check("inner", &["depth=2"]);
    check("answer", &["size=7"]);
    check("future", &["size=8"]);
    check(
        "other",
        &[
            "=no name",
            "error=true",
            "otel.status_description=broken",
            "ratio=0.5",
        ],
    );
    check(
        "job",
        &[
            "by=owned",
            "elsewhere=-1",
            "error=true",
            "otel.status_description=1 of 2",
            "state=done",
            "value=nosy",
        ],
    );
    unread();
}

/// The collector rejects a whole batch if one span in it has more than 256 attributes.
#[test]
fn fields_beyond_those_that_a_collector_accepts_are_counted() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .expect("recording starts");
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let span = span!("wide");
    for number in 0..300 {
        span.record(format!("f{number}").leak(), number);
    }
    span.error("broken");
    drop(span);
    drop(guard);
    let attributes = collector.span("wide").attributes;
    assert!((250..=256).contains(&attributes.len()), "{attributes:?}");
    // The formatters of the other test make records inside of records, which are lost.
    let mut losses = stroboscope::stats().losses;
    losses.retain(|(cause, _)| *cause != LossCause::NoRing);
    assert_eq!(losses, [(LossCause::Oversize, 1)]);
}
