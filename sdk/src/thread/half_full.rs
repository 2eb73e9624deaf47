//! What is told when a ring is half full, so that the drain comes before it is full.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use tokio::sync::Notify;

/// Told when a ring is half full; null before somebody waits for that. One for each process of a line of forks, and kept:
/// a child must not touch its parent's, which may be locked and lists waiters on stacks that are gone.
static FILLING: AtomicPtr<Notify> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn tell_filling() {
    // SAFETY: null, or leaked by `filling`, so it lives for ever; only shared references are made of it.
    if let Some(filling) = unsafe { FILLING.load(Acquire).as_ref() } {
        filling.notify_one();
    }
}

/// What is told when some thread's ring is half full. For one waiter.
pub(crate) fn filling() -> &'static Notify {
    let made = FILLING.load(Acquire);
    // SAFETY: as above.
    if let Some(filling) = unsafe { made.as_ref() } {
        return filling;
    }
    let made: &'static Notify = Box::leak(Box::default());
    // Of two that are made at once one is lost; nobody but the shipping thread asks, of which there is one.
    FILLING.store(std::ptr::from_ref(made).cast_mut(), Release);
    made
}

/// For the child side of a fork.
pub(crate) fn forked() {
    FILLING.store(std::ptr::null_mut(), Release);
}
