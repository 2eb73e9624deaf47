//! Thread that maintains the store while a collector runs: see [`stroboscope_store::maintenance`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::self_tracing::span_if;
use stroboscope::span;
use stroboscope_store::data_dir::Lock;
use stroboscope_store::flush::{Counters, now_ns};
use stroboscope_store::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use stroboscope_store::tables::Store;

/// Options of a running collector's store maintenance.
#[derive(Clone, Debug)]
pub struct MaintenanceOptions {
    /// Settings of each round.
    pub settings: MaintenanceSettings,
    /// Interval between rounds.
    pub interval: Duration,
}

impl Default for MaintenanceOptions {
    fn default() -> Self {
        Self {
            settings: MaintenanceSettings::default(),
            interval: Duration::from_secs(30),
        }
    }
}

/// Stop signal of the thread: dropping it ends the thread, even in the middle of a merge.
pub(super) type MaintenanceStop = mpsc::Sender<()>;

/// Starts the maintenance thread. It holds the lock of the data directory, as the flusher does.
pub(super) fn start(
    store: Store,
    options: MaintenanceOptions,
    (flushed, others_flushed): (Arc<Counters>, Arc<AtomicBool>),
    counters: Arc<MaintenanceCounters>,
    lock: Arc<Lock>,
) -> std::io::Result<(MaintenanceStop, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel::<()>();
    let mut care = Care::of(store, options.settings, counters);
    let run = move || {
        let _lock = lock;
        step_back();
        loop {
            match stopped.recv_timeout(options.interval) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let goes_on = || stopped.try_recv() == Err(TryRecvError::Empty);
            let next_segment = flushed.checkpoint_segment.load(Relaxed);
            let is_traced = others_flushed.swap(false, Relaxed);
            let round = span_if(is_traced, || span!("care_round"));
            if let Err(error) = round.scope(|| care.round(next_segment, now_ns(), &goes_on)) {
                tracing::error!(%error, "cannot maintain the store; trying again soon");
            }
        }
    };
    let thread = std::thread::Builder::new().name("store-care".to_owned());
    Ok((stop, thread.spawn(run)?))
}

/// Lowers the priority of this thread below intake and observed services. On Linux each thread has
/// its own priority; on other systems a priority belongs to the process and stays unchanged.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!("store maintenance runs at normal priority: {error}");
    }
}
