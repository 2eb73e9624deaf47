//! Tracks whether any baggage named a tradeoff rate to explore; if none did, no request's baggage
//! needs to be searched.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Prefix of baggage keys that name a tradeoff point. The value is the tradeoff rate that the
/// request tries there: `explore.ranker.candidates` = 0.5.
pub const EXPLORE: &str = "explore.";

static EXPLORING: AtomicBool = AtomicBool::new(false);

/// Records that baggage has this key, if the key begins with [`EXPLORE`].
pub(super) fn seen(key: &str) {
    if key.starts_with(EXPLORE) && !EXPLORING.load(Relaxed) {
        EXPLORING.store(true, Relaxed);
    }
}

/// Reports whether this process ever had baggage with a key that begins with [`EXPLORE`].
#[cfg(feature = "tradeoff")]
#[inline]
pub(crate) fn is_exploring() -> bool {
    EXPLORING.load(Relaxed)
}
