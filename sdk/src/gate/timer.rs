//! Thread that opens and closes the gate.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::foresight;
use super::schedule::{Decision, Machine};
use super::window_log::WindowLog;
use crate::clock::{Anchor, ClockSource};
use stroboscope_burst::BurstConfig;

/// Time in ns after the timer's creation from which the tick rate is known well enough. Until then,
/// an edge of a window that is further ahead than this counts as never reached.
const TICKS_KNOWN_AFTER_NS: i64 = 2_000_000;

/// State machine and log under one lock, so that other threads see all changes of a turn at once.
#[derive(Debug)]
struct Inner {
    machine: Machine,
    log: WindowLog,
    open: bool,
    /// Clocks when the timer was created, for the tick rate.
    first: Anchor,
}

/// Running gate of this process.
pub(crate) struct Timer {
    inner: Mutex<Inner>,
    clock: Arc<dyn ClockSource>,
    stop: AtomicBool,
}

impl Timer {
    pub(crate) fn new(config: BurstConfig, clock: Arc<dyn ClockSource>) -> Arc<Self> {
        let inner = Inner {
            machine: Machine::new(config),
            log: WindowLog::default(),
            open: false,
            first: Anchor::take(&*clock),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            clock,
            stop: AtomicBool::new(false),
        })
    }

    /// Starts the thread. If a window is already open, the gate is open on return, so that the
    /// first request is recorded.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let timer = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("strobe-gate".into())
            .stack_size(128 << 10)
            .spawn(move || {
                crate::thread::mute();
                crate::sys::ask_for_exact_timers();
                while !timer.stop.load(Relaxed) {
                    let sleep_ns = timer.turn();
                    crate::marker::look(timer.clock.monotonic_ns());
                    super::set_followed(crate::marker::is_followed());
                    std::thread::park_timeout(Duration::from_nanos(
                        sleep_ns.max(20_000).cast_unsigned(),
                    ));
                }
                timer.close();
            })?;
        self.turn();
        Ok(thread)
    }

    /// Opens and closes the gate as the thread does until `end` completes; for simulations.
    #[cfg(feature = "simulation")]
    pub(crate) async fn turn_until<T>(&self, end: impl Future<Output = T>) -> T {
        let mut end = std::pin::pin!(end);
        loop {
            let sleep_ns = self.turn().max(20_000).cast_unsigned();
            tokio::select! {
                ended = &mut end => {
                    self.close();
                    return ended;
                }
                () = tokio::time::sleep(Duration::from_nanos(sleep_ns)) => {}
            }
        }
    }

    /// Steps the machine once and applies its decision; returns the time to sleep in ns.
    pub(crate) fn turn(&self) -> i64 {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let (wall_ns, monotonic_ns) = (self.clock.wall_ns(), self.clock.monotonic_ns());
        let decision = inner.machine.step(wall_ns, monotonic_ns, &mut inner.log);
        if decision.opening {
            // No tick is inside the window until its exact edges are known.
            super::set_window_ticks(u64::MAX, 0);
        }
        self.foresee(inner, &decision, wall_ns, monotonic_ns);
        if decision.open != inner.open {
            super::set_open(decision.open);
            inner.open = decision.open;
        }
        if decision.opening {
            let now = Anchor::take(&*self.clock);
            inner.machine.opened(now.wall_ns, &mut inner.log);
            if let Some(window) = inner.log.current() {
                let ticks_at = |wall_ns| ticks_at(wall_ns, &inner.first, &now);
                super::set_window_ticks(ticks_at(window.open_ns), ticks_at(window.close_ns));
            }
        }
        decision.sleep_ns
    }

    /// Sets the tick from which the calls of unrecorded requests carry ids. Each turn computes it
    /// again.
    fn foresee(&self, inner: &Inner, decision: &Decision, wall_ns: i64, monotonic_ns: i64) {
        // Far longer than the time until the next turn.
        const FAR_NS: i64 = 2_000_000_000;
        let from_ns = decision.opens_ns.saturating_sub(foresight::ahead_ns());
        let is_known = monotonic_ns - inner.first.monotonic_ns >= TICKS_KNOWN_AFTER_NS;
        let from = if decision.opens_ns <= wall_ns || from_ns <= wall_ns {
            0
        } else if is_known {
            let now = Anchor {
                wall_ns,
                monotonic_ns,
                ticks: self.clock.ticks(),
            };
            ticks_at(from_ns, &inner.first, &now)
        } else if from_ns.saturating_sub(wall_ns) > FAR_NS {
            u64::MAX
        } else {
            0
        };
        foresight::set_soon_from(from);
    }

    fn close(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        super::set_open(false);
        inner.open = false;
        inner.machine.stop(self.clock.wall_ns(), &mut inner.log);
    }

    /// Requests the end of the thread, which ends when it wakes next.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Applies another config from wall time `at_ns` on (0: at once). The thread picks it up in its
    /// next turn.
    pub(crate) fn switch(&self, config: BurstConfig, at_ns: i64) {
        self.lock().machine.switch(config, at_ns);
    }

    pub(crate) fn config(&self) -> BurstConfig {
        self.config_since().0
    }

    /// Returns the config in force, and the wall time in ns since which it has applied (0 before
    /// the first turn).
    pub(crate) fn config_since(&self) -> (BurstConfig, i64) {
        let inner = self.lock();
        (inner.machine.config(), inner.machine.since_ns())
    }

    pub(crate) fn with_log<T>(&self, look: impl FnOnce(&mut WindowLog) -> T) -> T {
        look(&mut self.lock().log)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the tick at a wall time near `now`. If too little time has passed since `first` to know
/// the tick rate, returns the current tick, or the last possible tick for a time well ahead.
fn ticks_at(wall_ns: i64, first: &Anchor, now: &Anchor) -> u64 {
    let elapsed_ns = now.monotonic_ns - first.monotonic_ns;
    let ahead_ns = wall_ns.saturating_sub(now.wall_ns);
    if elapsed_ns < TICKS_KNOWN_AFTER_NS {
        return if ahead_ns > TICKS_KNOWN_AFTER_NS {
            u64::MAX
        } else {
            now.ticks
        };
    }
    let rate = now.ticks.saturating_sub(first.ticks) as f64 / elapsed_ns as f64;
    // Casting saturates: a window without an end closes at a tick that is never reached.
    let ahead_ticks = (ahead_ns as f64 * rate) as i64;
    now.ticks.saturating_add_signed(ahead_ticks)
}
