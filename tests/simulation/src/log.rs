//! Events of a run, line by line.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock;

/// Lines of a run. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Adds a line, with the simulated time in ms and its source.
    pub(crate) fn add(&self, of: &str, line: impl Display) {
        let ms = clock::now_ns() / 1_000_000;
        lock(&self.0).push(format!("{ms:>6} {of}: {line}"));
    }

    pub(crate) fn text(&self) -> String {
        lock(&self.0).join("\n")
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
