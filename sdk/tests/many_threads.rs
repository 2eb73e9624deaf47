//! Tests that a process with many threads loses no record within the default memory of rings. The
//! threads stay, come and go, or are those of an async runtime for blocking work.

mod collector;

use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{BurstConfig, span};

static TURN: Mutex<()> = Mutex::new(());
const RINGS_BYTES_MAX: u64 = 64 << 20;

/// Records while `work` runs. Checks that exactly `spans` spans named `name` arrive, that nothing
/// is lost, and that all rings together take at most [`RINGS_BYTES_MAX`] bytes.
fn check(name: &str, spans: usize, work: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let before = stroboscope::stats().losses;
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .shutdown_deadline(Duration::from_secs(30))
        .init()
        .unwrap();
    wait_for("a window", || stroboscope::stats().windows > 0);
    work();
    let stats = stroboscope::stats();
    drop(guard);
    let arrived = collector
        .spans()
        .iter()
        .filter(|span| span.name == name)
        .count();
    assert_eq!(arrived, spans, "{:?}", stroboscope::stats().losses);
    assert_eq!(stroboscope::stats().losses, before);
    assert!(
        stats.rings_bytes <= RINGS_BYTES_MAX,
        "{}",
        stats.rings_bytes
    );
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(work)
        .unwrap()
}

/// Lets 10,000 threads record two spans each, spread over two seconds.
#[test]
fn threads_that_stay() {
    const THREADS: usize = 10_000;
    check("staying", 2 * THREADS, || {
        let all_are_done = Arc::new(Barrier::new(THREADS));
        let threads = (0..THREADS).map(|thread| {
            let all_are_done = Arc::clone(&all_are_done);
            spawn(move || {
                for _ in 0..2 {
                    std::thread::sleep(Duration::from_millis(thread as u64 % 1_000));
                    drop(span!("staying", thread).entered());
                }
                all_are_done.wait();
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
    });
}

#[test]
fn threads_that_come_and_go() {
    check("passing", 100 * 50 * 4, || {
        for _ in 0..100 {
            let threads = (0..50).map(|thread| {
                spawn(move || (0..4).for_each(|_| drop(span!("passing", thread).entered())))
            });
            for thread in threads.collect::<Vec<_>>() {
                thread.join().unwrap();
            }
        }
    });
}

/// Lets 512 threads, tokio's limit of blocking threads, record 100 spans each at the same time. The
/// records of each thread take about half of a small ring.
#[test]
fn threads_for_blocking_work() {
    const THREADS: usize = 512;
    check("blocking", THREADS * 100, || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let all_are_there = Arc::new(Barrier::new(THREADS));
            let mut tasks = tokio::task::JoinSet::new();
            for thread in 0..THREADS {
                let all_are_there = Arc::clone(&all_are_there);
                tasks.spawn_blocking(move || {
                    all_are_there.wait();
                    (0..100).for_each(|_| drop(span!("blocking", thread).entered()));
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
    });
}
