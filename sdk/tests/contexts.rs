//! Tests one way to pass the context to each kind of place where work continues: tasks, threads,
//! channels and thread pools. Every other span is a child of the span `outer`.
//!
//! One process can record for one service only, so the tests take turns.

mod collector;

use std::sync::{Mutex, PoisonError};

use collector::{Collector, wait_for};
use rayon::prelude::*;
use stroboscope::{BurstConfig, FutureExt as _, capture, in_current_context, span};

static TURN: Mutex<()> = Mutex::new(());

/// Runs `work` inside a span `outer` and checks that exactly `inner` spans named "inner" were
/// recorded, all as children of `outer`.
#[track_caller]
fn check(inner: usize, work: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    span!("outer").scope(work);
    assert!(!stroboscope::current().is_valid());
    drop(guard);
    let outer = collector.span("outer");
    let spans = collector.spans();
    assert_eq!(spans.len(), 1 + inner, "{spans:#?}");
    for span in spans.iter().filter(|span| span.name != "outer") {
        assert_eq!(
            (span.name.as_str(), span.parent, &span.trace),
            ("inner", outer.id, &outer.trace)
        );
    }
}

fn work() {
    drop(span!("inner"));
}

/// Records a span `inner` that stays open over 20 yields, on any number of threads.
async fn async_work() {
    let inner = async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    };
    inner.in_span(span!("inner")).await;
}

fn with_runtime(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    // `block_on` polls on this thread, which has the context of `outer`.
    runtime.block_on(future);
}

#[test]
fn an_await() {
    check(1, || with_runtime(async_work()));
}

#[test]
fn spawned_tasks() {
    check(8, || {
        with_runtime(async {
            let tasks: Vec<_> = (0..8)
                .map(|_| tokio::spawn(async_work().in_current_span()))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn a_join_set() {
    check(8, || {
        with_runtime(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..8 {
                tasks.spawn(async_work().in_current_span());
            }
            tasks.join_all().await;
        });
    });
}

#[test]
fn blocking_work_of_a_runtime() {
    check(1, || {
        with_runtime(async {
            tokio::task::spawn_blocking(in_current_context(work))
                .await
                .unwrap();
        });
    });
}

#[test]
fn a_thread() {
    check(1, || {
        std::thread::spawn(in_current_context(work)).join().unwrap();
    });
}

#[test]
fn a_scoped_thread() {
    check(2, || {
        let context = capture();
        std::thread::scope(|scope| {
            scope.spawn(|| context.scope(work));
            scope.spawn(|| context.scope(work));
        });
    });
}

#[test]
fn a_channel_to_a_thread() {
    check(3, || {
        let (sender, receiver) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            for (context, times) in receiver {
                let context: stroboscope::CapturedContext = context;
                context.scope(|| (0..times).for_each(|_| work()));
                assert!(
                    !stroboscope::current().is_valid(),
                    "between items, the thread works for nobody"
                );
            }
        });
        sender.send((capture(), 1)).unwrap();
        sender.send((capture(), 2)).unwrap();
        drop(sender);
        worker.join().unwrap();
    });
}

#[test]
fn a_channel_to_a_task() {
    check(3, || {
        with_runtime(async {
            let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
            let worker = tokio::spawn(async move {
                while let Some((context, times)) = receiver.recv().await {
                    let item = async {
                        for _ in 0..times {
                            async_work().await;
                        }
                    };
                    item.in_context(context).await;
                    assert!(!stroboscope::current().is_valid());
                }
            });
            sender.send((capture(), 1)).await.unwrap();
            sender.send((capture(), 2)).await.unwrap();
            drop(sender);
            worker.await.unwrap();
        });
    });
}

#[test]
fn rayon() {
    check(101, || {
        let context = capture();
        (0..100).into_par_iter().for_each(|_| context.scope(work));
        // The context is captured before `scope`, whose closure runs on a thread of the pool.
        let work = in_current_context(work);
        rayon::scope(|scope| scope.spawn(move |_| work()));
    });
}
