//! The thread that takes care of the store while a collector runs: see [`stroboscope_store::care`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::own_traces::span_if;
use stroboscope::span;
use stroboscope_store::care::{Care, CareCounters, CareSettings};
use stroboscope_store::data_dir::Lock;
use stroboscope_store::flush::{Counters, now_ns};
use stroboscope_store::tables::Store;

/// How a running collector takes care of its store.
#[derive(Clone, Debug)]
pub struct CareOptions {
    /// What is done.
    pub settings: CareSettings,
    /// How often it is asked what there is to do.
    pub interval: Duration,
}

impl Default for CareOptions {
    fn default() -> Self {
        Self {
            settings: CareSettings::default(),
            interval: Duration::from_secs(30),
        }
    }
}

/// Ends the thread when it is dropped, in the midst of a merge if need be.
pub(super) type CareStop = mpsc::Sender<()>;

/// Starts it. It holds the folder's lock, as the flusher does.
pub(super) fn start(
    store: Store,
    options: CareOptions,
    (flushed, others_flushed): (Arc<Counters>, Arc<AtomicBool>),
    counters: Arc<CareCounters>,
    lock: Arc<Lock>,
) -> std::io::Result<(CareStop, JoinHandle<()>)> {
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
                tracing::error!(%error, "cannot take care of the store; trying again soon");
            }
        }
    };
    let thread = std::thread::Builder::new().name("store-care".to_owned());
    Ok((stop, thread.spawn(run)?))
}

/// Whoever takes batches in, or is observed on this machine, goes first. On Linux a priority is a thread's; elsewhere it
/// is its process's, and stays.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!("the store's care has the usual priority: {error}");
    }
}
