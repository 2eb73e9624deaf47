//! Tests spans of `tracing` in every kind of stack: the SDK's subscriber, its layer, and its layer
//! that gates all other layers.
//!
//! One process can record for one service only, so the tests take turns.

#![cfg(feature = "tracing")]

mod collector;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use collector::{Collector, Span, wait_for};
use stroboscope::{BurstConfig, LossCause};
use tracing::instrument::WithSubscriber as _;
use tracing::{Dispatch, Instrument as _, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

static TURN: Mutex<()> = Mutex::new(());

fn subscriber() -> Dispatch {
    Dispatch::new(stroboscope::subscriber())
}

fn layer() -> Dispatch {
    Dispatch::new(tracing_subscriber::registry().with(stroboscope::layer()))
}

fn gating_layer() -> Dispatch {
    Dispatch::new(tracing_subscriber::registry().with(stroboscope::layer().gating_all()))
}

type Stack = fn() -> Dispatch;

const STACKS: [(&str, Stack); 3] = [
    ("subscriber", subscriber),
    ("layer", layer),
    ("gating layer", gating_layer),
];

/// Runs a scenario with a stack and returns the collector with its records.
fn record(config: BurstConfig, stack: Stack, scenario: fn()) -> Collector {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(config)
        .init()
        .unwrap();
    wait_for("the gate", || {
        config != BurstConfig::ALWAYS_ON || stroboscope::stats().windows > 0
    });
    tracing::dispatcher::with_default(&stack(), scenario);
    assert!(!stroboscope::current().is_valid(), "every span was left");
    drop(guard);
    collector
}

/// Formats spans and events as a tree in order of time: a span as `name{attributes}[children]`, an
/// event as `!name`.
fn tree(collector: &Collector) -> String {
    fn below(
        spans: &[Span],
        events: &[(String, u64, i64)],
        parent: u64,
        trace: Option<&str>,
    ) -> String {
        let mut parts: Vec<(i64, String)> = Vec::new();
        for span in spans.iter().filter(|span| span.parent == parent) {
            assert!(
                trace.is_none_or(|trace| trace == span.trace),
                "{span:?} is in its parent's trace"
            );
            let fields: Vec<String> = span
                .attributes
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let fields = if fields.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", fields.join(" "))
            };
            let inner = below(spans, events, span.id, Some(&span.trace));
            let inner = if inner.is_empty() {
                inner
            } else {
                format!("[{inner}]")
            };
            parts.push((span.start_ns, format!("{}{fields}{inner}", span.name)));
        }
        for (name, _, time_ns) in events.iter().filter(|(_, span, _)| *span == parent) {
            parts.push((*time_ns, format!("!{name}")));
        }
        parts.sort();
        parts
            .into_iter()
            .map(|(_, part)| part)
            .collect::<Vec<_>>()
            .join(" ")
    }
    below(&collector.spans(), &collector.events(), 0, None)
}

fn check(scenario: fn(), expected: &str) {
    for (name, stack) in STACKS {
        assert_eq!(
            tree(&record(BurstConfig::ALWAYS_ON, stack, scenario)),
            expected,
            "{name}"
        );
    }
}

/// Runs work on another thread, with this thread's subscriber.
fn elsewhere(work: impl FnOnce() + Send) {
    let stack = tracing::dispatcher::get_default(Dispatch::clone);
    std::thread::scope(|scope| {
        scope.spawn(|| tracing::dispatcher::with_default(&stack, work));
    });
}

#[test]
fn theirs_and_ours_nest() {
    check(
        || {
            let _a = stroboscope::span!("a").entered();
            let _b = info_span!("b", user = 7).entered();
            let _c = stroboscope::span!("c", n = 1).entered();
            drop(info_span!("d").entered());
            info!(name: "e", "in c");
        },
        "a[b{user=7}[c{n=1}[d !e]]]",
    );
}

#[test]
fn values_are_recorded_late_and_links_ignored() {
    check(
        || {
            let a = info_span!("a", late = tracing::field::Empty, n = 1);
            a.record("late", "yes");
            a.record("n", 2);
            let b = info_span!("b", late = tracing::field::Empty);
            b.follows_from(&a);
            b.in_scope(|| _ = tracing::Span::current().record("late", 5));
        },
        "a{late=yes n=2} b{late=5}",
    );
}

#[test]
fn parents_can_be_named() {
    check(
        || {
            let a = info_span!("a");
            let b = info_span!("b").entered();
            drop(info_span!(parent: &a, "in_a"));
            drop(info_span!(parent: None, "root"));
            drop(info_span!("in_b"));
            info!(name: "event_in_a", parent: &a, "");
            info!(name: "event_in_b", "");
            drop(b);
        },
        "a[in_a !event_in_a] b[in_b !event_in_b] root",
    );
}

