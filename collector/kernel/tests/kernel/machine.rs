//! Checks the machine's capabilities, and allows one test of this binary at a time to record. Other
//! recorders may run on the machine.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stroboscope_kernel::{Recorder, StartError};
use stroboscope_kernel_model::{Facility, Settings};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns a lock that lets one test at a time record, because every recorder adds its own cost.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the file whose lock announces the recorders of this process. No other process locks it,
/// so services of these tests do not react to other recorders of the machine.
pub(crate) fn announced_by() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recorder-{}", std::process::id()))
}

/// Starts a recorder, or reports that the test is skipped. Fails on a machine that should support
/// recording.
pub(crate) fn start(test: &str, settings: &Settings) -> Option<Recorder> {
    let settings = Settings {
        announced_by: announced_by(),
        ..settings.clone()
    };
    match Recorder::start(&settings) {
        Ok(recorder) => Some(recorder),
        Err(error) if is_not_allowed(&error, settings.facility) => {
            eprintln!("SKIPPED: {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}"),
    }
}

pub(crate) fn is_not_allowed(error: &StartError, facility: Facility) -> bool {
    match error {
        StartError::Privilege { .. } => true,
        StartError::Ebpf(text) => {
            // A sandbox may refuse what capabilities allow.
            !Path::new("/sys/kernel/btf/vmlinux").exists() || text.contains("not permitted")
        }
        StartError::Tracefs { .. } => {
            facility == Facility::Tracefs && !Path::new("/sys/kernel/tracing/instances").exists()
        }
        _ => false,
    }
}
