//! Processor work of a given length: real instructions, not a sleep, and not a loop that watches
//! the clock.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::random::mix;

/// Rounds in one calibration sample: few enough that most samples are not preempted.
const SAMPLE_ROUNDS: u64 = 20_000;
const SAMPLES: u32 = 40;

/// Environment variable for the rounds per microsecond of work, for comparisons between processes.
const ENV_ROUNDS_PER_US: &str = "NEWSFEED_ROUNDS_PER_US";

/// Speed at which this processor computes rounds of work, measured once at start-up.
///
/// Work is a *count of rounds*, fixed in advance: on a busy machine the same work takes longer, as
/// it does in a real service. A loop that ran until a given time would hide all contention.
/// Measuring the speed first keeps unoptimized and optimized builds alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    rounds_per_us: f64,
}

impl Cpu {
    /// Measures this processor (about 10 ms). The fastest of many short samples counts, because
    /// nothing disturbed it.
    ///
    /// [`ENV_ROUNDS_PER_US`] replaces the measurement, so that several processes do exactly the
    /// same work.
    #[must_use]
    pub(crate) fn calibrate() -> Self {
        let given = std::env::var(ENV_ROUNDS_PER_US)
            .ok()
            .and_then(|text| text.parse().ok());
        given
            .filter(|rounds: &f64| rounds.is_finite() && *rounds > 0.0)
            .map_or_else(Self::measure, |rounds_per_us| Self { rounds_per_us })
    }

    fn measure() -> Self {
        let fastest = (0..SAMPLES)
            .map(|sample| {
                let start = Instant::now();
                black_box(rounds(u64::from(sample), SAMPLE_ROUNDS));
                start.elapsed()
            })
            .min()
            .unwrap_or(Duration::from_micros(1))
            .max(Duration::from_micros(1));
        Self {
            rounds_per_us: SAMPLE_ROUNDS as f64 / (fastest.as_nanos() as f64 / 1e3),
        }
    }

    /// Computes for about `duration` on an undisturbed processor. Returns the result, so that the
    /// compiler cannot optimize the work away. For one `Cpu` and `duration`, the result depends
    /// only on `seed`.
    pub(crate) fn work(&self, duration: Duration, seed: u64) -> u64 {
        let count = (duration.as_nanos() as f64 / 1e3 * self.rounds_per_us) as u64;
        black_box(rounds(black_box(seed), count))
    }
}

fn rounds(seed: u64, count: u64) -> u64 {
    // Each round needs the result of the round before, so the processor cannot overlap them.
    (0..count).fold(seed, |state, round| mix(state ^ round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_about_as_long_as_it_says() {
        let cpu = Cpu::calibrate();
        let best = (0..20)
            .map(|seed| {
                let start = Instant::now();
                cpu.work(Duration::from_millis(2), seed);
                start.elapsed()
            })
            .min()
            .expect("20 tries");
        assert!(best > Duration::from_micros(1_000), "{best:?}");
        assert!(best < Duration::from_micros(8_000), "{best:?}");
    }

    #[test]
    fn work_depends_on_its_seed() {
        let cpu = Cpu::calibrate();
        assert_ne!(
            cpu.work(Duration::from_micros(50), 1),
            cpu.work(Duration::from_micros(50), 2)
        );
    }
}
