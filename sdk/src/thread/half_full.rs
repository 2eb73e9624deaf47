//! Notification that a ring is half full, so that the drain reads it before it is full.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use tokio::sync::Notify;

/// Notification for the drain; null before the drain waits for it. Each process of a line of forks
/// that records has its own, which is leaked. A child must not access its parent's, which may be
/// locked and may list waiters of threads that the child lacks.
static FILLING: AtomicPtr<Notify> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn tell_filling() {
    // SAFETY: null, or leaked by `filling`, so it lives forever; only shared references to it
    // exist.
    if let Some(filling) = unsafe { FILLING.load(Acquire).as_ref() } {
        filling.notify_one();
    }
}

/// Returns the notification that a ring is half full. Supports one waiter.
pub(crate) fn filling() -> &'static Notify {
    let made = FILLING.load(Acquire);
    // SAFETY: as above.
    if let Some(filling) = unsafe { made.as_ref() } {
        return filling;
    }
    let made: &'static Notify = Box::leak(Box::default());
    // If two are created at once, one is lost; but only the shipping thread calls this, and there
    // is one.
    FILLING.store(std::ptr::from_ref(made).cast_mut(), Release);
    made
}

/// Resets the notification in the child of a fork.
pub(crate) fn forked() {
    FILLING.store(std::ptr::null_mut(), Release);
}
