//! Compares the cost of a marker with that of a plain system call:
//! `cargo bench -p stroboscope --bench marker`.
//!
//! One thread measures everything, round after round. The figures are medians. No kernel recorder
//! is needed. `cargo bench -p stroboscope-kernel` measures the cost that a recorder adds
//! to every system call.

#![allow(missing_docs, unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use stroboscope::marker::{self, Kind, Markers};
use stroboscope::{BurstConfig, SampleMode, SpanContext, span};

const CALLS: u64 = 4_000;
const ROUNDS: usize = 201;

type Case = (&'static str, fn(u64));

fn medians(cases: &[Case]) -> Vec<f64> {
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for ((_, work), rounds) in cases.iter().zip(&mut rounds) {
            let start = Instant::now();
            for n in 0..CALLS {
                work(black_box(n));
            }
            rounds.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
        }
        // Lets the drain read the records of the last case.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rounds
        .into_iter()
        .map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds[rounds.len() / 2]
        })
        .collect()
}

fn record(markers: Markers) -> stroboscope::Guard {
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(BurstConfig::ALWAYS_ON)
        .sample(SampleMode::Burst)
        .markers(markers)
        .shutdown_deadline(std::time::Duration::ZERO)
        .init()
        .expect("recording starts");
    while stroboscope::stats().windows == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    guard
}

#[cfg(target_os = "linux")]
const SYSTEM_CALLS: &[Case] = &[
    ("getpid by libc::syscall", |_| {
        // SAFETY: getpid has no arguments.
        unsafe { libc::syscall(libc::SYS_getpid) };
    }),
    ("gettid by libc::syscall", |_| {
        // SAFETY: gettid has no arguments.
        unsafe { libc::syscall(libc::SYS_gettid) };
    }),
];
/// Empty on other systems, where a marker does nothing.
#[cfg(not(target_os = "linux"))]
const SYSTEM_CALLS: &[Case] = &[];

fn main() {
    let marker: Case = ("one marker", |n| {
        marker::write(Kind::Start, SpanContext::new(n.into(), n | 1, true), 0, 0);
    });
    let calls = [SYSTEM_CALLS, &[marker]].concat();
    let spans: [Case; 1] = [("span!, entered and left", |_| drop(span!("s").entered()))];
    for ((name, _), ns) in calls.iter().zip(medians(&calls)) {
        println!("{name:<44} {ns:>8.1} ns");
    }
    for (markers, what) in [
        (Markers::Never, "markers off"),
        (Markers::WhileListened, "nobody listens"),
        (Markers::Always, "with its two markers"),
    ] {
        let guard = record(markers);
        let ns = medians(&spans)[0];
        drop(guard);
        println!("{:<44} {ns:>8.1} ns", format!("{}, {what}", spans[0].0));
    }
}
