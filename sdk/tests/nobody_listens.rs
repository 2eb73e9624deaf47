//! What need not be done where nobody listens. In a process of its own, in which nobody does until the test says so.

#![cfg(feature = "tracing")]

use std::time::Duration;

use stroboscope::{BurstConfig, Guard};
use tracing::level_filters::LevelFilter;

fn start() -> Guard {
    stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::NEVER)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts")
}

#[test]
fn nothing_is_done_in_vain() {
    let nobody = LevelFilter::current();
    let guard = start();
    // What each callsite of `tracing` in each library asks first.
    assert_eq!((LevelFilter::current(), nobody), (LevelFilter::OFF, LevelFilter::OFF));
    drop(guard);
    tracing::subscriber::set_global_default(stroboscope::subscriber()).expect("the first one");
    assert_eq!(LevelFilter::current(), LevelFilter::INFO);
    let _guard = start();
    assert_eq!(LevelFilter::current(), LevelFilter::INFO);
}
