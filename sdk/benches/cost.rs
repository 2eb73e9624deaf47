//! What an annotation costs, closed and open, beside the floor of each: `cargo bench -p stroboscope`.
//!
//! One process, one thread; each figure is the median of many rounds of the same run, so that ratios hold on a machine
//! whose speed drifts. Nothing listens for what is recorded; the drain runs and discards, which is counted.

#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use stroboscope::{BurstConfig, SampleMode, event, span};

static FLAG: AtomicU32 = AtomicU32::new(0);

struct Case {
    name: &'static str,
    work: fn(u64),
    rounds_ns: Vec<f64>,
}

fn case(name: &'static str, work: fn(u64)) -> Case {
    Case { name, work, rounds_ns: Vec::new() }
}

#[stroboscope::trace]
fn annotated(n: u64) -> u64 {
    black_box(n)
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
    let median = |case: &mut Case| {
        case.rounds_ns.sort_by(f64::total_cmp);
        case.rounds_ns[case.rounds_ns.len() / 2]
    };
    let medians: Vec<(&str, f64)> = cases.iter_mut().map(|case| (case.name, median(case))).collect();
    let base = medians.iter().find(|(name, _)| *name == floor).map_or(f64::NAN, |&(_, ns)| ns);
    for (name, ns) in medians {
        println!("  {name:<44} {ns:>8.2} ns   {:>6.2} x {floor}", ns / base);
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
        case("event!, 3 integers", |n| event!("e", a = n, b = n, c = n)),
        case("span!, no fields", |_| drop(span!("s").entered())),
        case("span!, 3 integers", |n| drop(span!("s", a = n, b = n, c = n).entered())),
        case("#[trace] fn", |n| _ = annotated(n)),
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
        .ring_bytes(4 << 20)
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
        case("event!, no fields", |_| event!("e")),
        case("event!, 3 integers", |n| event!("e", a = n, b = n, c = n)),
        case("event!, a text of 12 bytes", |_| event!("e", a = "twelve bytes")),
        case("span!, no fields", |_| drop(span!("s").entered())),
        case("span!, 3 integers", |n| drop(span!("s", a = n, b = n, c = n).entered())),
        case("#[trace] fn", |n| _ = annotated(n)),
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
