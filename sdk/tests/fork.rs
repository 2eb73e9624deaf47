//! Tests forked children: a child starts without the parent's state and can record on its own. The
//! parent is not affected.
//!
//! The file has only one test, because the process forks.

#![cfg(unix)]
#![allow(unsafe_code)]

mod collector;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use collector::{Collector, Span, wait_for};
use stroboscope::{BurstConfig, event, span};

const CHILDREN: usize = 20;

fn start(collector: &str, service: &str) -> stroboscope::Guard {
    let guard = stroboscope::builder()
        .service(service)
        .collector(collector)
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    assert!(guard.is_active());
    wait_for("the gate", || stroboscope::stats().windows > 0);
    guard
}

/// Runs `work` in a forked child. Returns a function that waits for the child and returns its
/// status. SIGALRM ends a child after 20 s.
fn in_child(work: impl FnOnce()) -> impl FnOnce() -> i32 {
    // SAFETY: the child uses locks of the C library (which releases its own at a fork), of the
    // standard library's output (which no thread holds here) and of the SDK (which are tested
    // here). It leaves with `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: the call accesses no memory.
        unsafe { libc::alarm(20) };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    move || {
        let mut status = 0;
        // SAFETY: `status` is a valid variable. No other code waits for this child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }
}

/// Value whose formatting forks, so that the child begins inside a record.
struct Forking;

impl std::fmt::Display for Forking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let child = in_child(|| assert_eq!(stroboscope::stats().losses, []));
        assert_eq!(child(), 0);
        f.write_str("forked")
    }
}

fn spans_by_service(collector: &Collector) -> BTreeMap<String, Vec<Span>> {
    let mut spans: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for batch in collector.batches() {
        let service = batch.process.as_ref().unwrap().service.clone();
        spans
            .entry(service)
            .or_default()
            .extend(collector::spans_of(&batch));
    }
    spans
}

#[test]
fn a_forked_child_starts_clean() {
    let collector = Collector::default();
    let address = collector.clone().start();
    let guard = start(&address, "parent");
    let outer = span!("outer").entered();
    drop(span!("before"));
    event!("forking", value = stroboscope::display(Forking));

    static STOP: AtomicBool = AtomicBool::new(false);
    // This thread often holds locks of the SDK while the process forks.
    let busy = std::thread::spawn(|| {
        while !STOP.load(Relaxed) {
            drop(span!("busy"));
            let _ = stroboscope::stats();
        }
    });
    let children: Vec<_> = (0..CHILDREN)
        .map(|number| {
            let address = address.clone();
            let guard = &guard;
            in_child(move || {
                assert!(!stroboscope::stats().running);
                assert!(
                    !stroboscope::current().is_valid(),
                    "the parent's request stays with the parent"
                );
                assert!(!span!("unrecorded").is_recorded());
                assert!(!stroboscope::flush(Duration::from_secs(1)));
                assert!(guard.is_active(), "a copy");
                if number == 0 {
                    return; // A child that never records.
                }
                let own = start(&address, &format!("child {number}"));
                span!("in_child").scope(|| drop(span!("below")));
                std::thread::spawn(|| drop(span!("in_thread")))
                    .join()
                    .unwrap();
                assert!(stroboscope::flush(Duration::from_secs(10)));
                assert_eq!(stroboscope::stats().losses, []);
                drop(own);
            })
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        assert_eq!(child(), 0, "child {number}");
    }
    STOP.store(true, Relaxed);
    busy.join().unwrap();
    drop(outer);
    drop(span!("after"));
    drop(guard);

    let spans = spans_by_service(&collector);
    for number in 1..CHILDREN {
        let own = &spans[&format!("child {number}")];
        let names: BTreeSet<&str> = own.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["in_child", "below", "in_thread"]));
        let root = own.iter().find(|span| span.name == "in_child").unwrap();
        assert_eq!(root.parent, 0);
        assert_eq!(
            own.iter().find(|span| span.name == "below").unwrap().parent,
            root.id
        );
    }
    assert_eq!(
        spans.len(),
        CHILDREN,
        "the parent, and all children but one"
    );
    let parents: Vec<&str> = spans["parent"]
        .iter()
        .map(|span| span.name.as_str())
        .filter(|&name| name != "busy")
        .collect();
    assert_eq!(parents, ["before", "outer", "after"]);
    let all: Vec<u64> = spans.values().flatten().map(|span| span.id).collect();
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        all.len(),
        "ids differ between parent and children"
    );
    let traces: BTreeSet<&str> = spans
        .iter()
        .filter(|(service, _)| *service != "parent")
        .flat_map(|(_, spans)| spans)
        .map(|span| span.trace.as_str())
        .collect();
    assert_eq!(traces.len(), 2 * (CHILDREN - 1));
    let incarnations: BTreeSet<Vec<u8>> = collector
        .batches()
        .iter()
        .map(|batch| batch.process.as_ref().unwrap().incarnation.clone())
        .collect();
    assert_eq!(incarnations.len(), CHILDREN);
}
