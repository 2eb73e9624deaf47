//! Thread that maintains the store while a collector or a recorder runs: see
//! [`stroboscope_store::maintenance`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::self_tracing::span_if;
use stroboscope::span;
use stroboscope_store::data_dir::{DataDir, DataDirError, Lock};
use stroboscope_store::flush::{Counters, now_ns};
use stroboscope_store::ledger::Checkpoint;
use stroboscope_store::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use stroboscope_store::tables::Store;

/// Options of store maintenance.
#[derive(Clone, Debug)]
pub struct MaintenanceOptions {
    /// Settings of each round.
    pub settings: MaintenanceSettings,
    /// Pause before each round.
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

/// Stop signal of the thread: dropping its last clone ends the thread, even during a merge.
pub(super) type MaintenanceStop = mpsc::Sender<()>;

/// Starts the maintenance thread. `lock` returns the lock of the data directory, which the thread
/// holds for a round, and the next segment of the checkpoint. If it returns `None`, the thread
/// leaves out the round.
pub(super) fn start<L>(
    store: Store,
    options: MaintenanceOptions,
    lock: impl Fn() -> Option<(L, u64)> + Send + 'static,
    others_flushed: Arc<AtomicBool>,
    counters: Arc<MaintenanceCounters>,
) -> std::io::Result<(MaintenanceStop, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel::<()>();
    let mut care = Care::of(store, options.settings, counters);
    let run = move || {
        step_back();
        loop {
            match stopped.recv_timeout(options.interval) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some((_lock, next_segment)) = lock() else {
                continue;
            };
            let goes_on = || stopped.try_recv() == Err(TryRecvError::Empty);
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

/// Returns a function that returns the lock of a collector for a round. The collector holds the
/// lock as long as it runs.
pub(super) fn held(
    lock: Arc<Lock>,
    flushed: Arc<Counters>,
) -> impl Fn() -> Option<(Arc<Lock>, u64)> + Send + 'static {
    move || {
        let next_segment = flushed.checkpoint_segment.load(Relaxed);
        Some((Arc::clone(&lock), next_segment))
    }
}

/// Returns the lock of a directory and the next segment of its checkpoint. Returns `None` and logs
/// an error if either fails. Also returns `None` if the lock is in use, for example by a reader
/// that converts the log, or by a collector.
fn lock_for_round(data: &DataDir) -> Option<(Lock, u64)> {
    let lock = match data.lock() {
        Ok(lock) => lock,
        Err(DataDirError::InUse(_)) => return None,
        Err(error) => {
            tracing::error!(%error, "cannot maintain the store; trying again soon");
            return None;
        }
    };
    match Checkpoint::load(&**data.disk(), data.root()) {
        Ok(checkpoint) => Some((lock, checkpoint.next_segment)),
        Err(error) => {
            tracing::error!(%error, "cannot maintain the store; trying again soon");
            None
        }
    }
}

/// Maintenance of a store while no collector uses it. Dropping it ends the maintenance.
#[derive(Debug)]
pub struct StoreMaintenance {
    stop: Option<MaintenanceStop>,
    thread: Option<JoinHandle<()>>,
}

impl StoreMaintenance {
    /// Starts the maintenance thread. It holds the lock of the data directory only for the time of
    /// a round, so that a reader can convert the log of a killed collector between rounds.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        data: DataDir,
        store: Store,
        options: MaintenanceOptions,
    ) -> std::io::Result<Self> {
        let lock = move || lock_for_round(&data);
        let (stop, thread) = start(store, options, lock, Arc::default(), Arc::default())?;
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

/// Gives this thread the nice value 19 on Linux, where each thread has its own, so that intake and
/// observed services usually come first. Does nothing on other systems.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!("store maintenance runs at normal priority: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

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
        let is_there = |path: &Path, millis| {
            let since = Instant::now();
            while path.exists() && since.elapsed() < Duration::from_millis(millis) {
                std::thread::sleep(Duration::from_millis(5));
            }
            path.exists()
        };
        let lock = data.lock().unwrap();
        let maintenance = StoreMaintenance::start(data.clone(), store, options).unwrap();
        assert!(is_there(&old, 100), "another program has the lock");
        drop(lock);
        assert!(!is_there(&old, 30_000) && later.exists());
        // The lock is free between the rounds.
        let since = Instant::now();
        while data.lock().is_err() {
            assert!(since.elapsed() < Duration::from_secs(30));
        }
        // Later rounds go on.
        let old = chunk("date=2020-01-02/hour=04");
        assert!(!is_there(&old, 30_000));
        drop(maintenance);
        assert!(data.lock().is_ok());
    }
}
