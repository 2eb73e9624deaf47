//! Conversion from the kernel's monotonic clock to wall time.

use stroboscope_analysis::kernel::event::Window;
use stroboscope_burst::BurstConfig;

/// Offsets of the clocks at one moment. For imported events, whose times count as wall time, all
/// offsets are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// Time of the sample, monotonic ns.
    pub at_ns: u64,
    /// Wall time (ns since the Unix epoch) minus monotonic time.
    pub wall_offset_ns: i64,
    /// TAI minus wall time, as the kernel keeps it, ns; 0 if it was never set, or is unknown.
    pub tai_offset_ns: i64,
    /// Time since boot minus monotonic time, ns: how long the machine was suspended; 0 if unknown.
    pub boot_offset_ns: i64,
    /// Uncertainty of the wall time's offset, ns; 0 if it was not measured.
    pub uncertainty_ns: u64,
}

/// Clock samples of a recording, in order of time.
#[derive(Clone, Debug, Default)]
pub struct ClockLog {
    samples: Vec<ClockSample>,
}

/// Maximum number of samples: more than an hour at ten a second, as without bursts, or some minutes
/// in bursts. When it is reached, every second sample is dropped.
const SAMPLES_MAX: usize = 1 << 16;

impl ClockLog {
    /// Adds a sample that is later than all others.
    pub fn push(&mut self, sample: ClockSample) {
        if self.samples.len() == SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        self.samples.push(sample);
    }

    /// Returns the samples, in order of time.
    #[must_use]
    pub fn samples(&self) -> &[ClockSample] {
        &self.samples
    }

    /// Returns the samples whose offsets apply between two instants (monotonic ns).
    #[must_use]
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Self {
        let first = self
            .samples
            .partition_point(|sample| sample.at_ns <= from_ns)
            .saturating_sub(1);
        let end = self
            .samples
            .partition_point(|sample| sample.at_ns < to_ns)
            .max(first + 1)
            .min(self.samples.len());
        Self {
            samples: self.samples[first..end].to_vec(),
        }
    }

    /// Returns wall time minus monotonic time at an instant, ns. The last sample at or before the
    /// instant gives the offset, or else the first sample. Without samples, the offset is 0.
    #[must_use]
    pub fn wall_offset_ns(&self, at_ns: u64) -> i64 {
        let after = self.samples.partition_point(|sample| sample.at_ns <= at_ns);
        self.samples
            .get(after.saturating_sub(1))
            .map_or(0, |sample| sample.wall_offset_ns)
    }

    /// Returns the wall time of an instant on the monotonic clock, ns since the Unix epoch.
    #[must_use]
    pub fn wall_ns(&self, at_ns: u64) -> i64 {
        at_ns
            .cast_signed()
            .saturating_add(self.wall_offset_ns(at_ns))
    }

    /// Returns the windows of a burst-config between two instants, in monotonic ns. Each sample's
    /// offset applies until the next sample, as in the gate, unless samples were dropped.
    #[must_use]
    pub fn windows(&self, config: BurstConfig, from_ns: u64, to_ns: u64) -> Vec<Window> {
        if config == BurstConfig::ALWAYS_ON {
            return vec![Window {
                open_ns: from_ns,
                close_ns: to_ns,
            }];
        }
        let mut windows: Vec<Window> = Vec::new();
        let mut at_ns = from_ns;
        while at_ns < to_ns {
            let next = self.samples.partition_point(|sample| sample.at_ns <= at_ns);
            let next_ns = self.samples.get(next).map(|sample| sample.at_ns);
            let until_ns = next_ns.unwrap_or(to_ns).min(to_ns);
            self.windows_by_one_offset(config, at_ns, until_ns, &mut windows);
            at_ns = until_ns;
        }
        windows
    }

    /// Adds the windows between two instants that have no sample between them.
    fn windows_by_one_offset(
        &self,
        config: BurstConfig,
        from_ns: u64,
        to_ns: u64,
        windows: &mut Vec<Window>,
    ) {
        let offset_ns = self.wall_offset_ns(from_ns);
        let mut at_ns = from_ns;
        while at_ns < to_ns {
            let wall_ms = u64::try_from(self.wall_ns(at_ns) / NS_PER_MS).unwrap_or(0);
            let open_ms = config.next_open_ms(wall_ms);
            let Some(close_ms) = config
                .close_after_ms(open_ms)
                .filter(|_| open_ms < u64::MAX / 2_000_000)
            else {
                return;
            };
            let to_monotonic = |ms: u64| {
                ms_to_ns(ms)
                    .saturating_sub(offset_ns)
                    .max(0)
                    .cast_unsigned()
            };
            let open_ns = to_monotonic(open_ms).max(at_ns);
            let close_ns = to_monotonic(close_ms).min(to_ns);
            if open_ns < close_ns {
                match windows.last_mut() {
                    // A sample in the middle of a window does not end it.
                    Some(last) if last.close_ns == open_ns => last.close_ns = close_ns,
                    _ => windows.push(Window { open_ns, close_ns }),
                }
            }
            at_ns = close_ns.max(at_ns + 1);
        }
    }
}

