//! Names of segments, and small numbers for them.

use crate::task_path;
use rustc_hash::{FxHashMap, FxHasher};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A segment's number: an index into the [`Labels`] it was interned by, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The distributed thread of control.
    pub task: Arc<str>,
    /// The event that begins the segment.
    pub start: Arc<str>,
    /// The event that ends it.
    pub end: Arc<str>,
}

impl SegmentLabel {
    /// Creates a label of these three names.
    pub fn new(task: &str, start: &str, end: &str) -> SegmentLabel {
        SegmentLabel {
            task: task.into(),
            start: start.into(),
            end: end.into(),
        }
    }

    /// Returns the operation the segment belongs to: the last component of the task's path, without
    /// its number (`web:GET /home > store:read#3` belongs to `store:read`), with the path's escapes
    /// undone. An event log's task without ` > ` is its own operation.
    pub fn operation(&self) -> String {
        let component = task_path::last_component(&self.task);
        let base = component.rsplit_once('#').and_then(|(base, number)| {
            let counted =
                number == "*" || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
            // Only spans are numbered, and their names hold the colon after their service.
            (counted && base.contains(':')).then_some(base)
        });
        task_path::unescape(base.unwrap_or(component)).into_owned()
    }

    /// True if the two are clones of one label, and so equal. Two labels made independently may be
    /// equal although this returns false.
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

/// Interns labels, both ways, up to a bound.
///
/// Names come from outside, so their number must be bounded: a service that puts ids into its names
/// would otherwise grow the model without end. Labels over the bound are refused and counted, see
/// [`Labels::refused`].
#[derive(Clone, Debug)]
pub struct Labels {
    labels: Vec<SegmentLabel>,
    /// The last label interned of each hash; `older` chains to the others of the same hash.
    newest_of_hash: FxHashMap<u64, u32>,
    older: Vec<Option<u32>>,
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
    /// Creates an empty interner that takes at most `max_labels` labels.
    pub fn with_max(max_labels: usize) -> Labels {
        let max_labels = max_labels.min(u32::MAX as usize);
        Labels {
            labels: Vec::new(),
            newest_of_hash: FxHashMap::default(),
            older: Vec::new(),
            max_labels,
            refused: 0,
        }
    }

    /// Returns the number of this label, and assigns one if it is new. Returns `None`, and counts
    /// the refusal, if there is no room for a new one.
    pub fn intern(
        &mut self,
        task: &Arc<str>,
        start: &Arc<str>,
        end: &Arc<str>,
    ) -> Option<SegmentId> {
        let hash = hash_of(task, start, end);
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

    /// Returns the number of this label, if it has one.
    pub fn id(&self, task: &str, start: &str, end: &str) -> Option<SegmentId> {
        self.find(hash_of(task, start, end), task, start, end)
    }

    /// Returns the label of this number, if it was assigned.
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

    /// Returns the number of times that a new label found no room. Each is a segment that the model
    /// does not know.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds another interner's count of refusals.
    pub(crate) fn add_refused(&mut self, refused: u64) {
        self.refused = self.refused.saturating_add(refused);
    }

    /// Returns the numbers in the order of their labels' text, the only order that does not depend
    /// on arrival.
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
}

fn hash_of(task: &str, start: &str, end: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (task, start, end).hash(&mut hasher);
    hasher.finish()
}
