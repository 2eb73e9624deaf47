//! Systems other than Linux, with the clocks of the standard library and without markers.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use stroboscope_proto::v1;

/// False, because only recorders for Linux read markers.
pub(crate) const HAS_MARKERS: bool = false;

/// Returns nanoseconds since the Unix epoch.
pub(crate) fn wall_ns() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => nanoseconds(since),
        Err(before) => -nanoseconds(before.duration()),
    }
}

/// Returns nanoseconds since the first call.
pub(crate) fn monotonic_ns() -> i64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    nanoseconds(FIRST.get_or_init(Instant::now).elapsed())
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns `None`, because the state of the kernel's clock is unknown.
pub(crate) fn kernel_clock() -> Option<v1::KernelClock> {
    None
}

/// Does nothing. The gate measures how late its timers are, and opens correspondingly earlier.
pub(crate) fn ask_for_exact_timers() {}

/// Returns `None`, because there is no common way to measure the resident memory.
pub(crate) fn resident_bytes() -> Option<u64> {
    None
}

/// Returns false, because no recorder announces itself on these systems.
pub(crate) fn is_locked(_: &Path) -> bool {
    false
}

/// Returns 0; only markers use the id.
#[inline]
pub(crate) fn thread_id() -> u32 {
    0
}

/// Does nothing, because no recorder would see the marker.
#[inline]
pub(crate) fn mark(_: [u64; 6]) {}
