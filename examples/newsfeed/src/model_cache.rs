//! The ranker's cache of models, in front of the store.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stroboscope::baggage::Provenance;
use stroboscope::tracked::{self, DataLinkage, Tracked, TrackedBuf};

use crate::key::MODELS;

/// Age at which a model expires and has to be read again.
const TTL: Duration = Duration::from_secs(60);

/// Models, one per group of users. The cache begins with the models that the ranker was shipped
/// with, so that the first answer need not wait for the store.
#[derive(Debug)]
pub(crate) struct Models {
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    model: u64,
    /// Provenance of the model's bytes in big-endian order.
    provenance: Provenance,
    since: Instant,
}

/// Name under which a group's model is tracked.
fn name(group: u64) -> String {
    format!("model of group {group}")
}

impl Models {
    pub(crate) fn new() -> Self {
        let shipped = Entry {
            model: 0,
            provenance: Provenance::default(),
            since: Instant::now(),
        };
        Self {
            entries: Mutex::new(vec![shipped; MODELS as usize]),
        }
    }

    /// Returns the model of `group`; `None` if it has expired or does not exist.
    pub(crate) fn get(&self, group: u64) -> Option<Tracked<u64>> {
        let entry = self.get_at(group, Instant::now())?;
        let bytes = entry.model.to_be_bytes();
        let bytes = tracked::receive(&entry.provenance, &name(group), bytes);
        Some(bytes.calculate::<_, DataLinkage>(|_| entry.model))
    }

    fn get_at(&self, group: u64, now: Instant) -> Option<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(group as usize)?;
        (now.saturating_duration_since(entry.since) < TTL).then(|| entry.clone())
    }

    /// Stores a model that was just read.
    pub(crate) fn put(&self, group: u64, model: Tracked<u64>) {
        let mut bytes = TrackedBuf::new();
        for byte in model.get().to_be_bytes() {
            bytes.push(model.map(|_| byte));
        }
        let provenance = tracked::send(&bytes, &name(group));
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(group as usize) {
            *entry = Entry {
                model: model.into_inner(),
                provenance,
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
        let get = |group, now| models.get_at(group, now).map(|entry| entry.model);
        assert_eq!(get(3, soon), Some(0));
        assert_eq!(get(3, soon + TTL), None);
        models.put(3, 99.into());
        assert_eq!(get(3, soon), Some(99));
        assert_eq!(get(4, soon), Some(0), "the others are left alone");
        assert_eq!(get(MODELS, soon), None);
    }
}
