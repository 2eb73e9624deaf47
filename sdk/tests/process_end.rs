//! Tests how `flush` and the end of a process wait until the collector has all records.

#![cfg(unix)]
#![allow(unsafe_code)]

mod collector;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use collector::{Collector, wait_for};
use stroboscope::{__private, BurstConfig, span};
use stroboscope_proto::v1::SpanFlag;

static TURN: Mutex<()> = Mutex::new(());

fn builder(collector: &str) -> stroboscope::Builder {
    stroboscope::builder()
        .service("ending")
        .collector(collector)
        .burst_config(BurstConfig::ALWAYS_ON)
}

#[test]
fn flush_ships_what_was_recorded_and_goes_on() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!stroboscope::flush(Duration::from_secs(1)), "nothing runs");
    let collector = Collector::default();
    let guard = builder(&collector.clone().start()).init().unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let open = span!("open");
    for round in 1..=50 {
        drop(span!("work"));
        assert!(stroboscope::flush(Duration::from_secs(10)));
        let shipped = collector
            .spans()
            .iter()
            .filter(|span| span.name == "work")
            .count();
        assert_eq!(
            shipped, round,
            "all that ended before the flush, and no wait for the next batch"
        );
    }
    assert!(collector.spans().iter().all(|span| span.name != "open"));
    let (context, open) = (open.context(), open.entered());
    let inner = span!("inner");
    let parents = || {
        let parents = __private::flush_trace(context.trace_id(), Duration::from_secs(10));
        let mut parents = parents.unwrap();
        parents.sort_unstable();
        parents
    };
    assert_eq!(parents(), [0, context.span_id()]);
    drop(inner);
    assert_eq!(parents(), [0]);
    drop(open);
    assert_eq!(parents(), [0; 0]);
    drop(guard);
    assert!(!collector.span("open").has(SpanFlag::Unfinished));
}

#[test]
fn flush_says_when_not_everything_arrived() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = builder("http://127.0.0.1:9")
        .shutdown_deadline(Duration::ZERO)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    drop(span!("work"));
    let start = Instant::now();
    assert!(!stroboscope::flush(Duration::from_millis(200)));
    assert!(start.elapsed() < Duration::from_secs(2));
    drop(guard);

    let collector = Collector::default();
    collector.refuse.store(true, Relaxed);
    let guard = builder(&collector.clone().start()).init().unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    drop(span!("work"));
    assert!(
        !stroboscope::flush(Duration::from_secs(10)),
        "the collector refused it"
    );
    drop(guard);
}

/// Checks that a thread records in several runs of the SDK, one after the other.
#[test]
fn a_thread_records_again_after_a_restart() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..3 {
        let collector = Collector::default();
        let guard = builder(&collector.clone().start()).init().unwrap();
        wait_for("the gate", || stroboscope::stats().windows > 0);
        drop(span!("again"));
        drop(guard);
        assert_eq!(collector.span("again").parent, 0);
        drop(span!("between"));
    }
}

/// Does the work of a child process of the tests below, which `STROBOSCOPE_TEST_ROLE` selects. Does
/// nothing without the variable.
#[test]
fn role() {
    let Ok(role) = std::env::var("STROBOSCOPE_TEST_ROLE") else {
        return;
    };
    let init = || {
        stroboscope::builder()
            .service("ending")
            .env()
            .unwrap()
            .burst_config(BurstConfig::ALWAYS_ON)
            .shutdown_deadline(Duration::from_secs(5))
            .flush_on_sigterm()
            .init()
    };
    if role == "own_handler" {
        static HANDLED: AtomicU32 = AtomicU32::new(0);
        extern "C" fn count(_: libc::c_int) {
            HANDLED.fetch_add(1, Relaxed);
        }
        // SAFETY: the handler is a valid function that only changes an atomic.
        unsafe { libc::signal(libc::SIGTERM, count as *const () as libc::sighandler_t) };
        let raising = std::thread::spawn(|| {
            for raised in 1..=200_000 {
                // SAFETY: raising a signal accesses no memory.
                unsafe { libc::raise(libc::SIGTERM) };
                assert_eq!(HANDLED.load(Relaxed), raised, "a signal was lost");
            }
        });
        while !raising.is_finished() {
            let error = init().expect_err("SIGTERM is taken").to_string();
            assert!(
                error.contains("SIGTERM") && error.contains("stroboscope::flush"),
                "{error}"
            );
        }
        raising.join().unwrap();
        return;
    }
    let guard = init().unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    drop(span!("done"));
    let _open = span!("open").entered();
    if role == "normal_end" {
        drop(guard);
        // The signal has its default action again and ends this process.
        // SAFETY: raising a signal accesses no memory.
        unsafe { libc::raise(libc::SIGTERM) };
    }
    println!("ready");
    std::thread::sleep(Duration::from_secs(30));
    unreachable!("SIGTERM came");
}

fn child(role: &str, collector: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env("STROBOSCOPE_TEST_ROLE", role)
        .env("STROBOSCOPE_COLLECTOR", collector)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_until_ready(child: &mut std::process::Child) {
    use std::io::BufRead as _;
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.ends_with("ready"))
    );
}

fn terminate(child: &std::process::Child) {
    // SAFETY: the process is a child that was not waited for yet, so its id is not reused.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
}

#[test]
fn sigterm_ships_first_and_then_ends_the_process() {
    let collector = Collector::default();
    let mut process = child("flush", &collector.clone().start());
    wait_until_ready(&mut process);
    let start = Instant::now();
    terminate(&process);
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "well within the deadline: {:?}",
        start.elapsed()
    );
    assert!(!collector.span("done").has(SpanFlag::Unfinished));
    assert!(collector.span("open").has(SpanFlag::Unfinished));
}

/// Checks that, without a collector, a first SIGTERM waits for the shutdown deadline (5 s), and a
/// second one ends the process at once.
#[test]
fn a_second_sigterm_ends_at_once() {
    let mut process = child("flush", "http://127.0.0.1:9");
    wait_until_ready(&mut process);
    let start = Instant::now();
    terminate(&process);
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        process.try_wait().unwrap().is_none(),
        "it waits for the collector"
    );
    terminate(&process);
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn sigterm_is_the_default_again_after_a_normal_end() {
    let collector = Collector::default();
    let process = child("normal_end", &collector.clone().start());
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
    assert_eq!(collector.span("done").parent, 0);
}

#[test]
fn a_handler_of_the_services_own_is_left_alone() {
    let status = child("own_handler", "http://127.0.0.1:9").wait().unwrap();
    assert!(status.success());
}
