//! Work that begins traces of its own, or continues in another place.

use stroboscope::{propagation, span};

use super::checkout;

#[test]
fn a_service_that_gets_the_headers_belongs_to_the_test() {
    let recording = stroboscope_testkit::start();
    {
        let _client = span!("client").entered();
        let mut headers = http::HeaderMap::new();
        propagation::inject(&mut headers);
        let serve = move || propagation::extract(&headers).scope("/checkout", || checkout(1));
        std::thread::spawn(serve).join().unwrap();
    }
    let traces = recording.traces();
    assert_eq!(traces.len(), 1);
    let trace = traces.only("client");
    trace.assert_holds(r#"{ name = "client" } > { kind = server } >> { name = "db.query" }"#);
}

#[test]
fn linked_requests_are_traces_of_the_test() {
    let recording = stroboscope_testkit::start();
    let message = {
        let publish = span!("publish").entered();
        propagation::format_traceparent(publish.context()).unwrap()
    };
    let consume = move || {
        let consume = span!("consume").entered();
        consume.follows(propagation::parse_traceparent(&message));
        for command in 0..3 {
            // A request inside of a longer span, linked to it.
            let _command = span!(request: "command", command).entered();
            checkout(command);
        }
    };
    std::thread::spawn(consume).join().unwrap();
    std::thread::spawn(|| checkout(7)).join().unwrap();
    let traces = recording.traces();
    let names: Vec<&str> = traces.iter().map(|trace| trace.name()).collect();
    assert_eq!(
        names,
        ["publish", "consume", "command", "command", "command"]
    );
    let queries = traces.iter().map(|trace| trace.calls("db.query"));
    assert_eq!(queries.collect::<Vec<_>>(), [0, 0, 0, 1, 2]);
}

/// Tests may share a queue. A consumer belongs to the test that runs it.
#[test]
fn a_consumer_in_another_test_belongs_to_that_test() {
    let producer = stroboscope_testkit::start();
    let message = {
        let publish = span!("publish").entered();
        propagation::format_traceparent(publish.context()).unwrap()
    };
    let other = move || {
        let consumer = stroboscope_testkit::start();
        let consume = span!("consume").entered();
        consume.follows(propagation::parse_traceparent(&message));
        drop(consume);
        assert_eq!(consumer.traces().only("consume").calls("consume"), 1);
        assert_eq!(consumer.traces().len(), 1);
    };
    std::thread::spawn(other).join().unwrap();
    assert_eq!(producer.traces().only("publish").calls("publish"), 1);
    assert_eq!(producer.traces().len(), 1);
}

#[test]
fn spans_of_tracing_are_recorded_by_a_subscriber() {
    let recording = stroboscope_testkit::start();
    let _subscriber = tracing::subscriber::set_default(stroboscope::subscriber());
    tracing::info_span!("shop checkout", user = 42).in_scope(|| checkout(1));
    let traces = recording.traces();
    let trace = traces.only("shop checkout");
    trace.assert_holds(r#"{ .user = 42 } >> { name = "db.query" }"#);
}
