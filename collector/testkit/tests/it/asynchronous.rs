//! Async code under test.

use std::time::Duration;

use stroboscope::{FutureExt as _, span};
use tokio::time::sleep;

use super::checkout;

#[stroboscope::trace]
async fn page() {
    let slow = sleep(Duration::from_millis(20)).in_span(span!("slow"));
    let quick = async {}.in_span(span!("quick"));
    tokio::join!(slow, quick);
}

#[tokio::test]
async fn futures_of_one_thread() {
    let recording = stroboscope_testkit::start();
    tokio::join!(page(), page());
    // A task of this thread, even without the context.
    tokio::spawn(async { checkout(4) }).await.unwrap();
    let traces = recording.traces();
    assert_eq!((traces.len(), traces.named("page").len()), (3, 2));
    assert_eq!(traces.only("checkout").calls("db.query"), 4);
    for trace in traces.named("page") {
        assert!(trace.duration() >= Duration::from_millis(20));
        trace.assert_holds(r#"{ name = "quick" } overlaps { name = "slow" }"#);
        trace.assert_critical("slow");
        assert!(!trace.critical_path().contains("quick"), "{trace}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_need_the_context() {
    let recording = stroboscope_testkit::start();
    tokio::spawn(page().in_current_span()).await.unwrap();
    let detached = async {
        let _detached = span!("detached").entered();
        checkout(1);
    };
    tokio::spawn(detached).await.unwrap();
    let in_thread = stroboscope::in_current_context(|| checkout(2));
    tokio::task::spawn_blocking(in_thread).await.unwrap();

    let traces = recording.traces();
    assert_eq!((traces.len(), traces.named("page").len()), (2, 1));
    assert_eq!(traces.only("checkout").calls("db.query"), 2);
    assert!(recording.all_traces().only("detached").calls("db.query") == 1);
    let missing = super::messages::panic_of(|| _ = traces.only("detached"));
    assert!(missing.0.contains("outside of this test"), "{}", missing.0);
}

/// A server's span may end after its client has the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_end_soon_are_awaited() {
    let recording = stroboscope_testkit::start();
    // The first call of a process also waits for the connection to the collector.
    assert!(recording.traces().is_empty());
    let request = span!("request");
    let server = {
        let _request = request.entered();
        tokio::spawn(sleep(Duration::from_millis(200)).in_span(span!("server")))
    };
    assert_eq!(recording.traces().only("request").calls("server"), 1);
    server.await.unwrap();
}
