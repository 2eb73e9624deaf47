//! Burst gate: a flag that shows whether anything is recorded, and the timer that flips it.
//!
//! A check is a relaxed load and a branch. The timer raises the flag one guard time *early* at an
//! opening and lowers it one guard time *late* at a close. The drain trims the records to the exact
//! window. See [`schedule`] for the times at which it flips.

pub(crate) mod foresight;
pub(crate) mod schedule;
pub(crate) mod timer;
pub(crate) mod window_log;

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

use crate::generation;

/// Recording state: 0 means that nothing is recorded. Otherwise it consists of some of the bits
/// below and, above them, the number of [`Hold`]s.
static STATE: AtomicU32 = AtomicU32::new(0);

const OPEN: u32 = 1;
/// Bit set if requests are sampled at their ingress by ratio, so that roots must decide between
/// windows, too.
const DECIDE: u32 = 2;
const HOLD: u32 = 1 << 8;

/// Reports whether no annotation can record anything. If so, an annotation checks nothing else.
#[inline(always)]
#[must_use]
pub fn is_idle() -> bool {
    STATE.load(Relaxed) == 0
}

/// Serializes tests that record.
#[cfg(test)]
pub(crate) static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Bits that the fast path checks: `OPEN` and `FOLLOWED`.
static PLAIN: AtomicU32 = AtomicU32::new(0);

/// Bit of `PLAIN` that is set while changes of context must be marked.
const FOLLOWED: u32 = 2;

/// Reports whether everything is recorded and no markers are needed, as the fast path requires for
/// requests that are not sampled.
#[inline(always)]
pub(crate) fn is_plainly_open() -> bool {
    PLAIN.load(Relaxed) == OPEN
}

pub(crate) fn set_followed(followed: bool) {
    if followed {
        PLAIN.fetch_or(FOLLOWED, Relaxed);
    } else {
        PLAIN.fetch_and(!FOLLOWED, Relaxed);
    }
}

/// Snapshot of the gate's state, read once per decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(u32);

impl Now {
    #[inline]
    pub(crate) fn read() -> Self {
        Self(STATE.load(Relaxed))
    }

    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    #[inline]
    pub(crate) fn asks_roots(self) -> bool {
        self.0 & DECIDE != 0
    }
}

/// Exact window in ticks, without the guard times at both ends.
static WINDOW_OPEN_TICKS: AtomicU64 = AtomicU64::new(0);
static WINDOW_CLOSE_TICKS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_window_ticks(open: u64, close: u64) {
    WINDOW_OPEN_TICKS.store(open, Relaxed);
    WINDOW_CLOSE_TICKS.store(close, Relaxed);
}

/// Reports whether a tick is inside the exact window. Called where a request begins.
pub(crate) fn is_inside_window(ticks: u64) -> bool {
    WINDOW_OPEN_TICKS.load(Relaxed) <= ticks && ticks < WINDOW_CLOSE_TICKS.load(Relaxed)
}

/// Number of times that the gate opened so far, wrapping. It separates contexts captured just
/// before a window from older ones.
static OPENINGS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of times that the gate opened so far, wrapping.
pub(crate) fn openings() -> u32 {
    OPENINGS.load(Relaxed)
}

pub(crate) fn set_open(open: bool) {
    if open {
        OPENINGS.fetch_add(1, Relaxed);
        STATE.fetch_or(OPEN, Release);
        PLAIN.fetch_or(OPEN, Release);
    } else {
        PLAIN.fetch_and(!OPEN, Release);
        STATE.fetch_and(!OPEN, Release);
    }
}

pub(crate) fn set_decide(decide: bool) {
    if decide {
        STATE.fetch_or(DECIDE, Release);
    } else {
        STATE.fetch_and(!DECIDE, Release);
    }
}

/// True while a drain reads the records. Otherwise sampled requests are not recorded either.
static READ: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_read(read: bool) {
    READ.store(read, Relaxed);
}

/// Reports whether a drain reads the records.
#[inline]
pub(crate) fn is_read() -> bool {
    READ.load(Relaxed)
}

/// Resets the gate in a forked child, which records nothing until it calls `init`.
pub(crate) fn reset() {
    READ.store(false, Relaxed);
    PLAIN.fetch_and(!OPEN, Relaxed);
    STATE.store(0, Relaxed);
}

/// Registration of work for a sampled request. Until it is dropped, annotations check their context
/// even between windows.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Generation of the process that created it; a copy in a forked child has no effect. `None` if
    /// nothing was running.
    generation: Option<u32>,
}

impl Hold {
    pub(crate) fn new() -> Self {
        if !is_read() {
            return Self { generation: None };
        }
        STATE.fetch_add(HOLD, Relaxed);
        Self {
            generation: Some(generation::current()),
        }
    }

    /// Returns the generation of the process in which the hold counts, or `None` if nothing was
    /// running when it was created.
    pub(crate) const fn generation(&self) -> Option<u32> {
        self.generation
    }

    /// Recreates the hold of this generation that was passed to `mem::forget`.
    pub(crate) const fn forgotten(generation: u32) -> Self {
        Self {
            generation: Some(generation),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.generation == Some(generation::current()) {
            STATE.fetch_sub(HOLD, Relaxed);
        }
    }
}
