//! Checks with a counting allocator that annotations allocate nothing, whether the gate is open or
//! closed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use stroboscope::{BurstConfig, SampleMode, debug, display, event, span};

/// The system's allocator, which also counts the allocations and reallocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes every call to the system's allocator. The counter has no destructor and allocates
// nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the same contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `work` and returns the number of allocations that this thread made in it.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[stroboscope::trace(fields(n))]
fn annotated(n: u64) -> u64 {
    std::hint::black_box(n)
}

/// Executes annotations with several kinds of values, 50 times.
fn annotate(owned: &String, path: &std::path::Path) {
    for n in 0..50u64 {
        let _outer = span!("outer").entered();
        let inner = span!(
            "inner",
            n,
            text = "static",
            owned,
            ratio = 0.5,
            even = n % 2 == 0
        )
        .entered();
        event!("plain");
        event!("integers", a = n, b = n, c = n);
        event!("owned", owned, maybe = (n > 10).then_some(owned));
        event!(
            "formatted",
            shown = display(path.display()),
            as_debug = debug(&owned),
            sum = debug((n, n))
        );
        annotated(n);
        inner.record("later", owned);
        stroboscope::record("sum", debug((n, n)));
    }
}

fn record(config: BurstConfig) -> stroboscope::Guard {
    stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(config)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts")
}

#[test]
fn annotations_allocate_nothing() {
    let (owned, path) = (
        String::from("made at run time"),
        std::path::PathBuf::from("/a/path"),
    );
    assert!(
        allocations(|| drop(std::hint::black_box(owned.clone()))) > 0,
        "the allocator counts"
    );
    assert_eq!(allocations(|| annotate(&owned, &path)), 0, "never started");

    let guard = record(BurstConfig::NEVER);
    assert_eq!(allocations(|| annotate(&owned, &path)), 0, "between bursts");
    drop(guard);

    let guard = record(BurstConfig::ALWAYS_ON);
    while stroboscope::stats().windows == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A thread's first record allocates its ring.
    event!("first");
    assert_eq!(allocations(|| annotate(&owned, &path)), 0, "in a burst");
    // Checks that the annotations were recorded.
    let deadline = Instant::now() + Duration::from_secs(20);
    while stroboscope::stats().spans < 50 * 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = stroboscope::stats();
    assert_eq!((stats.spans, stats.events), (50 * 3, 1 + 50 * 4));
    drop(guard);
}
