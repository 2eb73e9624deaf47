//! Memo of merges: the index of each node, found by its parents.
//!
//! The memo is a hash table of buckets, each a cache line. Programs merge recent labels. So nodes
//! whose newer parents are successive labels share a bucket, and the next labels have the next
//! bucket, which the processor loads in advance. If a node's bucket is full, the node gets one by
//! the hash of both parents. A slot has some bits of its node's hash, so that a search rarely reads
//! another node. A search compares all slots of a bucket without a branch between them: such
//! branches cost more than the comparisons.

use alloc::vec::Vec;

use super::nodes::Nodes;
use crate::node::Node;

/// Slots of a bucket.
const SLOTS: usize = 16;
/// Buckets of a new table: 256 bytes, so that a small log moves its nodes less often.
const BUCKETS_MIN: usize = 4;
/// Number of successive labels whose nodes share a bucket. It equals the mean number of used slots
/// per bucket just before the table grows, so a chain of merges fills all buckets evenly.
const LABELS: u64 = 14;
/// Distance between the buckets that a search visits after the first one, as a 32-bit fraction of
/// the table. It is the golden ratio: any `N` such steps visit all buckets of a table of `N / 3`
/// buckets.
const DISTANCE: u32 = 0x9E37_79B9;

/// Slots, each with bits of the hash and, in its lowest bits, the index plus one. 0 is empty. Empty
/// slots follow the used ones.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u32; SLOTS]);

/// Indices of nodes by their parents.
#[derive(Debug)]
pub(super) struct Memo {
    buckets: Vec<Bucket>,
    used: usize,
    index_bits: u32,
    /// Distance between successive labels, as a 32-bit fraction of the table.
    step: u32,
}

/// Result of a search.
pub(super) enum Search {
    /// Index of the node.
    Found(u32),
    /// Bucket where the node would be; `usize::MAX` if there is none.
    Missing(usize),
}

impl Bucket {
    fn is_full(&self) -> bool {
        self.0[SLOTS - 1] != 0
    }

    fn used(&self) -> usize {
        let used: u32 = self.0.iter().map(|slot| u32::from(*slot != 0)).sum();
        used as usize
    }

    /// Finds the node in the slots whose hash bits equal those of `tag`.
    #[inline]
    fn find(&self, node: Node, tag: u32, hash_bits: u32, nodes: &Nodes) -> Option<u32> {
        let is_equal = |slot: &u32| (slot ^ tag) & hash_bits == 0;
        // Bitwise or of the numbers, from 1, of all equal slots, usually one or none.
        let number = (1_u32..).zip(&self.0).fold(0, |numbers, (number, slot)| {
            numbers | if is_equal(slot) { number } else { 0 }
        });
        let likely = self.0.get((number as usize).checked_sub(1)?);
        let check = |slot: &u32| {
            let index = (slot ^ tag).checked_sub(1)?;
            (nodes.get(index) == Some(node)).then_some(index)
        };
        likely.and_then(check).or_else(|| {
            let mut equal = self.0.iter().filter(|slot| is_equal(slot));
            equal.find_map(check)
        })
    }
}

impl Memo {
    /// Creates a memo for a maximum number of nodes.
    pub(super) fn new(nodes_max: u32) -> Self {
        Self {
            buckets: Vec::new(),
            used: 0,
            index_bits: u32::BITS - nodes_max.min(u32::MAX >> 1).leading_zeros(),
            step: 0,
        }
    }

    /// Finds a node.
    #[inline]
    pub(super) fn find(&self, node: Node, hash: u64, nodes: &Nodes) -> Search {
        let (tag, hash_bits) = (self.slot(hash, 0), u32::MAX << self.index_bits);
        for place in self.places(node, hash) {
            let Some(bucket) = self.buckets.get(place) else {
                break;
            };
            if let Some(index) = bucket.find(node, tag, hash_bits, nodes) {
                return Search::Found(index);
            }
            if !bucket.is_full() {
                return Search::Missing(place);
            }
        }
        Search::Missing(usize::MAX)
    }

    /// Returns the buckets that may hold a node. A new node goes to the first that is not full.
    #[inline]
    fn places(&self, node: Node, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let len = self.buckets.len();
        let mut next = (hash >> 32) as u32;
        let far = core::iter::repeat_with(move || {
            let place = scale(next, len);
            next = next.wrapping_add(DISTANCE);
            place
        });
        let near = scale(node.newer().wrapping_mul(self.step), len);
        core::iter::once(near).chain(far.take(3 * len))
    }

    #[inline]
    fn slot(&self, hash: u64, index_plus_one: u32) -> u32 {
        ((hash >> 40) as u32) << self.index_bits | index_plus_one
    }

    /// Adds the last node of the log to the bucket that a search returned. Returns `None` if the
    /// table cannot grow and has no room.
    #[inline]
    pub(super) fn insert(&mut self, bucket: usize, hash: u64, nodes: &Nodes) -> Option<()> {
        let len = self.buckets.len() * SLOTS;
        if (self.used + 1) * 32 > len * 28 {
            if self.grow(nodes).is_some() {
                return Some(());
            }
            if (self.used + 1) * 16 > len * 15 {
                return None;
            }
        }
        let slot = self.slot(hash, nodes.len());
        let bucket = self.buckets.get_mut(bucket)?;
        let place = bucket.used();
        *bucket.0.get_mut(place)? = slot;
        self.used += 1;
        Some(())
    }

    /// Enlarges the table by three quarters, and adds all nodes again, in their order in memory.
    /// Doubling would leave the table emptier: a node would take up to 17.1 bytes. Smaller steps
    /// would move nodes more often.
    #[cold]
    fn grow(&mut self, nodes: &Nodes) -> Option<()> {
        let len = (self.buckets.len() * 7).div_ceil(4).max(BUCKETS_MIN);
        let (mut buckets, mut used) = (Vec::new(), Vec::new());
        buckets.try_reserve_exact(len).ok()?;
        // `used` avoids reading a bucket right after a write, which would wait for it: 20 ns a
        // merge.
        used.try_reserve_exact(len).ok()?;
        buckets.resize(len, Bucket([0; SLOTS]));
        used.resize(len, 0_u8);
        (self.buckets, self.used) = (buckets, 0);
        self.step = ((1 << 32) / (LABELS * len as u64)) as u32;
        for index in 0..nodes.len() {
            let node = nodes.get(index)?;
            let hash = node.hash();
            let slot = self.slot(hash, index + 1);
            let is_free = |place: &usize| usize::from(used[*place]) < SLOTS;
            let place = self.places(node, hash).find(is_free)?;
            self.buckets[place].0[usize::from(used[place])] = slot;
            used[place] += 1;
            self.used += 1;
        }
        Some(())
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }
}

/// Scales a 32-bit fraction to the numbers below `end`.
#[inline]
fn scale(fraction: u32, end: usize) -> usize {
    ((u64::from(fraction) * end as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::label::Label;

    #[test]
    fn a_search_visits_all_buckets() {
        let node = Node::union(Label::input(3), Label::input(5));
        for len in (1..80).chain(if cfg!(miri) { 0..0 } else { 4_000..4_010 }) {
            let mut memo = Memo::new(1);
            memo.buckets = vec![Bucket([1; SLOTS]); len];
            for hash in [0, 0x1234_5678_9ABC_DEF0, u64::MAX] {
                let mut visited = vec![false; len];
                memo.places(node, hash)
                    .for_each(|place| visited[place] = true);
                assert!(!visited.contains(&false), "{len} {hash:x}");
            }
        }
    }
}
