//! Measures the cost of an annotation with closed and with open gate, relative to a floor:
//! `cargo bench -p stroboscope --bench cost`. `-- closed` or `-- open` runs one half. A number
//! after it sets the number of rounds.
//!
//! One thread of one process measures everything. Each figure is the median of the rounds that had
//! the core alone (see `alone`), so ratios hold even on a shared machine whose speed drifts. No
//! collector listens. The drain runs and discards the records, and counts them.

#![allow(missing_docs)]

mod alone;
mod floor;
mod processor;

use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use alone::{Figure, Round};
use floor::counter;

use stroboscope::{BurstConfig, SampleMode, event, span};

static FLAG: AtomicU32 = AtomicU32::new(0);

struct Case {
    name: &'static str,
    /// Makes the given number of calls in a loop, so that no call through a pointer is measured.
    work: fn(u64),
    goal: Option<Goal>,
    /// Case with the same code without the annotation, whose cost is subtracted; `None` if nothing
    /// is subtracted.
    bare: Option<&'static str>,
    /// Case to which the goal's `times_floor` refers; `None` for the floor of the report.
    floor: Option<&'static str>,
    rounds: Vec<Round>,
}

/// Maximum cost of a call: in ns, and as a multiple of the floor.
#[derive(Clone, Copy)]
struct Goal {
    ns: f64,
    times_floor: f64,
}

const CLOSED: Goal = Goal {
    ns: 2.0,
    times_floor: 2.0,
};
/// Goal for an async function, without the cost of the function itself.
const ASYNC: Goal = Goal {
    ns: 2.0,
    times_floor: f64::INFINITY,
};
/// Goal for a span, as a multiple of its records written by hand. It has no limit in ns, because
/// processors differ in speed.
const SPAN: Goal = Goal {
    ns: f64::INFINITY,
    times_floor: 1.3,
};

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.times_floor.is_finite(), self.ns.is_finite()) {
            (true, true) => write!(f, "goal ≤ {} x, ≤ {} ns", self.times_floor, self.ns),
            (true, false) => write!(f, "goal ≤ {} x", self.times_floor),
            (false, _) => write!(f, "goal ≤ {} ns", self.ns),
        }
    }
}

fn case(name: &'static str, work: fn(u64)) -> Case {
    Case {
        name,
        work,
        goal: None,
        bare: None,
        floor: None,
        rounds: Vec::new(),
    }
}

fn ours(goal: Goal, name: &'static str, work: fn(u64)) -> Case {
    Case {
        goal: Some(goal),
        ..case(name, work)
    }
}

fn around(bare: &'static str, case: Case) -> Case {
    Case {
        bare: Some(bare),
        ..case
    }
}

fn above(floor: &'static str, case: Case) -> Case {
    Case {
        floor: Some(floor),
        ..case
    }
}

/// Creates a function that evaluates `$work` as often as its argument says, each time with the
/// number of the call.
macro_rules! calls {
    (|$n:pat_param| $work:expr) => {
        |calls| {
            for n in 0..calls {
                let $n = black_box(n);
                $work;
            }
        }
    };
}

#[inline(never)]
fn bare(n: u64) -> u64 {
    black_box(n)
}

#[stroboscope::trace]
#[inline(never)]
fn annotated(n: u64) -> u64 {
    black_box(n)
}

#[stroboscope::trace]
async fn annotated_async(n: u64) -> u64 {
    black_box(n)
}

async fn plain_async(n: u64) -> u64 {
    black_box(n)
}

/// Polls a future once, after which it is ready. The future is created where it is polled, as by
/// `.await`, so it is not moved.
#[inline(always)]
fn poll(future: impl Future<Output = u64>) {
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(pin!(future).poll(&mut context));
}

/// Polls a future once through a pointer, like an executor, so that the future's code is not
/// inlined.
#[inline(always)]
fn poll_by_pointer(future: impl Future<Output = u64>) {
    let future: Pin<&mut dyn Future<Output = u64>> = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(black_box(future).poll(&mut context));
}

/// Runs rounds, each with all cases in turn, so that drift of the machine affects all cases alike.
fn measure(cases: &mut [Case], rounds: usize, calls: u64, pause: Duration) {
    for _ in 0..rounds {
        for case in cases.iter_mut() {
            case.rounds.push(alone::round(calls, || (case.work)(calls)));
            std::thread::sleep(pause);
        }
    }
}

