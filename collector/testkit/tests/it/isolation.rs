//! Concurrent tests have exactly their own traces.

use stroboscope::span;

use super::checkout;

/// Compares the traces of many recordings in many threads with what each thread did.
#[test]
fn each_test_has_exactly_its_own_traces() {
    let test = |thread: usize| {
        for round in 0..25 {
            let recording = stroboscope_testkit::start();
            let (requests, queries) = (round % 3, thread + round);
            (0..requests).for_each(|_| checkout(queries));
            drop(span!("alone"));
            let traces = recording.traces();
            assert_eq!(traces.named("checkout").len(), requests);
            for trace in traces.named("checkout") {
                assert_eq!(trace.calls("db.query"), queries);
                assert_eq!(trace.calls("stroboscope-testkit:db.query"), queries);
                assert_eq!(trace.calls("shop:db.query"), 0);
                trace.assert_calls("render", 1..=1);
            }
            assert_eq!(traces.only("alone").calls("alone"), 1);
            assert_eq!(traces.len(), requests + 1);
            if round == 24 {
                let all = recording.all_traces();
                assert!(all.named("checkout").len() >= requests && all.len() >= traces.len());
            }
        }
    };
    std::thread::scope(|scope| {
        (0..8).for_each(|thread| _ = scope.spawn(move || test(thread)));
    });
}

#[test]
fn a_later_call_adds_what_was_recorded_since() {
    let recording = stroboscope_testkit::start();
    assert!(recording.traces().is_empty());
    for requests in 1..=3 {
        checkout(1);
        assert_eq!(recording.traces().len(), requests);
    }
}

/// A helper may record by itself, also inside a span of the test.
#[test]
fn a_recording_inside_another_one_has_its_own_traces() {
    let outer = stroboscope_testkit::start();
    let span = span!("outer").entered();
    let inner = stroboscope_testkit::start();
    checkout(3);
    assert_eq!(inner.traces().only("checkout").calls("db.query"), 3);
    assert_eq!(inner.traces().len(), 1);
    drop(inner);
    drop(span);
    checkout(0);
    // The inner recording is work of the outer test.
    assert_eq!(outer.traces().named("checkout").len(), 2);
    assert_eq!(outer.traces().only("outer").calls("outer"), 1);
}

#[test]
fn a_trace_is_like_in_production() {
    let recording = stroboscope_testkit::start();
    checkout(2);
    let traces = recording.traces();
    let trace = traces.only("checkout");
    assert_eq!(trace.name(), "checkout");
    assert!(trace.duration().as_nanos() > 0);
    for formula in [
        r#"{ name = "db.query" } before { name = "render" }"#,
        r#"never { name = "render" } before { name = "db.query" }"#,
        r#"{ rootName = "checkout" } > { name = "db.query" && .row = 1 && event.row = 1 }"#,
        r#"{ name = "db.query" } | count() = 2"#,
        r#"not { name = "stroboscope-testkit" }"#,
    ] {
        trace.assert_holds(formula);
        assert!(!trace.holds(&format!("not ({formula})")));
    }
    let path = trace.critical_path();
    assert!(path.contains("db.query") && path.contains("render") && !path.contains("cache"));
    let names: Vec<_> = path.names().collect();
    let between = "checkout";
    assert_eq!(
        names,
        [
            between, "db.query", "db.query", between, "db.query", "db.query", between, "render",
            between
        ]
    );
}
