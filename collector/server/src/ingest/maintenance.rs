//! Thread that maintains the store while a collector or a recorder runs: see
//! [`stroboscope_store::maintenance`].

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

/// Maintenance of a store that no collector uses, until it is dropped.
#[derive(Debug)]
pub struct StoreMaintenance {
    stop: Option<MaintenanceStop>,
    thread: Option<JoinHandle<()>>,
}

impl StoreMaintenance {
    /// Starts the maintenance thread. It holds the lock of the data directory, so no collector
    /// starts meanwhile. `next_segment` is that of the checkpoint.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        store: Store,
        options: MaintenanceOptions,
        next_segment: u64,
        lock: Lock,
    ) -> std::io::Result<Self> {
        let flushed = Counters::default();
        flushed.checkpoint_segment.store(next_segment, Relaxed);
        let flushed = (Arc::new(flushed), Arc::default());
        let (stop, thread) = start(store, options, flushed, Arc::default(), Arc::new(lock))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for StoreMaintenance {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was already reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Lowers the priority of this thread below intake and observed services. On Linux each thread has
/// its own priority; on other systems a priority belongs to the process and stays unchanged.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!("store maintenance runs at normal priority: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use stroboscope_store::data_dir::{DataDir, DataDirError};

    use super::*;

    #[test]
    fn a_store_without_a_collector_is_retained() {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::create(directory.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let chunk = |hour: &str| {
            let hour = directory.path().join("kernel").join(hour);
            std::fs::create_dir_all(&hour).unwrap();
            let path = hour.join("chunk.parquet");
            std::fs::write(&path, "PAR1").unwrap();
            path
        };
        let old = chunk("date=2020-01-02/hour=03");
        let later = chunk("date=2100-01-02/hour=03");
        let options = MaintenanceOptions {
            settings: MaintenanceSettings {
                keep: Some(Duration::from_secs(3_600)),
                compacts: false,
                ..MaintenanceSettings::default()
            },
            interval: Duration::from_millis(5),
        };
        let lock = data.lock().unwrap();
        let maintenance = StoreMaintenance::start(store, options, 0, lock).unwrap();
        let since = Instant::now();
        while old.exists() && since.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!old.exists() && later.exists());
        assert!(matches!(data.lock(), Err(DataDirError::InUse(_))));
        drop(maintenance);
        assert!(data.lock().is_ok());
    }
}
