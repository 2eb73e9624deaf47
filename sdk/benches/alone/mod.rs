//! Was the core this ran on ours alone?
//!
//! On rented machines two processors are often the two halves of one core, and another tenant's work on the other half
//! slows ours by half, for stretches of milliseconds to minutes. A stretch of plain additions tells: timed right before
//! and after a round, it says whether the round had the whole core. Figures are medians of the rounds that had. A round
//! waits a while for its chance; the other half may be at work for us, too: reading what was recorded.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The least that the additions took in this process; an `f64`.
static LEAST_NS: AtomicU64 = AtomicU64::new(f64::INFINITY.to_bits());

/// One round: how long it took, and how long the additions took beside it, the slower of twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) ns: f64,
    pub(crate) additions_ns: f64,
}

/// How often a round looks whether the core is its own, a millisecond apart, before it begins anyhow.
const PATIENCE: usize = 100;

/// Times work of so many calls; ns of one.
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

/// More than a core can do at a time, none waiting for another: it takes longer as soon as the core is shared.
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
    // SAFETY: adds to registers. Written out, because a compiler would do four at a time, or all of them beforehand.
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

/// The additions may take so many times the least that was seen.
const TOLERANCE: f64 = 1.03;
/// Of fewer rounds a median says little.
const ROUNDS_MIN: usize = 7;

/// The least that the additions took in any of these rounds.
pub(crate) fn least_additions_ns<'a>(rounds: impl IntoIterator<Item = &'a Round>) -> f64 {
    rounds
        .into_iter()
        .map(|round| round.additions_ns)
        .fold(f64::INFINITY, f64::min)
}

/// Rounds in order of their time.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Of rounds that had the core alone, or of all, if those were too few.
    ns: Vec<f64>,
    pub(crate) alone: usize,
    pub(crate) rounds: usize,
}

impl Figure {
    /// `least_ns`: what the additions take on a core that is not shared.
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

    /// NaN without any round.
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
    /// How many rounds it is of.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.alone >= ROUNDS_MIN {
            write!(f, "{}/{} alone", self.alone, self.rounds)
        } else {
            write!(f, "{}/{} alone: all taken", self.alone, self.rounds)
        }
    }
}
