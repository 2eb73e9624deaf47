//! Tests spans whose names are configured as requests: they begin requests of their own, even
//! inside the span of a connection that is followed.

#![cfg(feature = "tracing")]

mod collector;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use collector::{Collector, wait_for};
use stroboscope::BurstConfig;
use stroboscope_proto::v1::SpanFlag;
use tracing::{info_span, instrument};
use tracing_subscriber::layer::SubscriberExt as _;

/// Bits of the burst config: the gate is open for the second 512 ms of every 1,024 ms.
const CONFIG: u64 = 512;

mod get {
    #[super::instrument]
    pub(super) fn apply(number: u32) {
        super::instrumented();
    }
}

#[instrument]
fn instrumented() {}

fn is_open() -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_millis() as u64 & CONFIG == CONFIG
}

/// Waits until the gate changes to `open`, and 100 ms more, because timers may be late.
fn wait_until(open: bool) {
    wait_for("the other half", || is_open() != open);
    wait_for("this half", || is_open() == open);
    std::thread::sleep(Duration::from_millis(100));
}

/// Records a connection that begins in a burst, with one request in the burst and one after it.
/// Returns false if the machine was too slow for this order.
fn connection() -> bool {
    wait_until(true);
    let connection = info_span!("connection").entered();
    get::apply(1);
    if !is_open() {
        return false;
    }
    wait_until(false);
    get::apply(2);
    info_span!("other").in_scope(instrumented);
    let is_between = !is_open();
    drop(connection);
    is_between
}

#[test]
fn each_request_is_chosen_by_itself() {
    let spans = (0..10).find_map(|_| {
        let collector = Collector::default();
        let guard = stroboscope::builder()
            .collector(collector.clone().start())
            .burst_config(BurstConfig::from_bits(CONFIG))
            .requests(["get::apply"])
            .init()
            .expect("recording starts");
        let subscriber = tracing_subscriber::registry().with(stroboscope::layer());
        let is_as_planned = tracing::subscriber::with_default(subscriber, connection);
        drop(guard);
        is_as_planned.then(|| collector.spans())
    });
    let spans = spans.expect("one of ten connections meets its bursts");
    let named = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:#?}");
        found[0]
    };
    let (connection, request, other) = (named("connection"), named("get::apply"), named("other"));
    // Only the request in the burst is recorded, although its connection is followed.
    assert_eq!(request.parent, 0);
    assert!(request.has(SpanFlag::LocalRoot) && request.trace != connection.trace);
    assert!(connection.has(SpanFlag::Connection) && !request.has(SpanFlag::Connection));
    assert!(request.has(SpanFlag::Request) && !connection.has(SpanFlag::Request));
    let link = format!(r#""span_id":"{:016x}""#, connection.id);
    assert!(request.attributes["links"].contains(&link));
    assert_eq!(request.attributes["number"], "1");
    assert_eq!(
        (other.parent, &other.trace),
        (connection.id, &connection.trace)
    );
    let inner: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "instrumented")
        .collect();
    let parents: Vec<_> = inner
        .iter()
        .map(|span| (&span.trace, span.parent))
        .collect();
    assert_eq!(parents.len(), 2, "{inner:#?}");
    assert!(parents.contains(&(&request.trace, request.id)));
    assert!(parents.contains(&(&other.trace, other.id)));
}
