//! Start times of requests, fixed before the run, independent of the responses.

use std::time::Duration;

use crate::random::Random;

/// Start times of independent users: exponential gaps around a mean rate (a Poisson process),
/// reproducible by seed.
///
/// Equal gaps between requests were rejected, because they can synchronise with the period of the
/// bursts. Every burst would then record the same phase of a request.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    random: Random,
    mean_gap_s: f64,
    next_s: f64,
    end_s: f64,
}

/// Error for a rate or a length that is out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The rate is not positive or too high.
    #[error("a rate of {0} requests/s is not possible; give more than 0 and at most {RATE_MAX}")]
    Rate(f64),
    /// The length is not positive or too long.
    #[error("a run of {0} s is not possible; give more than 0 and at most {SECONDS_MAX}")]
    Seconds(f64),
}

/// Highest rate, in requests per second.
pub(crate) const RATE_MAX: f64 = 100_000.0;

/// Longest run, in seconds: a day.
pub(crate) const SECONDS_MAX: f64 = 86_400.0;

impl Schedule {
    /// Creates a schedule of `rate_per_s` requests on average, for `seconds`.
    ///
    /// # Errors
    /// Returns an error if either is not positive, not finite, or beyond its limit.
    pub(crate) fn new(rate_per_s: f64, seconds: f64, seed: u64) -> Result<Self, ScheduleError> {
        if !(rate_per_s > 0.0 && rate_per_s <= RATE_MAX) {
            return Err(ScheduleError::Rate(rate_per_s));
        }
        if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
            return Err(ScheduleError::Seconds(seconds));
        }
        Ok(Self {
            random: Random::new(seed),
            mean_gap_s: rate_per_s.recip(),
            next_s: 0.0,
            end_s: seconds,
        })
    }

    /// Returns the length of the run.
    #[must_use]
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.end_s)
    }

    /// Returns the mean rate, in requests per second.
    #[must_use]
    pub(crate) fn rate_per_s(&self) -> f64 {
        self.mean_gap_s.recip()
    }
}

/// Yields start times, counted from the start of the run, in ascending order.
impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // `1 - unit` is never zero, so the logarithm is finite.
        self.next_s += -(1.0 - self.random.next_unit()).ln() * self.mean_gap_s;
        (self.next_s < self.end_s).then(|| Duration::from_secs_f64(self.next_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_ascend_at_the_stated_rate() {
        let starts: Vec<Duration> = Schedule::new(40.0, 100.0, 1).expect("possible").collect();
        assert!(
            (3_700..4_300).contains(&starts.len()),
            "{} starts",
            starts.len()
        );
        assert!(starts.is_sorted());
        assert!(starts.iter().all(|start| *start < Duration::from_secs(100)));
    }

    #[test]
    fn gaps_are_exponential() {
        let starts: Vec<Duration> = Schedule::new(100.0, 100.0, 2).expect("possible").collect();
        let longer = starts
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > Duration::from_millis(10))
            .count() as f64;
        let share = longer / (starts.len() - 1) as f64;
        assert!(
            (share - (-1.0_f64).exp()).abs() < 0.03,
            "{share} of the gaps exceed the mean"
        );
    }

    #[test]
    fn the_seed_decides() {
        let starts = |seed| {
            Schedule::new(50.0, 2.0, seed)
                .expect("possible")
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(3), starts(3));
        assert_ne!(starts(3), starts(4));
    }

    #[test]
    fn impossible_schedules_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(
                Schedule::new(rate, 1.0, 0)
                    .is_err_and(|error| error.to_string().contains("requests/s"))
            );
        }
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(
                Schedule::new(1.0, seconds, 0)
                    .is_err_and(|error| error.to_string().contains(" s is not"))
            );
        }
    }
}
