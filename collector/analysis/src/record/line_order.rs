//! The order in which the lines of an event log arrived, and what takes its place where it says nothing.

use super::EventRecord;
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// How many pairs of events are remembered.
const PAIRS_MAX: usize = 1 << 16;
/// Events of one instant that are told apart.
const FOLLOWERS_MAX: usize = 8;

/// What the order says in which the lines of an event log arrived.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum LineOrder {
    /// The order of control, unless timestamps contradict it by more than their bounds.
    #[default]
    OfControl,
    /// Nothing: lines were merged late or shuffled. Timestamps decide, and what usually follows what where they are equal.
    Unknown(Arc<Successors>),
}

/// How often an event came next after another one of its task, by timestamps. Where several events share an instant,
/// each of them counts as the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Successors {
    counts: BTreeMap<u64, u64>,
}

impl Successors {
    fn key(a: &EventRecord, b: &EventRecord) -> u64 {
        let mut hasher = FxHasher::default();
        (&*a.task, &*a.event, &*b.event).hash(&mut hasher);
        hasher.finish()
    }

    fn take(&mut self, key: u64, count: u64) {
        if self.counts.len() < PAIRS_MAX || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += count;
        }
    }

    fn count(&self, a: &EventRecord, b: &EventRecord) -> u64 {
        self.counts
            .get(&Self::key(a, b))
            .copied()
            .unwrap_or_default()
    }

    /// Takes a task's events, in order of time.
    pub(crate) fn observe(&mut self, task: &[&EventRecord]) {
        let mut instants = task.chunk_by(|a, b| a.ts_ns == b.ts_ns);
        let Some(mut before) = instants.next() else {
            return;
        };
        for instant in instants {
            for a in before.iter().take(FOLLOWERS_MAX) {
                for b in instant.iter().take(FOLLOWERS_MAX) {
                    self.take(Self::key(a, b), 1);
                }
            }
            before = instant;
        }
    }

    /// Adds what others have seen.
    pub(crate) fn merge(&mut self, other: &Successors) {
        for (key, count) in &other.counts {
            self.take(*key, *count);
        }
    }

    /// Orders a task's events of equal timestamps, which come in an order that does not depend on that of the lines: each
    /// next one is the one that most often followed the one before.
    pub(crate) fn order(&self, task: &mut [&EventRecord]) {
        let mut before: Option<&EventRecord> = None;
        for instant in task.chunk_by_mut(|a, b| a.ts_ns == b.ts_ns) {
            let (few, _) = instant.split_at_mut(instant.len().min(FOLLOWERS_MAX));
            for at in 0..few.len().saturating_sub(1) {
                let left = &few[at..];
                let followed = |b: &EventRecord| match before {
                    Some(a) => self.count(a, b),
                    // The first of the task follows none of the others.
                    None => left.iter().map(|a| self.count(b, a)).sum(),
                };
                let next = (0..left.len())
                    .rev()
                    .max_by_key(|next| followed(left[*next]));
                few[at..=at + next.unwrap_or(0)].rotate_right(1);
                before = Some(few[at]);
            }
            before = instant.last().copied();
        }
    }
}
