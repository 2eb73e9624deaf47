//! Labels that name segments, and their numbers.

use crate::task_path;
use foldhash::fast::RandomState;
use rustc_hash::FxHashMap;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Number of a segment's label: an index into the [`Labels`] that interned it. Numbers are dense
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// Returns the id as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The tuple ⟨task, start event, end event⟩ that names a segment (The Mystery Machine, §4.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentLabel {
    /// Task: one thread of control of the request.
    pub task: Arc<str>,
    /// The event that begins the segment.
    pub start: Arc<str>,
    /// The event that ends the segment.
    pub end: Arc<str>,
}

impl SegmentLabel {
    /// Creates a label from a task, a start event and an end event.
    pub fn new(task: &str, start: &str, end: &str) -> SegmentLabel {
        SegmentLabel {
            task: task.into(),
            start: start.into(),
            end: end.into(),
        }
    }

    /// Returns the operation that the segment belongs to: the last component of the task's path,
    /// without its number among siblings. For example, `web:GET /home > store:read#3` belongs to
    /// `store:read`. Escapes of the path are undone. A task without ` > ` has one component.
    pub fn operation(&self) -> String {
        let component = task_path::last_component(&self.task);
        task_path::unescape(task_path::unnumbered(component)).into_owned()
    }

    /// Reports whether the two labels share their texts in memory, and so are equal. Equal labels
    /// with separate copies of a text yield `false`.
    pub(crate) fn is_same(&self, other: &SegmentLabel) -> bool {
        Arc::ptr_eq(&self.task, &other.task)
            && Arc::ptr_eq(&self.start, &other.start)
            && Arc::ptr_eq(&self.end, &other.end)
    }
}

impl fmt::Display for SegmentLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{} … {}]", self.task, self.start, self.end)
    }
}

/// Interner that assigns numbers to labels, up to a maximum.
///
/// Names come from outside, so their number must be bounded. Otherwise, a service that puts ids
/// into its names would make the model grow without end. Labels over the bound are refused;
/// [`Labels::refused`] counts the refusals.
#[derive(Clone, Debug)]
pub struct Labels {
    labels: Vec<SegmentLabel>,
    /// Number of the latest label with each hash; `older` links to the previous label with that
    /// hash.
    newest_of_hash: FxHashMap<u64, u32>,
    older: Vec<Option<u32>>,
    /// Has a random key, because senders choose the names: labels with one hash would be compared
    /// in pairs.
    hash: RandomState,
    max_labels: usize,
    refused: u64,
}

/// Default maximum number of labels that a model distinguishes.
pub const DEFAULT_MAX_LABELS: usize = 4096;

impl Default for Labels {
    fn default() -> Labels {
        Labels::with_max(DEFAULT_MAX_LABELS)
    }
}

impl Labels {
    /// Creates an empty interner for at most `max_labels` labels.
    pub fn with_max(max_labels: usize) -> Labels {
        let max_labels = max_labels.min(u32::MAX as usize);
        Labels {
            labels: Vec::new(),
            newest_of_hash: FxHashMap::default(),
            older: Vec::new(),
            hash: RandomState::default(),
            max_labels,
            refused: 0,
        }
    }

    /// Returns the number of this label; assigns a number if the label is new. Returns `None`, and
    /// counts the refusal, if the label is new and the interner is full.
    pub fn intern(
        &mut self,
        task: &Arc<str>,
        start: &Arc<str>,
        end: &Arc<str>,
    ) -> Option<SegmentId> {
        let hash = self.hash_of(task, start, end);
        if let Some(id) = self.find(hash, task, start, end) {
            return Some(id);
        }
        if self.labels.len() >= self.max_labels {
            self.refused = self.refused.saturating_add(1);
            return None;
        }
        // Fits: the number of labels is at most `u32::MAX`.
        let id = self.labels.len() as u32;
        self.labels.push(SegmentLabel {
            task: task.clone(),
            start: start.clone(),
            end: end.clone(),
        });
        self.older.push(self.newest_of_hash.insert(hash, id));
        Some(SegmentId(id))
    }

    /// Returns the number of this label; `None` if the label was not interned.
    pub fn id(&self, task: &str, start: &str, end: &str) -> Option<SegmentId> {
        self.find(self.hash_of(task, start, end), task, start, end)
    }

    /// Returns the label with this number; `None` if the number was not assigned.
    pub fn get(&self, id: SegmentId) -> Option<&SegmentLabel> {
        self.labels.get(id.index())
    }

    /// Iterates over all labels, in order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SegmentId, &SegmentLabel)> {
        self.labels
            .iter()
            .enumerate()
            .map(|(i, label)| (SegmentId(i as u32), label))
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Reports whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the maximum number of labels.
    pub fn max_labels(&self) -> usize {
        self.max_labels
    }

    /// Returns how many times a new label was refused because the interner was full. The model
    /// leaves the segments of refused labels out.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds another interner's count of refusals.
    pub(crate) fn add_refused(&mut self, refused: u64) {
        self.refused = self.refused.saturating_add(refused);
    }

    /// Returns the numbers in the order of their labels' text. This order does not depend on the
    /// order in which labels arrived.
    pub(crate) fn sorted_ids(&self) -> Vec<SegmentId> {
        let mut ids: Vec<SegmentId> = self.iter().map(|(id, _)| id).collect();
        ids.sort_unstable_by(|a, b| self.labels[a.index()].cmp(&self.labels[b.index()]));
        ids
    }

    fn find(&self, hash: u64, task: &str, start: &str, end: &str) -> Option<SegmentId> {
        let mut candidate = self.newest_of_hash.get(&hash).copied();
        while let Some(id) = candidate {
            let label = &self.labels[id as usize];
            if &*label.task == task && &*label.start == start && &*label.end == end {
                return Some(SegmentId(id));
            }
            candidate = self.older[id as usize];
        }
        None
    }

    fn hash_of(&self, task: &str, start: &str, end: &str) -> u64 {
        self.hash.hash_one((task, start, end))
    }
}
