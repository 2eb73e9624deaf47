//! Tests children that are forked while other threads hold locks of the SDK: for first records of
//! threads, for new callsites and for policies of tradeoffs.
//!
//! The file has only one test, because the process forks.

#![cfg(all(unix, feature = "tracing"))]
#![allow(unsafe_code)]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use stroboscope::{BurstConfig, span};
use tracing::field::FieldSet;
use tracing::metadata::Kind;
use tracing::subscriber::{Interest, Subscriber as _};
use tracing::{Level, Metadata, callsite::Identifier};

const CHILDREN: usize = 200;
const CHILD_SECONDS_MAX: u32 = 20;

struct Nowhere;

impl tracing::Callsite for Nowhere {
    fn set_interest(&self, _: Interest) {}
    fn metadata(&self) -> &Metadata<'_> {
        unreachable!("never registered")
    }
}

static NOWHERE: Nowhere = Nowhere;
static MADE: AtomicU64 = AtomicU64::new(0);

/// Records a span of `tracing` with a callsite that was not used before.
fn span_from_a_new_callsite() {
    let fields = FieldSet::new(&["a", "b"], Identifier(&NOWHERE));
    let metadata: &'static Metadata<'static> = Box::leak(Box::new(Metadata::new(
        "work",
        "here",
        Level::INFO,
        Some("here.rs"),
        None,
        None,
        fields,
        Kind::SPAN,
    )));
    let values = metadata.fields().value_set(&[]);
    let subscriber = stroboscope::subscriber();
    let id = subscriber.new_span(&tracing::span::Attributes::new(metadata, &values));
    subscriber.enter(&id);
    subscriber.exit(&id);
    assert!(subscriber.try_close(id));
    MADE.fetch_add(1, Relaxed);
}

/// Starts a thread that makes its first record, and waits for it. It uses `pthread_create`: while a
/// thread of Rust's library begins or ends, the library holds a lock, and a child that is forked at
/// that time could never start a thread.
fn first_record_of_a_thread() {
    extern "C" fn record(_: *mut libc::c_void) -> *mut libc::c_void {
        drop(span!("first"));
        std::ptr::null_mut()
    }
    let mut thread: libc::pthread_t = 0;
    // SAFETY: `thread` is a valid variable. `record` uses no argument, returns null and does not
    // unwind. The thread is joined once.
    unsafe {
        let made = libc::pthread_create(
            &raw mut thread,
            std::ptr::null(),
            record,
            std::ptr::null_mut(),
        );
        assert_eq!(made, 0, "a thread starts");
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

/// Installs a policy whose models have expired, and decides by it. The point measures its load for
/// each new policy, and finds that the models have expired.
#[cfg(feature = "tradeoff")]
fn decide_by_a_new_policy() {
    use stroboscope::tradeoff::{
        self, Goal, PerformanceModel, Point, PointPolicy, Policy, QualityModel,
    };
    static POINT: Point = Point::defaulting("storm.point");
    tradeoff::on_capacity(|_, _, _| {});
    let point = PointPolicy {
        point: POINT.name().to_owned(),
        performance: PerformanceModel::new(0.5, Vec::new()),
        quality: QualityModel {
            schema: Vec::new(),
            intercept: 0.0,
            weights: Vec::new(),
            drops: Vec::new(),
        },
        goal: Goal::Full,
        rate_max: 0.5,
    };
    let policy = Policy {
        valid_for_ns: 1,
        points: vec![point],
        ..Policy::default()
    };
    tradeoff::install(policy).unwrap();
    drop(POINT.decide());
    let _ = tradeoff::stats();
}

/// Work that takes locks of the SDK.
const WORK: &[fn()] = &[
    first_record_of_a_thread,
    span_from_a_new_callsite,
    #[cfg(feature = "tradeoff")]
    decide_by_a_new_policy,
];

fn start() -> stroboscope::Guard {
    stroboscope::builder()
        .service("storm")
        .collector("http://127.0.0.1:9") // nobody there
        .burst_config(BurstConfig::ALWAYS_ON)
        .ring_bytes(16 << 10)
        .shutdown_deadline(std::time::Duration::ZERO)
        .init()
        .unwrap()
}

/// Uses the SDK in a child: starts recording and records spans of both kinds, and one in a new
/// thread.
fn live() {
    let guard = start();
    assert!(guard.is_active());
    while stroboscope::stats().windows == 0 {
        std::thread::yield_now();
    }
    span_from_a_new_callsite();
    #[cfg(feature = "tradeoff")]
    {
        let before = stroboscope::tradeoff::stats().stale;
        decide_by_a_new_policy();
        let stale = stroboscope::tradeoff::stats().stale;
        assert_eq!(stale, before + 1, "the point still measures its load");
    }
    let span = span!("in_child");
    assert!(span.is_recorded());
    drop(span);
    std::thread::spawn(|| drop(span!("in_thread")))
        .join()
        .unwrap();
    assert_eq!(
        stroboscope::stats().losses,
        [],
        "the rings of the parent's threads are not the child's"
    );
    drop(guard);
}

#[test]
fn no_child_waits_for_a_thread_of_its_parent() {
    static STOP: AtomicBool = AtomicBool::new(false);
    // The main thread waits until the threads have begun: a thread that begins holds a lock of
    // Rust's library (see `first_record_of_a_thread`).
    static BEGUN: Barrier = Barrier::new(2 * WORK.len() + 1);
    let _guard = start();
    while stroboscope::stats().windows == 0 {
        std::thread::yield_now();
    }
    let busy: Vec<_> = (0..2)
        .flat_map(|_| WORK)
        .map(|work| {
            std::thread::spawn(move || {
                BEGUN.wait();
                while !STOP.load(Relaxed) {
                    work();
                }
            })
        })
        .collect();
    BEGUN.wait();
    for number in 0..CHILDREN {
        // SAFETY: the child uses locks of the C library (which releases its own at a fork) and of
        // the SDK (which are tested here). It leaves with `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: the call accesses no memory. SIGALRM ends a child that hangs.
            unsafe { libc::alarm(CHILD_SECONDS_MAX) };
            let ended = std::panic::catch_unwind(live);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(ended.is_err())) };
        }
        let mut status = 0;
        // SAFETY: `status` is a valid variable. No other code waits for this child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(
            status,
            0,
            "child {number}; {} means that it hung",
            libc::SIGALRM
        );
    }
    STOP.store(true, Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
    assert!(
        MADE.load(Relaxed) > 5_000,
        "more callsites than the table without a lock has room for"
    );
}
