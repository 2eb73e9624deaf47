//! Tests that a request without a trace id gets one between bursts only if a window may open before
//! it is answered. The test needs a process of its own, because the duration of requests is learned
//! per process.

mod collector;

use collector::{Collector, wait_for};
use http::HeaderMap;
use stroboscope::{SampleMode, propagation, span};

/// Returns whether a request that arrives without a trace id is passed on with one. `None` if the
/// gate was open, because then it always gets one.
fn is_named() -> Option<bool> {
    let is_recorded = || span!("probe").is_recorded();
    let mut headers = HeaderMap::new();
    if is_recorded() {
        return None;
    }
    propagation::extract(&HeaderMap::new()).scope("/page", || propagation::inject(&mut headers));
    (!is_recorded()).then(|| headers.contains_key(propagation::TRACEPARENT))
}

#[test]
fn a_name_is_given_where_a_window_may_open_before_the_answer() {
    let collector = Collector::default();
    let _guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config("512ms/1024ms".parse().unwrap())
        .sample(SampleMode::Follow)
        .init()
        .unwrap();
    // The duration of requests is not known yet, so it may be long.
    wait_for("a name given in ignorance, or a window", || {
        is_named().is_none_or(|is_named| is_named)
    });
    wait_for("a window that is reported", || {
        drop(span!("short"));
        !collector.spans().is_empty()
    });
    // The recorded spans are short, and half a second passes between windows.
    wait_for("a request without a name", || is_named() == Some(false));
    wait_for("a name, shortly before a window", || {
        is_named() == Some(true)
    });
}
