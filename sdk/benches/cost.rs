//! What an annotation costs, closed and open, beside the floor of each: `cargo bench -p stroboscope`.
//!
//! One process, one thread; each figure is the median of many rounds of the same run, so that ratios hold on a machine
//! whose speed drifts. Nothing listens for what is recorded; the drain runs and discards, which is counted.

#![allow(missing_docs)]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use stroboscope::{BurstConfig, SampleMode, event, span};

static FLAG: AtomicU32 = AtomicU32::new(0);

struct Case {
    name: &'static str,
    work: fn(u64),
    goal: Option<Goal>,
    rounds_ns: Vec<f64>,
}

/// At most this long, and at most so many times the floor.
#[derive(Clone, Copy)]
struct Goal {
    ns: f64,
    times_floor: f64,
}

const CLOSED: Goal = Goal { ns: 2.0, times_floor: 2.0 };
const SPAN: Goal = Goal { ns: 26.0, times_floor: 1.2 };
const EVENT: Goal = Goal { ns: 14.0, times_floor: f64::INFINITY };

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "goal ≤ {} ns", self.ns)?;
        if self.times_floor.is_finite() { write!(f, ", ≤ {} x", self.times_floor) } else { Ok(()) }
    }
}

fn case(name: &'static str, work: fn(u64)) -> Case {
    Case { name, work, goal: None, rounds_ns: Vec::new() }
}

fn ours(goal: Goal, name: &'static str, work: fn(u64)) -> Case {
    Case { goal: Some(goal), ..case(name, work) }
}

#[stroboscope::trace]
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

/// Polls once: the future is ready then.
fn poll(future: impl Future<Output = u64>) {
    let mut context = Context::from_waker(Waker::noop());
    _ = black_box(pin!(future).poll(&mut context));
}

/// All cases in turn, round after round, so that drift of the machine hits all alike.
fn measure(cases: &mut [Case], rounds: usize, calls: u64, pause: Duration) {
    for _ in 0..rounds {
        for case in cases.iter_mut() {
            let start = Instant::now();
            for n in 0..calls {
                (case.work)(black_box(n));
            }
            case.rounds_ns.push(start.elapsed().as_nanos() as f64 / calls as f64);
            std::thread::sleep(pause);
        }
    }
}

fn report(title: &str, cases: &mut [Case], floor: &str) {
    println!("{title}");
    for case in cases.iter_mut() {
        case.rounds_ns.sort_by(f64::total_cmp);
    }
    let median = |case: &Case| case.rounds_ns[case.rounds_ns.len() / 2];
    let base = cases.iter().find(|case| case.name == floor).map_or(f64::NAN, median);
    for case in cases.iter() {
        let (ns, times) = (median(case), median(case) / base);
        let verdict = case.goal.map_or(String::new(), |goal| {
            let is_met = ns <= goal.ns && times <= goal.times_floor;
            format!("{goal}: {}", if is_met { "met" } else { "MISSED" })
        });
        println!("  {:<32} {ns:>8.2} ns   {times:>6.2} x {floor}   {verdict}", case.name);
    }
}

fn main() {
    let mut closed = [
        case("empty loop", |n| _ = black_box(n)),
        case("flag check", |n| {
            if FLAG.load(Relaxed) != 0 {
                black_box(n);
            }
        }),
        ours(CLOSED, "event!, 3 integers", |n| event!("e", a = n, b = n, c = n)),
        ours(CLOSED, "span!, no fields", |_| drop(span!("s").entered())),
        ours(CLOSED, "span!, 3 integers", |n| drop(span!("s", a = n, b = n, c = n).entered())),
        ours(CLOSED, "#[trace] fn", |n| _ = annotated(n)),
        case("async fn, without #[trace]", |n| poll(plain_async(n))),
        case("#[trace] async fn", |n| poll(annotated_async(n))),
    ];
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::NEVER)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts");
    measure(&mut closed, 101, 200_000, Duration::ZERO);
    drop(guard);
    report("gate closed", &mut closed, "flag check");

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
        case("counter read", |_| _ = black_box(now())),
        case("two counter reads", |_| _ = black_box((now(), now()))),
        ours(EVENT, "event!, no fields", |_| event!("e")),
        ours(EVENT, "event!, 3 integers", |n| event!("e", a = n, b = n, c = n)),
        ours(EVENT, "event!, a text of 12 bytes", |_| event!("e", a = "twelve bytes")),
        ours(SPAN, "span!, no fields", |_| drop(span!("s").entered())),
        ours(SPAN, "span!, 3 integers", |n| drop(span!("s", a = n, b = n, c = n).entered())),
        ours(SPAN, "#[trace] fn", |n| _ = annotated(n)),
        case("#[trace] async fn", |n| poll(annotated_async(n))),
    ];
    // Rounds short enough for the ring, pauses long enough for the drain: the cost of recording, not of refusing.
    measure(&mut open, 301, 4_000, Duration::from_millis(8));
    drop(root);
    let losses = stroboscope::stats().losses;
    drop(guard);
    report("gate open", &mut open, "two counter reads");
    println!(
        "losses during the run: {losses:?} (nothing listens, so batches beyond the buffer are discarded)"
    );
}

#[cfg(target_arch = "x86_64")]
fn now() -> u64 {
    // SAFETY: reads the time-stamp counter; exists on every x86-64.
    #[allow(unsafe_code)]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn now() -> u64 {
    Instant::now().elapsed().as_nanos() as u64
}
