//! Whether any request was ever told to explore: others need not look into what they carry.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Before a tradeoff point's name, the key of the share that a request has to give up there:
/// `explore.ranker.candidates` = 0.5.
pub const EXPLORE: &str = "explore.";

static EXPLORING: AtomicBool = AtomicBool::new(false);

/// An entry with this key came with a request.
pub(super) fn seen(key: &str) {
    if key.starts_with(EXPLORE) && !EXPLORING.load(Relaxed) {
        EXPLORING.store(true, Relaxed);
    }
}

/// Whether a request of this process was told to explore.
#[cfg(feature = "tradeoff")]
#[inline]
pub(crate) fn is_exploring() -> bool {
    EXPLORING.load(Relaxed)
}
