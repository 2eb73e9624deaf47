//! Index of the places of values in the store's file, by key.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cpu::Cpu;
use crate::fault::{FaultPoint, Faults};
use crate::random::mix;

const SHARDS: usize = 8;

/// Cost of a lookup while the lock is held: counting the read and checking the entry.
const LOOKUP_TIME: Duration = Duration::from_micros(30);

/// Place of a value in the store's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u32,
}

/// Sharded index with one lock per shard.
///
/// Keys are sharded by their first part, a mistake that real systems make. All `story/…` keys are
/// in one shard, so the candidate generators, which run at the same time, contend for its lock.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<Mutex<Shard>>,
    cpu: Cpu,
    count: usize,
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    reads: u64,
    checksum: u64,
}

impl Index {
    /// Creates an index. `is_one` puts all keys into one shard, as the fault `store.one-shard`
    /// does.
    pub(crate) fn new(
        places: impl IntoIterator<Item = (String, Place)>,
        cpu: Cpu,
        is_one: bool,
    ) -> Self {
        let count = if is_one { 1 } else { SHARDS };
        let mut shards: Vec<Shard> = (0..count).map(|_| Shard::default()).collect();
        for (key, place) in places {
            let shard = shard_of(&key, count);
            shards[shard].places.insert(
                key,
                Entry {
                    place,
                    reads: 0,
                    checksum: 0,
                },
            );
        }
        Self {
            shards: shards.into_iter().map(Mutex::new).collect(),
            cpu,
            count,
        }
    }

    /// Returns the shard of a key.
    pub(crate) fn shard(&self, key: &str) -> usize {
        shard_of(key, self.count)
    }

    /// Looks up `key` under the lock of its shard. Returns `None` if there is no such key.
    pub(crate) fn find(&self, key: &str, faults: &Faults) -> Option<Place> {
        let lock = &self.shards[self.shard(key)];
        // After a panic of another reader, at worst a read count or checksum is out of date.
        let mut shard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // The span begins with the lock held: it excludes the wait for the lock.
        let _held = stroboscope::span!("lock", shard = self.shard(key)).entered();
        let held_longer = faults.draw(FaultPoint::StoreLock);
        if !held_longer.is_zero() {
            std::thread::sleep(held_longer);
        }
        let entry = shard.places.get_mut(key)?;
        entry.reads += 1;
        entry.checksum = self.cpu.work(LOOKUP_TIME, entry.checksum ^ entry.reads);
        Some(entry.place)
    }
}

fn shard_of(key: &str, count: usize) -> usize {
    let first = key.split('/').next().unwrap_or(key);
    let hash = first
        .bytes()
        .fold(0_u64, |hash, byte| mix(hash ^ u64::from(byte)));
    (hash % count as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

    #[test]
    fn finds_what_it_was_given() {
        let place = |offset_bytes| Place {
            offset_bytes,
            len_bytes: 9,
        };
        let index = Index::new(
            [
                ("user/1/name".to_owned(), place(0)),
                ("a".to_owned(), place(9)),
            ],
            Cpu::calibrate(),
            false,
        );
        let faults = Faults::default();
        assert_eq!(index.find("user/1/name", &faults), Some(place(0)));
        assert_eq!(index.find("a", &faults), Some(place(9)));
        assert_eq!(index.find("user/1", &faults), None);
        assert_eq!(index.find("", &faults), None);
    }

    #[test]
    fn stories_share_one_shard_and_properties_another() {
        let shards = |prefix: &str| {
            let mut shards: Vec<usize> = key::all()
                .filter(|key| key.starts_with(prefix))
                .map(|key| shard_of(&key, SHARDS))
                .collect();
            shards.dedup();
            shards
        };
        assert_eq!(shards("story/").len(), 1);
        assert_eq!(shards("user/").len(), 1);
        assert_ne!(shards("story/"), shards("user/"));
    }
}
