//! Predicts whether a window may open before an outgoing call returns. If not, a request without
//! ids needs none. Writing ids into the headers of a call, and reading them at the callee, is most
//! of the cost of a closed gate.
//!
//! It assumes that a call takes at most twice as long as the longest recent span in the records,
//! within the limits below.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use super::is_read;
use crate::clock::ticks;

/// Maximum time to look ahead, which is also used until the drain has seen a span.
const AHEAD_MAX_NS: i64 = 60_000_000_000;
/// Minimum time to look ahead, for services whose requests are shorter than the lateness of a busy
/// machine.
const AHEAD_MIN_NS: i64 = 4_000_000;

/// First tick from which a window may open before an outgoing call returns. 0 means always; the
/// largest value means never until the timer's next turn.
static SOON_FROM_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);

/// True if all calls get ids, even those of unrecorded requests.
static NAMES_ALL: AtomicBool = AtomicBool::new(false);

/// Duration of the longest recent span in ns, which decays at each turn of the timer; 0 if no span
/// was seen.
static LONGEST_NS: AtomicI64 = AtomicI64::new(0);

/// Reports whether a window may be open before an outgoing call returns. Also returns true if all
/// calls get ids. Returns false while no drain reads the records.
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

/// Sets the tick from which [`opens_soon`] returns true. If all calls get ids, [`opens_soon`]
/// returns true at once.
pub(super) fn set_soon_from(ticks: u64) {
    let ticks = if NAMES_ALL.load(Relaxed) { 0 } else { ticks };
    SOON_FROM_TICKS.store(ticks, Relaxed);
}

/// Sets whether all calls get ids. [`opens_soon`] follows at the timer's next turn.
pub(crate) fn set_names_all(names_all: bool) {
    NAMES_ALL.store(names_all, Relaxed);
}

/// Reports whether all calls get ids, also those outside of requests.
pub(crate) fn names_all() -> bool {
    NAMES_ALL.load(Relaxed) && is_read()
}

/// Records the duration of a span in ns, if it is the longest recent one.
pub(crate) fn saw_span(took_ns: i64) {
    if took_ns > LONGEST_NS.load(Relaxed) {
        LONGEST_NS.fetch_max(took_ns, Relaxed);
    }
}

/// Records a span whose end was not seen, as one of maximum duration.
pub(crate) fn saw_span_without_end() {
    saw_span(AHEAD_MAX_NS);
}

/// Returns how many ns before an opening the calls of unrecorded requests begin to carry ids. This
/// is twice the longest recent duration, clamped to [`AHEAD_MIN_NS`] and [`AHEAD_MAX_NS`]; the
/// maximum if no span was seen. Called at each turn of the timer; each call reduces the longest
/// duration a little.
pub(super) fn ahead_ns() -> i64 {
    let longest_ns = LONGEST_NS.load(Relaxed);
    // A concurrent update may get lost; the next long span repeats it.
    LONGEST_NS.store(longest_ns - longest_ns / 256, Relaxed);
    match longest_ns {
        0 => AHEAD_MAX_NS,
        longest_ns => longest_ns
            .saturating_mul(2)
            .clamp(AHEAD_MIN_NS, AHEAD_MAX_NS),
    }
}
