//! Generation of this process, which identifies state that another process created: the number of
//! forks between the process that first started recording and this one.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns the generation of this process.
pub(crate) fn current() -> u32 {
    FORKS.load(Relaxed)
}

/// Starts a new generation in a forked child; earlier state belongs to the parent.
pub(crate) fn advance() {
    FORKS.fetch_add(1, Relaxed);
}