const NS_PER_MS: i64 = 1_000_000;

fn ms_to_ns(ms: u64) -> i64 {
    i64::try_from(ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_definition() {
        let mut log = ClockLog::default();
        let sample = ClockSample {
            at_ns: 0,
            wall_offset_ns: 1_700_000_000_123_456_789,
            tai_offset_ns: 0,
            boot_offset_ns: 0,
            uncertainty_ns: 50,
        };
        log.push(sample);
        let config = BurstConfig::DEFAULT;
        let windows = log.windows(config, 0, 1_000_000_000);
        assert!(
            windows.len() == 31 || windows.len() == 32,
            "{}",
            windows.len()
        );
        for ns in (0..1_000_000_000).step_by(100_003) {
            let ms = (log.wall_ns(ns) / NS_PER_MS) as u64;
            let is_in = windows
                .iter()
                .any(|window| window.open_ns <= ns && ns < window.close_ns);
            assert_eq!(is_in, config.contains_ms(ms), "{ns}");
        }
        assert_eq!(
            log.windows(BurstConfig::ALWAYS_ON, 5, 9),
            [Window {
                open_ns: 5,
                close_ns: 9
            }]
        );
        assert!(log.windows(BurstConfig::NEVER, 5, 9).is_empty());
    }

    #[test]
    fn a_part_has_the_offsets_of_the_whole() {
        let mut log = ClockLog::default();
        assert!(log.between(1, 9).samples().is_empty());
        for at_ns in [20, 30, 40] {
            log.push(ClockSample {
                at_ns,
                wall_offset_ns: 1_000 * at_ns as i64,
                tai_offset_ns: 0,
                boot_offset_ns: 0,
                uncertainty_ns: 50,
            });
        }
        for from_ns in 0..50 {
            for to_ns in from_ns..=50 {
                let part = log.between(from_ns, to_ns);
                for at_ns in from_ns..to_ns.max(from_ns + 1) {
                    let expected = log.wall_offset_ns(at_ns);
                    assert_eq!(part.wall_offset_ns(at_ns), expected, "{from_ns} {to_ns}");
                }
            }
        }
    }

    /// Samples differ by the time it took to read them, and a clock may be set, also within a
    /// window or near its edges.
    #[test]
    fn each_moment_is_in_a_window_by_its_own_sample() {
        let mut log = ClockLog::default();
        let offset_ns = 1_700_000_000_123_456_789;
        for number in 0..40_u64 {
            let set_ns = if number > 30 { -7_000_000 } else { 0 };
            log.push(ClockSample {
                at_ns: number * 26_000_017,
                wall_offset_ns: offset_ns + (number * 7_919 % 40_001) as i64 + set_ns,
                tai_offset_ns: 0,
                boot_offset_ns: 0,
                uncertainty_ns: 50,
            });
        }
        let config = BurstConfig::DEFAULT;
        let windows = log.windows(config, 0, 1_000_000_000);
        let edges = windows
            .iter()
            .flat_map(|window| [window.open_ns, window.close_ns]);
        let samples = log.samples().iter().map(|sample| sample.at_ns);
        let moments = edges
            .chain(samples)
            .flat_map(|at_ns| (at_ns.saturating_sub(50_000)..at_ns + 50_000).step_by(911))
            .chain((0..1_000_000_000).step_by(100_003));
        for ns in moments.filter(|ns| *ns < 1_000_000_000) {
            let is_in = windows
                .iter()
                .any(|window| window.open_ns <= ns && ns < window.close_ns);
            let ms = (log.wall_ns(ns) / NS_PER_MS) as u64;
            assert_eq!(is_in, config.contains_ms(ms), "{ns}");
        }
        assert!(windows.is_sorted_by(|one, next| one.close_ns < next.open_ns));
    }
}
