//! Load sweep: selects the request rates to measure, and decides how long to hold each.

use crate::statistics::median;

/// Options of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepSettings {
    /// First request rate, per second.
    pub first_per_second: f64,
    /// Factor by which the rate grows from level to level.
    pub factor: f64,
    /// Median latency of a level, in ns, above which the sweep ends.
    pub limit_ns: f64,
    /// Precision of a level's median: half the width of its 95 % interval must be at most this
    /// share of the median, 0 to 1.
    pub precision: f64,
    /// Maximum duration of a level in seconds, settled or not.
    pub seconds_max: f64,
}

/// Measurements so far at one request rate, the current level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Level {
    /// Latencies in ns, in order of sending.
    pub latencies_ns: Vec<u64>,
    /// Time that the level has been held, in seconds.
    pub seconds: f64,
}

impl Level {
    /// Returns the median latency in ns; 0 without latencies.
    #[must_use]
    pub fn median_ns(&self) -> f64 {
        median_of(&self.latencies_ns)
    }

    /// Reports whether the level has been held for long enough (§4.3.2: "the request rate is held
    /// until the variance has settled"). Either `seconds_max` has passed, or there are at least 40
    /// latencies and two conditions hold. The median must have the requested precision, and the
    /// medians of the earlier and the later half must differ by at most twice the precision.
    #[must_use]
    pub fn is_settled(&self, settings: &SweepSettings) -> bool {
        if self.seconds >= settings.seconds_max {
            return true;
        }
        let count = self.latencies_ns.len();
        if count < 40 {
            return false;
        }
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        let spread = (0.98 * (count as f64).sqrt()).ceil() as usize;
        let at = |place: usize| {
            sorted
                .get(place.min(count - 1))
                .copied()
                .unwrap_or_default() as f64
        };
        let middle = count / 2;
        let half_width = (at(middle + spread) - at(middle.saturating_sub(spread))) / 2.0;
        let (early, late) = self.latencies_ns.split_at(middle);
        let drift = (median_of(late) - median_of(early)).abs();
        let bearable = settings.precision * at(middle);
        half_width <= bearable && drift <= 2.0 * bearable
    }
}

fn median_of(values_ns: &[u64]) -> f64 {
    let values = values_ns.iter().map(|ns| *ns as f64).collect();
    median(values).unwrap_or_default()
}

/// A load sweep and the rate that it has reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSweep {
    settings: SweepSettings,
    next: Option<f64>,
}

impl LoadSweep {
    /// Starts a sweep at the first request rate.
    #[must_use]
    pub const fn new(settings: SweepSettings) -> Self {
        Self {
            settings,
            next: Some(settings.first_per_second),
        }
    }

    /// Returns the options of the sweep.
    #[must_use]
    pub const fn settings(&self) -> &SweepSettings {
        &self.settings
    }

    /// Returns the request rate to hold now, per second; `None` once the sweep has ended.
    #[must_use]
    pub const fn requests_per_second(&self) -> Option<f64> {
        self.next
    }

    /// Completes a level. Raises the rate, or ends the sweep if the level's median exceeded the
    /// limit or no latency was measured.
    pub fn done(&mut self, level: &Level) {
        let is_beyond = level.latencies_ns.is_empty() || level.median_ns() > self.settings.limit_ns;
        self.next = self
            .next
            .filter(|_| !is_beyond)
            .map(|rate| rate * self.settings.factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: SweepSettings = SweepSettings {
        first_per_second: 10.0,
        factor: 2.0,
        limit_ns: 100.0,
        precision: 0.05,
        seconds_max: 20.0,
    };

    #[test]
    fn a_level_is_held_until_it_is_steady() {
        let level = |latencies_ns: Vec<u64>| Level {
            latencies_ns,
            seconds: 1.0,
        };
        assert!(!level(vec![50; 10]).is_settled(&SETTINGS), "too few");
        assert!(level(vec![50; 40]).is_settled(&SETTINGS));
        assert!(
            !level((0..400).collect()).is_settled(&SETTINGS),
            "still rising"
        );
        let noisy = |count: u64| level((0..count).map(|i| 50 + i * 7_919 % 41).collect());
        assert!(!noisy(60).is_settled(&SETTINGS));
        assert!(noisy(4_000).is_settled(&SETTINGS));
        assert!(
            Level {
                latencies_ns: vec![],
                seconds: 20.0
            }
            .is_settled(&SETTINGS)
        );
    }

    #[test]
    fn the_rate_rises_until_the_limit() {
        let mut sweep = LoadSweep::new(SETTINGS);
        let mut rates = Vec::new();
        while let Some(rate) = sweep.requests_per_second() {
            rates.push(rate);
            sweep.done(&Level {
                latencies_ns: vec![rate as u64; 50],
                seconds: 1.0,
            });
        }
        assert_eq!(rates, [10.0, 20.0, 40.0, 80.0, 160.0]);
    }
}
