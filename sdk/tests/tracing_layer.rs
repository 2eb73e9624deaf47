//! Existing `tracing` annotations, taken as they are, in one tree with ours.

#![cfg(feature = "tracing")]

mod collector;

use collector::{Collector, wait_for};
use stroboscope::BurstConfig;
use tracing_subscriber::layer::SubscriberExt as _;

#[tracing::instrument(fields(late))]
fn theirs(user: u64) {
    tracing::Span::current().record("late", "yes");
    tracing::info!(size = 3, "found");
    let _ours = stroboscope::span!("ours").entered();
    let _theirs_again = tracing::info_span!("theirs_again").entered();
}

#[test]
fn both_kinds_of_annotation_nest_in_one_tree() {
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let subscriber = tracing_subscriber::registry().with(stroboscope::layer());
    tracing::subscriber::with_default(subscriber, || {
        stroboscope::span!("root").scope(|| theirs(7));
    });
    drop(guard);
    let [root, theirs, ours, again] =
        ["root", "theirs", "ours", "theirs_again"].map(|name| collector.span(name));
    assert_eq!((theirs.parent, ours.parent, again.parent), (root.id, theirs.id, ours.id));
    assert_eq!(theirs.attributes["user"], "7");
    assert_eq!(theirs.attributes["late"], "yes");
    let events = collector.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].0.as_str(), events[0].1), ("tracing_layer", theirs.id));
    assert!(!stroboscope::current().is_valid());
}
