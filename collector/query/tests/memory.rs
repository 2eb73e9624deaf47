//! The memory of a search over bursts does not depend on the number of bursts.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use stroboscope_query::{
    PartsWanted, SearchReport, SearchSettings, Selection, Source, search_bursts,
};
use stroboscope_search::parse;
use stroboscope_store::record::{BatchRow, Rows, SpanRow, WindowRow};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

/// Number of bytes that are allocated now; `MOST` is the maximum since the search began.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is handed on to the system's allocator as it came; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const EPOCH_NS: i64 = 1_767_322_800_000_000_000;
const PERIOD_NS: i64 = 1_000_000_000;
const BURST_NS: i64 = 16_000_000;
const REQUESTS_PER_BURST: u64 = 10;
const SPANS_PER_REQUEST: u64 = 20;
const FILES: u64 = 5;
const BOUND: u64 = 1 << 20;

/// Creates a store of bursts with ten requests each. A request is a root span and 19 below it.
fn store(bursts: u64, runtime: &tokio::runtime::Runtime) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::local(directory.path(), runtime.handle().clone()).expect("a store");
    let bursts_per_file = bursts / FILES;
    for first in (0..bursts).step_by(bursts_per_file as usize) {
        let mut rows = Rows::default();
        let mut text = |text: &str| rows.strings.intern(text);
        let (host, service, version) = (text("host"), text("web"), text("0.1.0"));
        let names = [text("page"), text("read")];
        let open_ns = |burst: u64| EPOCH_NS + burst as i64 * PERIOD_NS;
        let window = |burst: u64| WindowRow {
            open_ns: open_ns(burst),
            close_ns: open_ns(burst) + BURST_NS,
            burst_config: 1,
        };
        for burst in first..first + bursts_per_file {
            for request in 0..REQUESTS_PER_BURST {
                let number = u128::from(burst * REQUESTS_PER_BURST + request + 1);
                for span in 0..SPANS_PER_REQUEST {
                    let start_ns = open_ns(burst) + (request * 1_000_000 + span * 10_000) as i64;
                    rows.spans.push(SpanRow {
                        trace_id: number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
                        trace_name: None,
                        span_id: span + 1,
                        parent_id: u64::from(span > 0),
                        service,
                        name: names[usize::from(span > 0)],
                        host,
                        process: 1,
                        start_ns,
                        end_ns: start_ns + if span == 0 { 500_000 } else { 9_000 },
                        flags: 0,
                        attributes: Some(format!("{{\"key\":\"k{}\"}}", span * 7 % 5).into()),
                    });
                }
            }
        }
        let last = first + bursts_per_file;
        rows.batches.push(BatchRow {
            process: 1,
            sequence: first / bursts_per_file,
            service,
            host,
            pid: 1,
            started_ns: EPOCH_NS,
            sdk_version: version,
            from_ns: open_ns(first),
            to_ns: open_ns(last),
            received_ns: open_ns(last),
            burst_config: 1,
            spans: rows.spans.len() as u32,
            events: 0,
            windows: (first..last).map(window).collect(),
            losses: Vec::new(),
            clock_steps: Vec::new(),
            kernel_clock: None,
            loads: Vec::new(),
        });
        let rule = PartitionRule::received(open_ns(first), open_ns(last));
        let name = format!("seg-{:010}", first / bursts_per_file);
        write_rows(&store, &name, rows, &rule).expect("written");
    }
    directory
}

/// Returns the results, and the peak number of bytes allocated during the search.
fn search(
    directory: &std::path::Path,
    held_bytes_max: u64,
    runtime: &tokio::runtime::Runtime,
) -> (SearchReport, usize) {
    let source = Source::open(directory, runtime.handle().clone()).expect("it opens");
    let source = source.with_parts(PartsWanted::Exactly(2));
    let again = r#"{ name = "read" } then { name = "read" } with the same .key within 60us"#;
    let settings = SearchSettings {
        formula: parse(again).expect("a formula"),
        kept_max: 3,
        held_bytes_max,
        reads_all: false,
    };
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let found = search_bursts(&source, Selection::default(), &settings).expect("searched");
    (found, MOST.load(Ordering::Relaxed) - before)
}

#[test]
fn four_times_the_bursts_take_the_same_memory() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let few = store(50, &runtime);
    let (found, of_few) = search(few.path(), BOUND, &runtime);
    assert_eq!((found.searched, found.large.len()), (50, 0));
    let many = store(200, &runtime);
    let (found, of_many) = search(many.path(), BOUND, &runtime);
    assert_eq!((found.searched, found.large.len()), (200, 0));
    assert!(found.held_bytes <= BOUND && found.slices > 10, "{found:?}");
    let (at_once, of_all) = search(many.path(), u64::MAX, &runtime);
    assert_eq!((at_once.slices, &at_once.matches), (1, &found.matches));
    println!(
        "{of_few} bytes for 10,000 spans, {of_many} for 40,000, {of_all} all at once; {} slices of at most {} bytes",
        found.slices, found.held_bytes
    );
    assert!(of_many < of_few * 3 / 2, "{of_few} and {of_many} bytes");
    // Bursts that are held all at once take more memory.
    assert!(of_all > of_few * 5 / 2, "{of_few} and {of_all} bytes");
}
