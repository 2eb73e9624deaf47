//! Burst-configs of a recording, one after the other.

use std::collections::VecDeque;

use stroboscope_analysis::kernel::event::Window;
use stroboscope_burst::BurstConfig;

use crate::ClockLog;

/// Maximum number of configs kept. The oldest are dropped first.
const CONFIGS_MAX: usize = 64;

/// Burst-configs that applied during a recording, with the times of the changes. While a change is
/// under way, none applies.
#[derive(Clone, Debug)]
pub struct ConfigLog {
    /// Periods in order: start, end (monotonic ns), and burst-config.
    spans: VecDeque<(u64, u64, BurstConfig)>,
}

impl ConfigLog {
    /// Creates a log with a config that applies from the start.
    #[must_use]
    pub fn new(config: BurstConfig) -> Self {
        Self {
            spans: VecDeque::from([(0, u64::MAX, config)]),
        }
    }

    /// Returns the latest config.
    #[must_use]
    pub fn current(&self) -> BurstConfig {
        self.spans.back().map_or(BurstConfig::NEVER, |span| span.2)
    }

    /// Reports whether the config ever changed.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.spans.len() > 1
    }

    /// Ends the current config at `until_ns` (but not before its start or after `from_ns`), and
    /// begins another at `from_ns`, in monotonic ns.
    pub fn switch(&mut self, until_ns: u64, from_ns: u64, config: BurstConfig) {
        if let Some(last) = self.spans.back_mut() {
            last.1 = until_ns.clamp(last.0, from_ns);
        }
        if self.spans.len() == CONFIGS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back((from_ns, u64::MAX, config));
    }

    /// Returns the config that applies at an instant (monotonic ns). Returns `None` during a
    /// change, and before the oldest config kept.
    #[must_use]
    pub fn at(&self, at_ns: u64) -> Option<BurstConfig> {
        let after = self.spans.partition_point(|span| span.0 <= at_ns);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (at_ns < span.1).then_some(span.2)
    }

    /// Returns the windows between two instants, in monotonic ns.
    #[must_use]
    pub fn windows(&self, clocks: &ClockLog, from_ns: u64, to_ns: u64) -> Vec<Window> {
        let spans = self.spans.iter();
        spans
            .flat_map(|&(start_ns, end_ns, config)| {
                let (from_ns, to_ns) = (from_ns.max(start_ns), to_ns.min(end_ns));
                if from_ns >= to_ns {
                    return Vec::new();
                }
                clocks.windows(config, from_ns, to_ns)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn windows_follow_the_config_of_their_time() {
        let mut log = ConfigLog::new(BurstConfig::DEFAULT);
        log.switch(100 * MS, 101 * MS, BurstConfig::from_bits(0b1));
        log.switch(200 * MS, 200 * MS, BurstConfig::ALWAYS_ON);
        let clocks = ClockLog::default();
        let windows = log.windows(&clocks, 0, 300 * MS);
        for at_ns in (0..300 * MS).step_by(77_777) {
            let ms = at_ns / MS;
            let expected = match ms {
                0..100 => BurstConfig::DEFAULT.contains_ms(ms),
                100 => false,
                101..200 => ms % 2 == 1,
                _ => true,
            };
            let mut all = windows.iter();
            let is_in = all.any(|window| window.open_ns <= at_ns && at_ns < window.close_ns);
            assert_eq!(is_in, expected, "{at_ns}");
            let config = log.at(at_ns);
            assert_eq!(
                config.is_some_and(|config| config.contains_ms(ms)),
                expected
            );
        }
        assert!(windows.is_sorted_by(|one, next| one.close_ns <= next.open_ns));
    }

    #[test]
    fn a_change_before_the_last_one_and_many_changes_are_bounded() {
        let mut log = ConfigLog::new(BurstConfig::ALWAYS_ON);
        log.switch(50, 60, BurstConfig::NEVER);
        // The instant was before the last change took effect.
        log.switch(40, 70, BurstConfig::ALWAYS_ON);
        assert_eq!(
            (log.at(65), log.at(70)),
            (None, Some(BurstConfig::ALWAYS_ON))
        );
        for at_ns in 100..10_000 {
            log.switch(at_ns, at_ns, BurstConfig::DEFAULT);
        }
        assert_eq!((log.spans.len(), log.at(0)), (CONFIGS_MAX, None));
        assert_eq!(log.current(), BurstConfig::DEFAULT);
    }
}
