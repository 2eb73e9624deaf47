//! Tests the start of recording: by a library, by several callers, never; in a single-threaded
//! runtime and without a runtime.

mod collector;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{BurstConfig, FutureExt as _, Guard, SpanContext, event, span};

static TURN: Mutex<()> = Mutex::new(());

fn start(collector: &Collector, service: &str) -> Guard {
    let guard = stroboscope::builder()
        .service(service)
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    if guard.is_active() {
        wait_for("the gate", || stroboscope::stats().windows > 0);
    }
    guard
}

/// Stands for an annotated library.
mod library {
    pub(super) fn work() -> u64 {
        let _span = stroboscope::span!("library").entered();
        stroboscope::event!("worked");
        7
    }
}

#[test]
fn never_started() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rings_before = stroboscope::stats().rings_bytes;
    for _ in 0..1_000 {
        assert_eq!(library::work(), 7);
    }
    assert!(!span!("nobody's").is_recorded());
    assert_eq!(stroboscope::current(), SpanContext::NONE);
    assert!(!stroboscope::flush(Duration::from_secs(10)), "at once");
    let stats = stroboscope::stats();
    assert!(!stats.running);
    assert_eq!((stats.rings_bytes, stats.losses), (rings_before, vec![]));
}

/// Checks that only the first start has an effect, and that another one records after the first has
/// stopped.
#[test]
fn started_by_a_library_then_by_the_service() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, second) = (Collector::default(), Collector::default());
    let librarys = start(&first, "library");
    let services = start(&second, "service");
    assert!(librarys.is_active() && !services.is_active());
    library::work();
    drop(services);
    assert!(
        stroboscope::stats().running,
        "the later guard stops nothing"
    );
    drop(librarys);
    assert!(!stroboscope::stats().running);
    assert_eq!(first.span("library").parent, 0);
    assert!(second.batches().is_empty());

    let services = start(&second, "service");
    assert!(services.is_active());
    library::work();
    drop(services);
    assert_eq!(
        second.batches()[0].process.as_ref().unwrap().service,
        "service"
    );
    assert_eq!(second.span("library").parent, 0);
    assert_eq!(first.spans().len(), 1);
}

#[test]
fn many_start_at_once_and_one_records() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let address = collector.clone().start();
    let guards: Vec<Guard> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    stroboscope::builder()
                        .collector(address.as_str())
                        .init()
                        .unwrap()
                })
            })
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    assert_eq!(guards.iter().filter(|guard| guard.is_active()).count(), 1);
    // A thread gets its name when it first runs, and its entry in /proc disappears shortly after it
    // was joined. So the test waits for both.
    wait_for("the two threads", || {
        threads_of_ours().is_none_or(|threads| threads == 2)
    });
    drop(guards);
    wait_for("their end", || {
        threads_of_ours().is_none_or(|threads| threads == 0)
    });
}

/// Counts the SDK's threads in this process, by name. `None` on systems other than Linux.
fn threads_of_ours() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let count = tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("strobe-"))
        .count();
    Some(count)
}

/// Starts, uses and stops the SDK inside a single-threaded runtime with local tasks.
#[test]
fn a_current_thread_runtime() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let guard = start(&collector, "one thread");
        async {
            let local = std::rc::Rc::new(std::cell::Cell::new(0));
            let tasks: Vec<_> = (0..3)
                .map(|n| {
                    let local = std::rc::Rc::clone(&local);
                    let work = async move {
                        tokio::task::yield_now().await;
                        local.set(local.get() + n);
                        event!("in_task");
                    };
                    tokio::task::spawn_local(work.in_span(span!("task")))
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(local.get(), 3);
        }
        .in_span(span!("all"))
        .await;
        let flushed = tokio::task::spawn_blocking(|| stroboscope::flush(Duration::from_secs(10)));
        assert!(flushed.await.unwrap());
        assert_eq!(collector.events().len(), 3);
        drop(guard);
    });
    let all = collector.span("all");
    let tasks: Vec<_> = collector
        .spans()
        .into_iter()
        .filter(|span| span.name == "task")
        .collect();
    assert_eq!(tasks.len(), 3);
    assert!(tasks.iter().all(|task| task.parent == all.id));
}

#[test]
fn no_runtime_at_all() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = start(&collector, "threads");
    let (send, receive) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let worker = std::thread::spawn(move || receive.iter().for_each(|job| job()));
    span!("asks").scope(|| {
        let job = stroboscope::in_current_context(|| drop(span!("answers")));
        send.send(Box::new(job)).unwrap();
    });
    drop(send);
    worker.join().unwrap();
    drop(guard);
    assert_eq!(collector.span("answers").parent, collector.span("asks").id);
}

#[test]
fn a_deadline_may_be_unlimited() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let start = || {
        stroboscope::builder()
            .collector(collector.clone().start())
            .shutdown_deadline(Duration::MAX)
            .init()
            .unwrap()
    };
    let guard = start();
    assert!(stroboscope::flush(Duration::MAX));
    guard.shutdown_within(Duration::MAX);
    drop(start());
    assert!(!stroboscope::stats().running);
}
