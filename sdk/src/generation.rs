//! Which process of a line of forks this is. What was made in another one is recognised by it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Forks between the process that loaded the SDK and this one.
pub(crate) fn current() -> u32 {
    FORKS.load(Relaxed)
}

/// In a forked child: what was made before belongs to the parent.
pub(crate) fn advance() {
    FORKS.fetch_add(1, Relaxed);
}
