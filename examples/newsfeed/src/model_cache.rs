//! The ranker's cache of models, in front of the store.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::key::MODELS;

/// Age at which a model expires and has to be read again.
const TTL: Duration = Duration::from_secs(60);

/// Models, one per group of users. The cache begins with the models that the ranker was shipped
/// with, so that the first answer need not wait for the store.
#[derive(Debug)]
pub(crate) struct Models {
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    model: u64,
    since: Instant,
}

impl Models {
    pub(crate) fn new() -> Self {
        let shipped = Entry {
            model: 0,
            since: Instant::now(),
        };
        Self {
            entries: Mutex::new(vec![shipped; MODELS as usize]),
        }
    }

    /// Returns the model of `group`; `None` if it has expired or does not exist.
    pub(crate) fn get(&self, group: u64) -> Option<u64> {
        self.get_at(group, Instant::now())
    }

    fn get_at(&self, group: u64, now: Instant) -> Option<u64> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(group as usize)?;
        (now.saturating_duration_since(entry.since) < TTL).then_some(entry.model)
    }

    /// Stores a model that was just read.
    pub(crate) fn put(&self, group: u64, model: u64) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(group as usize) {
            *entry = Entry {
                model,
                since: Instant::now(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_until_a_model_is_too_old() {
        let models = Models::new();
        let soon = Instant::now();
        assert_eq!(models.get_at(3, soon), Some(0));
        assert_eq!(models.get_at(3, soon + TTL), None);
        models.put(3, 99);
        assert_eq!(models.get_at(3, soon), Some(99));
        assert_eq!(models.get_at(4, soon), Some(0), "the others are left alone");
        assert_eq!(models.get_at(MODELS, soon), None);
    }
}
