//! State machine that decides when the gate opens and closes. Times are inputs: it has no clock and
//! no thread.

use super::window_log::{Window, WindowLog};
use crate::clock::STEP_THRESHOLD_NS;
use stroboscope_burst::BurstConfig;

/// Limits of the early guard. The flag goes up before an opening because a sleeping thread wakes
/// late: by about 0.1 ms on a quiet machine and by several ms on a busy one. The guard is 5/4 of
/// the observed lateness, within these limits. The lower limit keeps windows exact on a quiet
/// machine; the upper one prevents an extremely late machine from recording all the time.
const GUARD_EARLY_MIN_NS: i64 = 300_000;
const GUARD_EARLY_MAX_NS: i64 = 5_000_000;
/// Assumed lateness before any was observed.
const LATENESS_FIRST_NS: i64 = 800_000;
/// Time for which the flag stays up after a close, so that a clock that reads slightly early does
/// not close early.
pub(crate) const GUARD_LATE_NS: i64 = 50_000;
/// Maximum sleep in ns between two steps of the state machine, so that it follows a clock step
/// within a second.
const LOOK_AGAIN_NS: i64 = 250_000_000;

const NS_PER_MS: i64 = 1_000_000;

/// Result of a step: whether the gate is open, and the time until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) open: bool,
    /// True if a window begins with this step: raise the flag, then call [`Machine::opened`].
    pub(crate) opening: bool,
    /// Wall time in ns before which no window opens, as currently known.
    pub(crate) opens_ns: i64,
    /// Time until the next step, in ns.
    pub(crate) sleep_ns: i64,
}

/// State machine that follows a burst-config through wall time.
#[derive(Debug)]
pub(crate) struct Machine {
    config: BurstConfig,
    /// Wall time in ns since which `config` has applied; 0 before the first step.
    since_ns: i64,
    /// Next config and the wall time from which it applies.
    pending: Option<(BurstConfig, i64)>,
    current: Option<Window>,
    last: Option<(i64, i64)>,
    /// Requested time of the next step in ns, on the monotonic clock.
    expected_ns: Option<i64>,
    /// Worst recent lateness in ns; a new maximum takes effect at once, and decays by 1/256 per
    /// step.
    lateness_ns: i64,
}

impl Machine {
    pub(crate) fn new(config: BurstConfig) -> Self {
        Self {
            config,
            since_ns: 0,
            pending: None,
            current: None,
            last: None,
            expected_ns: None,
            lateness_ns: LATENESS_FIRST_NS,
        }
    }

    pub(crate) fn config(&self) -> BurstConfig {
        self.config
    }

    /// Returns the wall time in ns since which the config has applied; 0 before the first step. On
    /// a busy computer steps are late, so this can be after the time passed to
    /// [`switch`](Self::switch).
    pub(crate) fn since_ns(&self) -> i64 {
        self.since_ns
    }

    /// Applies another config from wall time `at_ns` on (0: at once).
    pub(crate) fn switch(&mut self, config: BurstConfig, at_ns: i64) {
        self.pending = Some((config, at_ns));
    }

    /// Advances to the given times in ns. Logs the windows that close, and returns the decision.
    pub(crate) fn step(
        &mut self,
        wall_ns: i64,
        monotonic_ns: i64,
        log: &mut WindowLog,
    ) -> Decision {
        if let Some(expected_ns) = self.expected_ns {
            let late_ns = (monotonic_ns - expected_ns).max(0);
            self.lateness_ns = late_ns.max(self.lateness_ns - self.lateness_ns / 256);
        }
        let decision = self.decide(wall_ns, monotonic_ns, log);
        self.expected_ns = Some(monotonic_ns + decision.sleep_ns);
        decision
    }

    fn guard_early_ns(&self) -> i64 {
        (self.lateness_ns + self.lateness_ns / 4).clamp(GUARD_EARLY_MIN_NS, GUARD_EARLY_MAX_NS)
    }

    fn decide(&mut self, wall_ns: i64, monotonic_ns: i64, log: &mut WindowLog) -> Decision {
        if self.since_ns == 0 {
            self.since_ns = wall_ns;
        }
        if let Some((last_wall_ns, last_monotonic_ns)) = self.last.replace((wall_ns, monotonic_ns))
        {
            let expected_ns = last_wall_ns + (monotonic_ns - last_monotonic_ns);
            if (wall_ns - expected_ns).abs() > STEP_THRESHOLD_NS && self.current.take().is_some() {
                log.closed(expected_ns);
            }
        }
        if let Some((config, at_ns)) = self.pending
            && wall_ns >= at_ns
        {
            self.pending = None;
            if config != self.config {
                self.since_ns = wall_ns;
            }
            self.config = config;
            if self.current.take().is_some() {
                log.closed(if at_ns == 0 { wall_ns } else { at_ns });
            }
        }
        if let Some(window) = self.current {
            let until_ns = window.close_ns.saturating_add(GUARD_LATE_NS);
            if wall_ns < until_ns {
                return self.sleep(true, until_ns, wall_ns);
            }
            log.closed(window.close_ns);
            self.current = None;
        }
        let window = self.window_at_or_after(wall_ns);
        let open_at_ns = window.open_ns.saturating_sub(self.guard_early_ns());
        if wall_ns < open_at_ns
            || self
                .pending
                .is_some_and(|(_, at_ns)| at_ns <= window.open_ns)
        {
            return self.sleep(false, open_at_ns, wall_ns);
        }
        self.current = Some(window);
        Decision {
            opening: true,
            ..self.sleep(true, window.close_ns.saturating_add(GUARD_LATE_NS), wall_ns)
        }
    }

