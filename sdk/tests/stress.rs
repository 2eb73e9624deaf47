//! Stress test, also for the sanitizers (`.ci/sanitize`): threads that come and go, tasks that move
//! between threads, windows of a few milliseconds, spans of `tracing` in three stacks, concurrent
//! flushes and statistics, and recording that stops and starts again.
//!
//! Each recorded span arrives once or is counted as lost, except for spans outside of the exact
//! window.

#![cfg(feature = "tracing")]

mod collector;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{BurstConfig, FutureExt as _, SampleMode, capture, event, span};
use tracing_subscriber::layer::SubscriberExt as _;

/// Rounds of each worker. Debug builds have fewer, because sanitizers make them many times slower.
const ROUNDS: u64 = if cfg!(debug_assertions) { 300 } else { 3_000 };

static RECORDED: AtomicU64 = AtomicU64::new(0);

fn count(span: &stroboscope::Span) {
    RECORDED.fetch_add(u64::from(span.is_recorded()), Relaxed);
}

fn threads(round: u64) {
    let span = span!(
        "outer",
        round,
        text = "some text",
        owned = format!("{round}").as_str()
    );
    count(&span);
    span.scope(|| {
        event!("here", round);
        let context = capture();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    context.scope(|| {
                        let span = span!("inner");
                        count(&span);
                    });
                });
            }
        });
    });
}

async fn tasks(round: u64) {
    let span = span!("task", round);
    count(&span);
    let work = async {
        let child = async {
            let span = span!("child");
            count(&span);
            tokio::task::yield_now().in_span(span).await;
        };
        let child = tokio::spawn(child.in_current_span());
        tokio::task::yield_now().await;
        child.await.unwrap();
    };
    work.in_span(span).await;
}

/// Records spans and events of `tracing`. They are not counted, because a span of `tracing` does
/// not show whether it is recorded.
fn of_tracing(round: u64) {
    let _outer = tracing::info_span!("of_tracing", round).entered();
    tracing::info!(round, "an event");
    let inner = tracing::info_span!("below", late = tracing::field::Empty);
    inner.record("late", round);
    std::thread::scope(|scope| {
        scope.spawn(|| inner.in_scope(|| event!("elsewhere")));
    });
}

fn life(collector: &Collector, config: BurstConfig, sample: SampleMode) {
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(config)
        .sample(sample)
        .ring_bytes(16 << 10)
        .shutdown_deadline(Duration::from_secs(60))
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Relaxed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !STOP.load(Relaxed) {
                let _ = stroboscope::stats();
                let _ = stroboscope::flush(Duration::from_millis(20));
            }
        });
        let working = [
            scope.spawn(|| (0..ROUNDS).for_each(threads)),
            scope.spawn(|| {
                runtime.block_on(async {
                    for round in 0..ROUNDS {
                        tokio::spawn(tasks(round)).await.unwrap();
                    }
                });
            }),
            scope.spawn(|| {
                let stacks = [
                    tracing::Dispatch::new(stroboscope::subscriber()),
                    tracing::Dispatch::new(
                        tracing_subscriber::registry().with(stroboscope::layer()),
                    ),
                    tracing::Dispatch::new(
                        tracing_subscriber::registry().with(stroboscope::layer().gating_all()),
                    ),
                ];
                for round in 0..ROUNDS {
                    tracing::dispatcher::with_default(
                        &stacks[round as usize % stacks.len()],
                        || {
                            of_tracing(round);
                        },
                    );
                }
            }),
        ];
        for thread in working {
            thread.join().unwrap();
        }
        STOP.store(true, Relaxed);
    });
    drop(runtime);
    drop(guard);
}

#[test]
fn what_was_recorded_arrives_or_is_counted() {
    let collector = Collector::default();
    let short: BurstConfig = "2ms/4ms".parse().unwrap();
    for (config, sample) in [
        (BurstConfig::ALWAYS_ON, SampleMode::Burst),
        (short, SampleMode::Follow),
        (BurstConfig::ALWAYS_ON, SampleMode::Ratio(0.5)),
        (short, SampleMode::Burst),
    ] {
        life(&collector, config, sample);
    }
    let of_ours =
        |span: &&collector::Span| ["outer", "inner", "task", "child"].contains(&span.name.as_str());
    let spans = collector.spans();
    let arrived = spans.iter().filter(of_ours).count() as u64;
    let losses: u64 = stroboscope::stats()
        .losses
        .iter()
        .map(|&(_, records)| records)
        .sum();
    let recorded = RECORDED.load(Relaxed);
    // Spans in the guard of a window that lie outside of the exact window neither arrive nor count
    // as lost.
    assert!(arrived <= recorded, "{arrived} of {recorded}");
    assert!(recorded > ROUNDS, "{recorded}");
    let ids: std::collections::BTreeSet<u64> = spans.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), spans.len(), "each arrived once");
    assert!(spans.iter().all(|span| span.end_ns >= span.start_ns));
    eprintln!(
        "{recorded} spans of ours recorded, {arrived} arrived, {losses} records lost by cause"
    );
    let always = spans.iter().filter(|span| span.name == "outer").count() as u64;
    assert!(
        always + losses >= 2 * ROUNDS,
        "always on twice: {always} arrived, {losses} lost"
    );
}
