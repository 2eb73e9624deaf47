//! Detects whether a benchmark's round had its processor core for itself.
//!
//! On rented machines, two processors are often the two halves of one core. Work on the other half,
//! such as another tenant's or the drain's, slows a round by half, for milliseconds to minutes. A
//! fixed sequence of additions detects this. It is timed directly before and after each round, and
//! takes longer if the core is shared. Figures are of the rounds that had the whole core, or of all
//! rounds if too few had it. A round waits up to a limit until the core is free.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Shortest duration of the additions in this process, in ns, as the bits of an `f64`.
static LEAST_NS: AtomicU64 = AtomicU64::new(f64::INFINITY.to_bits());

/// Result of one round: ns per call, and the longer of the two durations of the additions, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) ns: f64,
    pub(crate) additions_ns: f64,
}

/// Maximum number of checks whether the core is free, 1 ms apart, before a round begins anyway.
const PATIENCE: usize = 100;

/// Times `work`, which makes this number of calls.
pub(crate) fn round(calls: u64, work: impl FnOnce()) -> Round {
    let mut before = additions_ns();
    let mut least_ns = f64::from_bits(LEAST_NS.load(Relaxed)).min(before);
    for _ in 0..PATIENCE {
        if before <= least_ns * TOLERANCE {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        before = additions_ns();
        least_ns = least_ns.min(before);
    }
    LEAST_NS.store(least_ns.to_bits(), Relaxed);
    let start = Instant::now();
    work();
    let ns = start.elapsed().as_nanos() as f64 / calls as f64;
    Round {
        ns,
        additions_ns: before.max(additions_ns()),
    }
}

/// Times four independent sequences of additions, in ns. Together they keep a whole core busy, so
/// they take longer as soon as the core is shared.
fn additions_ns() -> f64 {
    let start = Instant::now();
    let mut sums = [1u64, 2, 3, 4];
    for _ in 0..4_000 {
        add(&mut sums);
    }
    black_box(sums);
    start.elapsed().as_nanos() as f64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
fn add([a, b, c, d]: &mut [u64; 4]) {
    // SAFETY: changes only registers. It is assembly, because a compiler would vectorize the
    // additions or compute them in advance.
    unsafe {
        std::arch::asm!(
            "add {0}, 3",
            "add {1}, 5",
            "add {2}, 7",
            "add {3}, 9",
            "xor {0}, 3",
            "xor {1}, 5",
            "xor {2}, 7",
            "xor {3}, 9",
            inout(reg) * a,
            inout(reg) * b,
            inout(reg) * c,
            inout(reg) * d,
            options(nomem, nostack)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn add(sums: &mut [u64; 4]) {
    for sum in sums {
        *sum = black_box(*sum).wrapping_add(3);
    }
}

/// Maximum duration of the additions, relative to the shortest one, for which the core counts as
/// free.
const TOLERANCE: f64 = 1.03;
/// Minimum number of rounds for a meaningful median.
const ROUNDS_MIN: usize = 7;

/// Returns the shortest duration of the additions in these rounds, in ns; infinite without rounds.
pub(crate) fn least_additions_ns<'a>(rounds: impl IntoIterator<Item = &'a Round>) -> f64 {
    rounds
        .into_iter()
        .map(|round| round.additions_ns)
        .fold(f64::INFINITY, f64::min)
}

/// Durations of rounds, from which percentiles are computed.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Sorted ns per call of the rounds that had the core alone, or of all rounds if those are
    /// fewer than [`ROUNDS_MIN`].
    ns: Vec<f64>,
    pub(crate) alone: usize,
    pub(crate) rounds: usize,
}

impl Figure {
    /// Creates a figure. `least_ns` is the duration of the additions on a core that is not shared.
    pub(crate) fn new(rounds: &[Round], least_ns: f64) -> Self {
        let is_alone = |round: &&Round| round.additions_ns <= least_ns * TOLERANCE;
        let alone = rounds.iter().filter(is_alone).count();
        let mut ns: Vec<f64> = if alone >= ROUNDS_MIN {
            rounds
                .iter()
                .filter(is_alone)
                .map(|round| round.ns)
                .collect()
        } else {
            rounds.iter().map(|round| round.ns).collect()
        };
        ns.sort_by(f64::total_cmp);
        Self {
            ns,
            alone,
            rounds: rounds.len(),
        }
    }

    /// Returns a percentile of the ns per call, below the 100th; NaN without rounds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        self.ns
            .get(self.ns.len() * percent / 100)
            .copied()
            .unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }
}

impl std::fmt::Display for Figure {
    /// Writes how many of the rounds had the core alone.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.alone >= ROUNDS_MIN {
            write!(f, "{}/{} alone", self.alone, self.rounds)
        } else {
            write!(f, "{}/{} alone: all taken", self.alone, self.rounds)
        }
    }
}