#[test]
fn a_span_ends_with_its_last_clone_on_any_thread() {
    let scenario = || {
        let a = info_span!("a");
        let clones: Vec<tracing::Span> = (0..4).map(|_| a.clone()).collect();
        drop(a);
        for clone in clones {
            elsewhere(move || clone.in_scope(|| drop(info_span!("b"))));
        }
        std::thread::sleep(Duration::from_millis(2));
        drop(info_span!("c"));
    };
    check(scenario, "a[b b b b] c");
    let ended = record(BurstConfig::ALWAYS_ON, subscriber, scenario);
    let (a, c) = (ended.span("a"), ended.span("c"));
    assert!(
        a.end_ns < c.start_ns,
        "a ended when its last clone was dropped: {a:?} {c:?}"
    );
}

#[test]
fn spans_are_left_in_any_order_and_on_every_thread() {
    check(
        || {
            let (a, b) = (info_span!("a"), info_span!("b"));
            let (in_a, in_b) = (a.enter(), b.enter());
            drop(in_a);
            drop(info_span!("in_b"));
            elsewhere(|| a.in_scope(|| a.in_scope(|| drop(info_span!("in_a")))));
            drop(in_b);
            drop(info_span!("nowhere"));
        },
        "a[in_a] b[in_b] nowhere",
    );
}

#[test]
fn spans_follow_their_future_between_threads() {
    check(
        || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(3)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(
                async {
                    let tasks: Vec<_> = (0..20u64)
                        .map(|n| {
                            let work = async move {
                                for _ in 0..5 {
                                    tokio::time::sleep(Duration::from_micros(100 * (n % 3))).await;
                                    drop(info_span!("step"));
                                }
                            };
                            tokio::spawn(
                                work.instrument(info_span!("task"))
                                    .with_current_subscriber(),
                            )
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                        std::thread::yield_now();
                    }
                }
                .with_current_subscriber(),
            );
        },
        &["task[step step step step step]"; 20].join(" "),
    );
}

#[test]
fn a_closed_gate_disables_spans_where_nobody_else_wants_them() {
    fn scenario() {
        let a = info_span!("a").entered();
        info!("e");
        drop(info_span!("b").entered());
        drop(a);
    }
    for (name, stack) in STACKS {
        assert_eq!(
            tree(&record(BurstConfig::NEVER, stack, scenario)),
            "",
            "{name}"
        );
    }
    let is_disabled = |stack: Stack| {
        tracing::dispatcher::with_default(&stack(), || info_span!("a").is_disabled())
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(is_disabled(subscriber) && is_disabled(gating_layer));
    assert!(!is_disabled(layer), "other layers may want it");
}

#[test]
fn levels_can_be_left_out() {
    let stack = || {
        Dispatch::new(
            stroboscope::subscriber().recording(tracing::level_filters::LevelFilter::INFO),
        )
    };
    let collector = record(BurstConfig::ALWAYS_ON, stack, || {
        let _a = info_span!("a").entered();
        let _b = tracing::debug_span!("b").entered();
        drop(tracing::warn_span!("c"));
    });
    assert_eq!(tree(&collector), "a[c]");
}

/// Checks that a span whose parent id belongs to a closed span is recorded without a parent. The
/// registry of `tracing-subscriber` would panic.
#[test]
fn an_id_that_outlived_its_span_names_nothing() {
    let collector = record(BurstConfig::ALWAYS_ON, subscriber, || {
        let gone = info_span!("gone").id();
        // Gets the slot of the closed span.
        let _later = info_span!("later");
        drop(info_span!(parent: gone, "orphan"));
    });
    assert_eq!(tree(&collector), "gone later orphan");
}

#[test]
fn many_spans_at_once_are_told_apart() {
    fn scenario() {
        for _ in 0..3 {
            let parents: Vec<tracing::Span> = (0..700u64).map(|n| info_span!("p", n)).collect();
            let (mine, others) = parents.split_at(350);
            let nest = |parents: &[tracing::Span]| {
                for parent in parents {
                    drop(info_span!(parent: parent, "c"));
                }
            };
            elsewhere(|| nest(others));
            nest(mine);
            elsewhere(move || drop(parents));
        }
    }
    let losses = stroboscope::stats().losses;
    for (name, stack) in STACKS {
        let collector = record(BurstConfig::ALWAYS_ON, stack, scenario);
        let spans = collector.spans();
        let parents: std::collections::HashMap<u64, &Span> = spans
            .iter()
            .filter(|span| span.name == "p")
            .map(|span| (span.id, span))
            .collect();
        let children: Vec<&Span> = spans.iter().filter(|span| span.name == "c").collect();
        assert_eq!((parents.len(), children.len()), (2_100, 2_100), "{name}");
        for child in children {
            assert_eq!(parents[&child.parent].trace, child.trace, "{name}");
        }
    }
    let lost = |losses: &[(LossCause, u64)]| losses.iter().map(|(_, records)| records).sum::<u64>();
    assert_eq!(lost(&stroboscope::stats().losses), lost(&losses));
}
