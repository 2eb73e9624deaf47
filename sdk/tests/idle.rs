//! Tests that the SDK does no work while nothing can be recorded: it disables callsites of
//! `tracing` and makes no trace ids. The test needs a process of its own without another
//! subscriber.

#![cfg(feature = "tracing")]

use std::time::Duration;

use http::HeaderMap;
use stroboscope::{BurstConfig, Guard, propagation};
use tracing::level_filters::LevelFilter;

fn start(config: BurstConfig) -> Guard {
    stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(config)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts")
}

/// Returns whether a request that arrives without a trace id is passed on with one.
fn is_named() -> bool {
    let mut headers = HeaderMap::new();
    propagation::extract(&HeaderMap::new()).scope("/page", || propagation::inject(&mut headers));
    headers.contains_key(propagation::TRACEPARENT)
}

#[test]
fn nothing_is_done_in_vain() {
    let nobody = LevelFilter::current();
    assert!(!is_named());
    let guard = start(BurstConfig::NEVER);
    // Each callsite of `tracing` compares its level with this one first.
    assert_eq!(
        (LevelFilter::current(), nobody),
        (LevelFilter::OFF, LevelFilter::OFF)
    );
    assert!(!is_named(), "no window opens while it lasts");
    drop(guard);
    let guard = start(BurstConfig::DEFAULT);
    assert!(is_named(), "a window may open while it lasts");
    drop(guard);
    assert!(!is_named());
    tracing::subscriber::set_global_default(stroboscope::subscriber()).expect("the first one");
    // DEBUG is the level of tower-http's request spans.
    assert_eq!(LevelFilter::current(), LevelFilter::DEBUG);
    let _guard = start(BurstConfig::NEVER);
    assert_eq!(LevelFilter::current(), LevelFilter::DEBUG);
}