fn report(title: &str, cases: &[Case], floor: &str) {
    println!("{title}");
    let least_ns = alone::least_additions_ns(cases.iter().flat_map(|case| &case.rounds));
    let figure = |case: &Case| Figure::new(&case.rounds, least_ns);
    let median = |case: &Case| figure(case).median();
    let median_of = |name| {
        cases
            .iter()
            .find(|case| case.name == name)
            .map_or(f64::NAN, median)
    };
    for case in cases {
        let floor = case.floor.unwrap_or(floor);
        let base = median_of(floor);
        let without = case.bare.map(median_of);
        let own_ns = median(case) - without.unwrap_or(0.0);
        let (ns, times) = (median(case), own_ns / base);
        let verdict = case.goal.map_or(String::new(), |goal| {
            let is_met = own_ns <= goal.ns && times <= goal.times_floor;
            format!("{goal}: {}", if is_met { "met" } else { "MISSED" })
        });
        let own = without.map_or(String::new(), |_| format!("its own {own_ns:.2} ns; "));
        println!(
            "  {:<32} {ns:>8.2} ns   {times:>6.2} x {floor}   ({}) {own}{verdict}",
            case.name,
            figure(case)
        );
    }
}

fn main() {
    println!("{}", processor::describe());
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let is_wanted = |name| arguments.first().is_none_or(|half| half == name);
    let rounds = arguments
        .get(1)
        .map(|rounds| rounds.parse().expect("a number of rounds"));
    if is_wanted("closed") {
        measure_closed(rounds.unwrap_or(201));
    }
    if is_wanted("open") {
        measure_open(rounds.unwrap_or(301));
    }
}

fn measure_closed(rounds: usize) {
    let mut closed = [
        case("empty loop", calls!(|n| _ = black_box(n))),
        case(
            "flag check",
            calls!(|n| {
                if FLAG.load(Relaxed) != 0 {
                    black_box(n);
                }
            }),
        ),
        ours(
            CLOSED,
            "event!, 3 integers",
            calls!(|n| event!("e", a = n, b = n, c = n)),
        ),
        ours(
            CLOSED,
            "span!, no fields",
            calls!(|_| drop(span!("s").entered())),
        ),
        ours(
            CLOSED,
            "span!, 3 integers",
            calls!(|n| drop(span!("s", a = n, b = n, c = n).entered())),
        ),
        case("fn, without #[trace]", calls!(|n| _ = bare(n))),
        around(
            "fn, without #[trace]",
            ours(CLOSED, "#[trace] fn", calls!(|n| _ = annotated(n))),
        ),
        case(
            "async fn, without #[trace]",
            calls!(|n| poll(plain_async(n))),
        ),
        around(
            "async fn, without #[trace]",
            ours(
                ASYNC,
                "#[trace] async fn",
                calls!(|n| poll(annotated_async(n))),
            ),
        ),
        case(
            "async fn, by pointer",
            calls!(|n| poll_by_pointer(plain_async(n))),
        ),
        around(
            "async fn, by pointer",
            ours(
                ASYNC,
                "#[trace] async fn, by pointer",
                calls!(|n| poll_by_pointer(annotated_async(n))),
            ),
        ),
    ];
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::NEVER)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts");
    measure(&mut closed, rounds, 100_000, Duration::ZERO);
    drop(guard);
    report("gate closed", &closed, "flag check");
}

/// Names of the cases with which the cases of spans are compared.
const BY_HAND: &str = "records by hand";
const WITH_FIELDS: &str = "records by hand, 3 integers";

fn measure_open(rounds: usize) {
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::ALWAYS_ON)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts");
    while stroboscope::stats().windows == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let root = span!("root").entered();
    let mut open = [
        case("counter read", calls!(|_| _ = black_box(counter()))),
        case(
            "two counter reads",
            calls!(|_| _ = black_box((counter(), counter()))),
        ),
        case(BY_HAND, floor::spans),
        case(WITH_FIELDS, floor::spans_with_fields),
        case("event!, no fields", calls!(|_| event!("e"))),
        case(
            "event!, 3 integers",
            calls!(|n| event!("e", a = n, b = n, c = n)),
        ),
        case(
            "event!, a text of 12 bytes",
            calls!(|_| event!("e", a = "twelve bytes")),
        ),
        ours(
            SPAN,
            "span!, no fields",
            calls!(|_| drop(span!("s").entered())),
        ),
        above(
            WITH_FIELDS,
            ours(
                SPAN,
                "span!, 3 integers",
                calls!(|n| drop(span!("s", a = n, b = n, c = n).entered())),
            ),
        ),
        case("fn, without #[trace]", calls!(|n| _ = bare(n))),
        around(
            "fn, without #[trace]",
            ours(SPAN, "#[trace] fn", calls!(|n| _ = annotated(n))),
        ),
        case("#[trace] async fn", calls!(|n| poll(annotated_async(n)))),
    ];
    // A round fits the ring, and the drain reads it during the pause, so no record is rejected.
    measure(&mut open, rounds, 4_000, Duration::from_millis(8));
    drop(root);
    let losses = stroboscope::stats().losses;
    drop(guard);
    report("gate open", &open, BY_HAND);
    println!(
        "losses during the run: {losses:?} (nothing listens, so batches beyond the buffer are discarded)"
    );
}
