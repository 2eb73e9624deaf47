//! JSON whose tracked values keep labels.

mod reader;
mod writer;

use std::cell::RefCell;
use std::thread::LocalKey;

pub use reader::from_json;
pub use writer::to_json;

/// State of a thread's running call. An inner call replaces the state until that call ends.
type Slot<T> = LocalKey<RefCell<Option<T>>>;

/// Restores the state of the outer call, also after a panic.
struct Scope<T: 'static> {
    slot: &'static Slot<T>,
    outer: Option<T>,
}

impl<T> Scope<T> {
    fn enter(slot: &'static Slot<T>, state: Option<T>) -> Self {
        let outer = replace(slot, state);
        Self { slot, outer }
    }

    /// Ends the call and returns its state.
    fn finish(self) -> Option<T> {
        replace(self.slot, None)
    }
}

impl<T> Drop for Scope<T> {
    fn drop(&mut self) {
        replace(self.slot, self.outer.take());
    }
}

fn replace<T>(slot: &'static Slot<T>, state: Option<T>) -> Option<T> {
    slot.try_with(|slot| slot.replace(state)).ok().flatten()
}
