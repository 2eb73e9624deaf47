//! Whether a window may open before a request that goes out now is answered. If not, a request that nobody named needs no
//! name: to write it into the headers of a call, and to read it there, is most of what a closed gate costs a service.
//!
//! How long requests take is learned from what is recorded: the longest span of late, twice.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use super::is_read;
use crate::clock::ticks;

/// Assumed before anything was recorded, and the most that is ever looked ahead.
const AHEAD_MAX_NS: i64 = 60_000_000_000;
/// Of services whose requests are shorter than what a busy machine is late by.
const AHEAD_MIN_NS: i64 = 4_000_000;

/// From this tick on a window may open before a request that goes out is answered. 0: always; the largest: not until the
/// timer knows more.
static SOON_FROM_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Every request is to be named in its calls, whatever is recorded of it.
static NAMES_ALL: AtomicBool = AtomicBool::new(false);

/// The longest span of late; 0: none was seen to its end.
static LONGEST_NS: AtomicI64 = AtomicI64::new(0);

/// May something be recorded of a request that goes out now, where it goes?
#[inline]
pub(crate) fn opens_soon() -> bool {
    if !is_read() {
        return false;
    }
    match SOON_FROM_TICKS.load(Relaxed) {
        0 => true,
        u64::MAX => false,
        from => from <= ticks(),
    }
}

/// From this tick on, [`opens_soon`] says so; at once, where all requests are named.
pub(super) fn set_soon_from(ticks: u64) {
    let ticks = if NAMES_ALL.load(Relaxed) { 0 } else { ticks };
    SOON_FROM_TICKS.store(ticks, Relaxed);
}

/// Sets whether calls are named whatever is recorded; holds from the timer's next turn on.
pub(crate) fn set_names_all(names_all: bool) {
    NAMES_ALL.store(names_all, Relaxed);
}

/// Returns whether calls outside of requests are named as well.
pub(crate) fn names_all() -> bool {
    NAMES_ALL.load(Relaxed) && is_read()
}

/// A span took so long.
pub(crate) fn saw_span(took_ns: i64) {
    if took_ns > LONGEST_NS.load(Relaxed) {
        LONGEST_NS.fetch_max(took_ns, Relaxed);
    }
}

/// A span was not seen to end.
pub(crate) fn saw_span_without_end() {
    saw_span(AHEAD_MAX_NS);
}

/// How long before an opening requests are named that begin unseen. Asked at each turn of the timer; each time, what was longest
/// counts a little less.
pub(super) fn ahead_ns() -> i64 {
    let longest_ns = LONGEST_NS.load(Relaxed);
    // What is seen meanwhile may get lost; the next one like it is seen as well.
    LONGEST_NS.store(longest_ns - longest_ns / 256, Relaxed);
    match longest_ns {
        0 => AHEAD_MAX_NS,
        longest_ns => longest_ns
            .saturating_mul(2)
            .clamp(AHEAD_MIN_NS, AHEAD_MAX_NS),
    }
}
