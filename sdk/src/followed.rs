//! Flags that enable markers for changes of context. [`marker`](crate::marker) sets them. Changes
//! of context outside the fast path read them.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// True while markers are written.
pub(crate) static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True if, by its last marker, this thread works for a request. The end of that work must be
    /// marked even if no recorder listens any more.
    pub(crate) static SAID: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether changes of this thread's current context must be marked.
#[inline(always)]
pub(crate) fn is_followed() -> bool {
    // Uses `|` instead of `||`: one branch, and no value is kept in a register across it.
    ON.load(Relaxed) | SAID.get()
}
