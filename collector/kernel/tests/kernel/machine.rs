//! What the machine allows, and one recorder at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stroboscope_kernel::{Recorder, Settings, StartError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Tests of this binary disturb each other: two recorders cost twice as much.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recorder, or the test is skipped aloud.
pub(crate) fn start(test: &str, settings: &Settings) -> Option<Recorder> {
    match Recorder::start(settings) {
        Ok(recorder) => Some(recorder),
        Err(error @ (StartError::Privilege { .. } | StartError::Ebpf(_) | StartError::Tracefs { .. })) => {
            eprintln!("SKIPPED: {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}"),
    }
}
