//! Thread that lets the eBPF programs doze while no window is near. Dozing programs read no clock.
//!
//! The edges of windows stay exact: the thread plans to wake the programs a guard time before each
//! opening, and they find the edges themselves. If it wakes them too late, the window opens late.
//! [`Gate::windows`] then returns the actual window.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stroboscope_analysis::kernel::event::Window;
use stroboscope_burst::BurstConfig;
use stroboscope_kernel_model::{ClockLog, ClockSample, ConfigLog};

use crate::clock;
use crate::ebpf::Switches;

/// Guard time before an opening, in ns, because a sleeping thread may wake late.
const GUARD_NS: u64 = 3_000_000;
/// Minimum duration of a doze, in ns. A shorter one is not worthwhile.
const DOZE_MIN_NS: u64 = 2_000_000;
/// Maximum interval between clock readings, in ns, so that the gate follows a step of the clock.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// Maximum number of late wake-ups remembered.
const LATE_MAX: usize = 1 << 16;

#[derive(Debug)]
struct State {
    clocks: ClockLog,
    configs: ConfigLog,
    /// Late wake-ups, as intervals in monotonic ns: the programs dozed from the first instant to
    /// the second, which is, or may be, after the opening of a window.
    late: Vec<(u64, u64)>,
}

/// Handle to the running thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    pub(crate) fn start(config: BurstConfig, switches: Option<Switches>) -> std::io::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            clocks: ClockLog::default(),
            configs: ConfigLog::new(config),
            late: Vec::new(),
        }));
        let stop = Arc::new(AtomicBool::new(false));
        sample(&state, switches.as_ref());
        let turner = Turner {
            switches,
            state: Arc::clone(&state),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("kernel-gate".into())
            .spawn(move || {
                ask_for_exact_timers();
                while !turner.stop.load(Relaxed) {
                    turner.turn();
                }
            })?;
        Ok(Self {
            state,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) fn clocks(&self) -> ClockLog {
        lock(&self.state).clocks.clone()
    }

    /// Calls `look` with the clocks and configs without copying them. The gate's thread waits
    /// meanwhile, so `look` may take long only if the source has no programs.
    pub(crate) fn with_logs<T>(&self, look: impl FnOnce(&ClockLog, &ConfigLog) -> T) -> T {
        let state = lock(&self.state);
        look(&state.clocks, &state.configs)
    }

    /// Returns the actual windows between two instants, in monotonic ns. They exclude the time in
    /// which the programs dozed too long.
    pub(crate) fn windows(&self, from_ns: u64, to_ns: u64) -> Vec<Window> {
        let state = lock(&self.state);
        let windows = state.configs.windows(&state.clocks, from_ns, to_ns);
        cut(windows, &state.late)
    }

    /// Ends the current config at wall time `at_ns` (ns since the Unix epoch), or now if that time
    /// is in the future. The new config applies from the instant that `switch` returns (monotonic
    /// ns). Returns this instant, too.
    pub(crate) fn switch(
        &self,
        config: BurstConfig,
        at_ns: i64,
        switch: impl FnOnce() -> u64,
    ) -> u64 {
        let mut state = lock(&self.state);
        let now_ns = clock::now_ns();
        let passed_ns = state.clocks.wall_ns(now_ns).saturating_sub(at_ns).max(0);
        let until_ns = now_ns.saturating_sub(passed_ns.cast_unsigned());
        let from_ns = switch();
        state.configs.switch(until_ns, from_ns, config);
        drop(state);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        from_ns
    }
}

/// Removes, from each window in which the programs dozed, the part before they were awake again.
fn cut(mut windows: Vec<Window>, late: &[(u64, u64)]) -> Vec<Window> {
    for &(from_ns, awake_ns) in late {
        let first = windows.partition_point(|window| window.close_ns <= from_ns);
        for window in windows[first..]
            .iter_mut()
            .take_while(|window| window.open_ns < awake_ns)
        {
            window.open_ns = awake_ns.min(window.close_ns);
        }
    }
    windows.retain(|window| window.open_ns < window.close_ns);
    windows
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn sample(state: &Mutex<State>, switches: Option<&Switches>) -> ClockSample {
    let sample = clock::sample();
    if let Some(switches) = switches {
        switches.set_wall_offset_ns(sample.wall_offset_ns);
    }
    lock(state).clocks.push(sample);
    sample
}

struct Turner {
    /// Switches of the programs; `None` for a source without programs.
    switches: Option<Switches>,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl Turner {
    fn turn(&self) {
        let now = sample(&self.state, self.switches.as_ref());
        let config = lock(&self.state).configs.current();
        if config == BurstConfig::ALWAYS_ON {
            return pause(LOOK_AGAIN_NS);
        }
        let wall_ns = now
            .at_ns
            .cast_signed()
            .saturating_add(now.wall_offset_ns)
            .max(0)
            .cast_unsigned();
        let open_ms = config.next_open_ms(wall_ns / NS_PER_MS);
        let open_in_ns = open_ms.saturating_mul(NS_PER_MS).saturating_sub(wall_ns);
        if open_in_ns == 0 {
            let close_ms = config.close_after_ms(open_ms).unwrap_or(u64::MAX);
            let close_in_ns = close_ms.saturating_mul(NS_PER_MS).saturating_sub(wall_ns);
            return pause(close_in_ns.clamp(20_000, LOOK_AGAIN_NS));
        }
        if open_in_ns < GUARD_NS + DOZE_MIN_NS {
            return pause(open_in_ns);
        }
        let Some(switches) = &self.switches else {
            return pause(open_in_ns.min(LOOK_AGAIN_NS));
        };
        switches.doze();
        pause((open_in_ns - GUARD_NS).min(LOOK_AGAIN_NS));
        switches.wake();
        let awake_ns = clock::now_ns();
        let mut state = lock(&self.state);
        // Another config may have opened a window in the meantime.
        let is_late = awake_ns >= now.at_ns + open_in_ns || state.configs.current() != config;
        if is_late && state.late.len() < LATE_MAX {
            state.late.push((now.at_ns, awake_ns));
        }
    }
}

const NS_PER_MS: u64 = 1_000_000;

fn pause(ns: u64) {
    std::thread::park_timeout(Duration::from_nanos(ns));
}

/// Requests timers that are exact to 1 µs. By default, Linux may delay a sleeping thread by 50 µs
/// to wake several at once.
fn ask_for_exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds and concerns the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dozed_through_is_not_claimed() {
        let windows = |all: &[(u64, u64)]| -> Vec<Window> {
            all.iter()
                .map(|&(open_ns, close_ns)| Window { open_ns, close_ns })
                .collect()
        };
        let all = windows(&[(10, 20), (30, 40), (50, 60), (70, 80)]);
        assert_eq!(cut(all.clone(), &[]), all);
        assert_eq!(
            cut(all.clone(), &[(22, 33)]),
            windows(&[(10, 20), (33, 40), (50, 60), (70, 80)])
        );
        assert_eq!(
            cut(all, &[(22, 55), (62, 80)]),
            windows(&[(10, 20), (55, 60)])
        );
    }
}
