//! The rings that are read. They outlive the drain that reads them: a thread keeps its ring when recording stops and
//! starts again, and when it forks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::record;
use crate::ring::Consumer;
use crate::thread::{self, RINGS};

/// All rings a drain has seen.
pub(crate) struct Known {
    rings: Vec<Consumer>,
    /// In a forked child: the one thread that came over, until the rings of the others are forgotten.
    survivor: Option<ThreadId>,
}

impl Known {
    /// For the child side of a fork.
    pub(crate) fn forked(&mut self) {
        self.survivor = Some(std::thread::current().id());
    }
}

static KNOWN: Mutex<Known> = Mutex::new(Known { rings: Vec::new(), survivor: None });

pub(crate) fn lock() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets what is in the rings: recording starts anew.
///
/// In the thread that came over a fork, this also forgets the rings of threads that exist in the parent only. Their
/// memory stays shared with the parent, untouched, and no longer counts against the bound. (In any other thread there
/// is no telling which ring belongs to whom, and all are kept.)
pub(crate) fn start_anew() {
    let mut known = lock();
    let known = &mut *known;
    known.rings.extend(RINGS.take_made());
    for ring in &mut known.rings {
        skip(ring);
    }
    if known.survivor.take() == Some(std::thread::current().id()) {
        // Whose ring is this thread's own? The one in which a record of its appears.
        let probed = thread::write(|place| record::write_end(place, 0, 0, 0));
        known.rings.extend(RINGS.take_made());
        known.rings.retain_mut(|ring| {
            let own = probed && skip(ring);
            if !own {
                RINGS.forget(ring);
            }
            own
        });
    }
}

/// Was there anything?
fn skip(ring: &mut Consumer) -> bool {
    let mut found = false;
    ring.read(|words| {
        found = true;
        record::length(words)
    });
    found
}

/// Appends the words of all records there are to `raw`.
pub(crate) fn read_all(raw: &mut Vec<u64>) {
    let mut known = lock();
    known.rings.extend(RINGS.take_made());
    for ring in &mut known.rings {
        ring.read(|words| {
            let length = record::length(words);
            raw.extend_from_slice(&words[..length]);
            length
        });
    }
}

/// Lets go of rings whose thread is gone.
pub(crate) fn forget_finished() {
    lock().rings.retain(|ring| {
        let finished = ring.is_finished();
        if finished {
            RINGS.forget(ring);
        }
        !finished
    });
}

/// Rings that are read.
#[cfg(test)]
pub(crate) fn count() -> usize {
    lock().rings.len()
}