    /// Records that the flag has been up since `wall_ns`: a window planned to open earlier opens
    /// only then.
    pub(crate) fn opened(&mut self, wall_ns: i64, log: &mut WindowLog) {
        if let Some(window) = &mut self.current {
            window.open_ns = window.open_ns.max(wall_ns);
            log.opened(*window);
        }
    }

    /// Closes the current window because the process stops recording.
    pub(crate) fn stop(&mut self, wall_ns: i64, log: &mut WindowLog) {
        if self.current.take().is_some() {
            log.closed(wall_ns);
        }
    }

    fn window_at_or_after(&self, wall_ns: i64) -> Window {
        let now_ms = u64::try_from(wall_ns / NS_PER_MS).unwrap_or(0);
        let open_ms = self.config.next_open_ms(now_ms);
        let close_ms = self.config.close_after_ms(open_ms).unwrap_or(u64::MAX);
        Window {
            open_ns: ms_to_ns(open_ms),
            close_ns: ms_to_ns(close_ms),
            config: self.config,
        }
    }

    fn sleep(&self, open: bool, until_ns: i64, wall_ns: i64) -> Decision {
        let mut sleep_ns = until_ns.saturating_sub(wall_ns);
        if let Some((_, at_ns)) = self.pending {
            sleep_ns = sleep_ns.min(at_ns - wall_ns);
        }
        Decision {
            open,
            opening: false,
            // A pending config may open at once.
            opens_ns: if open || self.pending.is_some() {
                wall_ns
            } else {
                until_ns
            },
            sleep_ns: sleep_ns.clamp(0, LOOK_AGAIN_NS),
        }
    }
}

