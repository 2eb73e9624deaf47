//! Whether somebody follows what threads work for: what the fast path asks, and the markers set.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Are markers written now? The one check at every change of context.
pub(crate) static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread's last marker said a request: its end must be said, too, even if nobody listens any more.
    pub(crate) static SAID: Cell<bool> = const { Cell::new(false) };
}

/// Does somebody want to be told of every change of this thread's current context?
#[inline(always)]
pub(crate) fn is_followed() -> bool {
    // Not `||`: one branch, and nothing is kept in registers meanwhile.
    ON.load(Relaxed) | SAID.get()
}
