//! The burst gate: one flag that says whether anything is recorded, and the timer that flips it.
//!
//! A check is a relaxed load and a branch. The timer flips the flag a guard *early* at an opening and a guard *late*
//! at a close; the drain trims what was recorded to the exact window. See [`machine`] for when it flips.

pub(crate) mod foresight;
pub(crate) mod machine;
pub(crate) mod timer;
pub(crate) mod windows;

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

use crate::generation;

/// 0: nothing is recorded. Otherwise some of the bits below, and above them the number of sampled requests that
/// this process is working for.
static STATE: AtomicU32 = AtomicU32::new(0);

const OPEN: u32 = 1;
/// Requests are sampled at their ingress by ratio, so roots must be asked also between windows.
const DECIDE: u32 = 2;
const HOLD: u32 = 1 << 8;

/// Is there nothing to record for anybody? The one check at every annotation.
#[inline(always)]
#[must_use]
pub fn is_idle() -> bool {
    STATE.load(Relaxed) == 0
}

/// One recording at a time.
#[cfg(test)]
pub(crate) static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// OPEN, and FOLLOWED.
static PLAIN: AtomicU32 = AtomicU32::new(0);

/// Somebody wants to be told of changes of context, by markers.
const FOLLOWED: u32 = 2;

/// Is everything to be recorded, and nobody told of it? The fast path's one check.
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

/// The gate's state, read once per decision.
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

/// The exact window that the open flag belongs to, in ticks: the flag is up a guard before and after it.
static WINDOW_OPEN_TICKS: AtomicU64 = AtomicU64::new(0);
static WINDOW_CLOSE_TICKS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_window_ticks(open: u64, close: u64) {
    WINDOW_OPEN_TICKS.store(open, Relaxed);
    WINDOW_CLOSE_TICKS.store(close, Relaxed);
}

/// Is this tick inside the exact window? Asked once per request, where it begins.
pub(crate) fn is_inside_window(ticks: u64) -> bool {
    WINDOW_OPEN_TICKS.load(Relaxed) <= ticks && ticks < WINDOW_CLOSE_TICKS.load(Relaxed)
}

/// Windows opened so far, wrapping. Tells what was captured just before a window from what is older.
static OPENINGS: AtomicU32 = AtomicU32::new(0);

/// How many windows were opened so far, wrapping.
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

/// Is somebody there to read what is recorded? Without it, sampled requests are not recorded either.
static READ: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_read(read: bool) {
    READ.store(read, Relaxed);
}

/// See [`READ`]. Asked only where the gate is shut and the request is sampled.
#[inline]
pub(crate) fn is_read() -> bool {
    READ.load(Relaxed)
}

/// A forked child starts with nothing to record and nothing to wait for.
pub(crate) fn reset() {
    READ.store(false, Relaxed);
    PLAIN.fetch_and(!OPEN, Relaxed);
    STATE.store(0, Relaxed);
}

/// While it lives, this process works for a sampled request, and annotations must look at their context.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Of the process it was made in; a copy in a forked child holds nothing. `None`: nothing was running.
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

    /// The process it holds; `None`: it holds nothing.
    pub(crate) const fn generation(&self) -> Option<u32> {
        self.generation
    }

    /// The hold of this generation that was given to `mem::forget`, again.
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