fn ms_to_ns(ms: u64) -> i64 {
    i64::try_from(ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = NS_PER_MS;
    const START_NS: i64 = 1_700_000_000_123 * MS + 456_789;

    /// Runs a state machine from `START_NS` for `for_ns`. Each sleep overruns by `late_ns(i)`.
    /// `wall_step` is a time since the start and the step that the wall clock makes then, both in
    /// ns. Returns the windows that the machine logged.
    fn run(
        machine: &mut Machine,
        for_ns: i64,
        late_ns: impl Fn(u64) -> i64,
        wall_step: Option<(i64, i64)>,
    ) -> Vec<Window> {
        let (mut log, mut windows) = (WindowLog::default(), Vec::new());
        let (mut elapsed_ns, mut i) = (0, 0);
        while elapsed_ns < for_ns {
            let step_ns = wall_step
                .filter(|&(at_ns, _)| elapsed_ns >= at_ns)
                .map_or(0, |(_, step_ns)| step_ns);
            let wall_ns = START_NS + elapsed_ns + step_ns;
            let decision = machine.step(wall_ns, elapsed_ns, &mut log);
            if decision.opening {
                machine.opened(wall_ns, &mut log);
            }
            windows.extend(log.take_unreported(wall_ns, false));
            elapsed_ns += decision.sleep_ns + late_ns(i).max(1);
            i += 1;
        }
        machine.stop(START_NS + elapsed_ns, &mut log);
        windows.extend(log.take_unreported(START_NS + elapsed_ns, true));
        windows
    }

    /// Windows, in order of time, that overlap an interval.
    fn overlapping(windows: &[Window], from_ns: i64, to_ns: i64) -> &[Window] {
        let first = windows.partition_point(|window| window.close_ns <= from_ns);
        let end = windows.partition_point(|window| window.open_ns < to_ns);
        &windows[first.min(end)..end]
    }

    fn is_recorded(windows: &[Window], from_ns: i64, to_ns: i64) -> bool {
        let mut at_ns = from_ns;
        for window in overlapping(windows, from_ns, to_ns) {
            if window.contains(at_ns) {
                at_ns = window.close_ns;
            }
        }
        at_ns >= to_ns
    }

    fn is_touched(windows: &[Window], from_ns: i64, to_ns: i64) -> bool {
        !overlapping(windows, from_ns, to_ns).is_empty()
    }

    /// Checks that every whole millisecond of a minute is recorded completely or not at all, as
    /// defined.
    #[test]
    fn agrees_with_the_definition_at_every_millisecond_of_a_minute() {
        for config in [0b11100, 0b1, 0b1_0100, 0x300, 0b1111 << 8, 0] {
            let config = BurstConfig::from_bits(config);
            let windows = run(
                &mut Machine::new(config),
                60_000 * MS,
                |i| (i % 7) as i64 * 100_000,
                None,
            );
            let first_ms = START_NS / MS + 1;
            for ms in first_ms..first_ms + 59_900 {
                let (from_ns, to_ns) = (ms * MS, (ms + 1) * MS);
                if config.contains_ms(ms as u64) {
                    assert!(is_recorded(&windows, from_ns, to_ns), "{config} at {ms}");
                } else {
                    assert!(!is_touched(&windows, from_ns, to_ns), "{config} at {ms}");
                }
            }
        }
    }

    #[test]
    fn a_late_timer_shortens_its_window_says_so_and_is_allowed_for() {
        // The machine becomes busy after a while.
        let late_ns = |turn: u64| if turn < 40 { 0 } else { 3 * MS };
        let windows = run(
            &mut Machine::new(BurstConfig::DEFAULT),
            3_200 * MS,
            late_ns,
            None,
        );
        assert!(
            windows
                .iter()
                .all(|window| BurstConfig::DEFAULT.contains_ms((window.open_ns / MS) as u64))
        );
        let lengths: Vec<i64> = windows
            .iter()
            .map(|window| window.close_ns - window.open_ns)
            .collect();
        let short = lengths[..99]
            .iter()
            .filter(|&&length_ns| length_ns < 4 * MS)
            .count();
        assert!(short == 1 && lengths.len() >= 99, "{lengths:?}");
    }

    #[test]
    fn a_clock_step_ends_the_window_and_the_new_time_is_followed() {
        for step_ns in [-10_000 * MS, 10_003 * MS] {
            let config = BurstConfig::from_bits(0b1111 << 9);
            let mut machine = Machine::new(config);
            let windows = run(
                &mut machine,
                20_000 * MS,
                |_| 1,
                Some((9_876 * MS, step_ns)),
            );
            // From one second after the step on, the windows follow the new time.
            let settled_ns = START_NS + 9_876 * MS + step_ns + 1_000 * MS;
            let first_ms = settled_ns / MS + 1;
            let before = windows.iter().rposition(|it| it.close_ns <= settled_ns);
            let after = &windows[before.map_or(0, |at| at + 1)..];
            for ms in first_ms..first_ms + 8_000 {
                if config.contains_ms(ms as u64) {
                    assert!(
                        is_recorded(after, ms * MS, (ms + 1) * MS),
                        "step {step_ns}, at {ms}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_opening_is_foreseen() {
        let mut log = WindowLog::default();
        let mut opens_ns =
            |machine: &mut Machine, wall_ns: i64| machine.step(wall_ns, wall_ns, &mut log).opens_ns;
        // Open for 2^17 ms, closed for the same time.
        let config = BurstConfig::from_bits(1 << 17);
        let open_ns = ms_to_ns(config.next_open_ms(1_700_000_000_000 | (1 << 18)));
        let mut machine = Machine::new(config);
        let foreseen_ns = opens_ns(&mut machine, open_ns - 100_000 * MS);
        assert!((open_ns - GUARD_EARLY_MAX_NS..=open_ns).contains(&foreseen_ns));
        assert_eq!(opens_ns(&mut machine, open_ns + 1), open_ns + 1);
        let mut machine = Machine::new(BurstConfig::NEVER);
        assert!(opens_ns(&mut machine, open_ns) > 2 * open_ns);
        machine.switch(BurstConfig::DEFAULT, open_ns + 5_000 * MS);
        assert_eq!(opens_ns(&mut machine, open_ns + 1), open_ns + 1);
    }

    #[test]
    fn a_config_switches_at_its_instant() {
        let mut machine = Machine::new(BurstConfig::NEVER);
        let at_ns = START_NS + 5_000 * MS + 777;
        machine.switch(BurstConfig::ALWAYS_ON, at_ns);
        let windows = run(&mut machine, 10_000 * MS, |_| 50_000, None);
        let first = windows.first().unwrap();
        assert!(
            first.open_ns >= at_ns && first.open_ns < at_ns + MS,
            "{}",
            first.open_ns - at_ns
        );
        assert_eq!(machine.config(), BurstConfig::ALWAYS_ON);
        let late_ns = machine.since_ns() - at_ns;
        assert!((0..MS).contains(&late_ns), "{late_ns}");
    }

    proptest! {
        /// Checks that windows begin and end inside the definition, are not empty, and do not
        /// overlap, if the timer is up to 6 ms late.
        #[test]
        fn never_claims_what_the_config_excludes(bits in 1u64..0xfff, lateness in proptest::collection::vec(0i64..6_000_000, 1..20)) {
            let config = BurstConfig::from_bits(bits);
            let late = |i: u64| lateness[i as usize % lateness.len()];
            let windows = run(&mut Machine::new(config), 3_000 * MS, late, None);
            for window in &windows {
                prop_assert!(window.open_ns < window.close_ns);
                prop_assert!(config.contains_ms((window.open_ns / MS) as u64));
                prop_assert!(config.contains_ms(((window.close_ns - 1) / MS) as u64));
            }
            for pair in windows.windows(2) {
                prop_assert!(pair[0].close_ns <= pair[1].open_ns);
            }
        }
    }
}
