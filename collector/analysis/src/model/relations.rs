//! Snapshot of the relations that a model believes.

use super::counts::{CONTRADICTED, OVERLAPPED, PerKind, TOGETHER};
use super::groups::ResolvedCounts;
use super::pipelines::Pipelines;
use crate::label::{Labels, SegmentId};
use crate::segment::{ElementId, Segment};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Extent to which a relation was tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Support {
    /// Number of traces that could have contradicted the relation: those in which both segments
    /// occur, or in which both tasks of a pipeline worked on one element.
    pub cooccurrences: u64,
    /// Number of traces that contradicted the relation.
    pub contradictions: u64,
}

impl Support {
    /// Reports whether there are co-occurrences, and at most the fraction `tolerance` of them
    /// contradicted the relation. A [`Model`](super::Model) requires more to believe a relation.
    pub fn is_believed(&self, tolerance: f64) -> bool {
        // A NaN or negative tolerance counts as 0.
        let allowed = if tolerance > 0.0 {
            tolerance * self.cooccurrences as f64
        } else {
            0.0
        };
        self.cooccurrences > 0 && self.contradictions as f64 <= allowed
    }
}

/// A believed relation. For happens-before, `first` is the earlier segment. For mutual exclusion,
/// the order means nothing and `first < second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// First segment.
    pub first: SegmentId,
    /// Second segment.
    pub second: SegmentId,
    /// Extent to which the relation was tested.
    pub support: Support,
}

/// A believed pipeline of two tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Task that finishes an element first.
    pub first: Arc<str>,
    /// Task that works on an element after `first` has finished it.
    pub second: Arc<str>,
    /// Extent to which the pipeline was tested, by traces in which both tasks worked on the same
    /// element.
    pub support: Support,
    /// Number of elements that both tasks worked on, over all traces.
    pub elements: u64,
}

/// Numbers of relations added and removed between two snapshots. A happens-before relation that
/// becomes a mutual exclusion counts as one removed and one added relation. The reasons below hold
/// for tolerance 0; with a higher tolerance, later traces can also restore a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Changes {
    /// Happens-before relations that only the newer snapshot has. Before, the segments had not
    /// occurred together, or no trace had shown their order.
    pub happens_before_added: usize,
    /// Happens-before relations that only the older snapshot has: traces have contradicted them
    /// since.
    pub happens_before_removed: usize,
    /// Mutual exclusions that only the newer snapshot has. Before, the segments had not occurred
    /// together, had a fixed order, or had shown no order.
    pub mutual_exclusion_added: usize,
    /// Mutual exclusions that only the older snapshot has: traces have contradicted them since.
    pub mutual_exclusion_removed: usize,
}

/// One bit per ordered pair of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BitMatrix {
    words: usize,
    bits: Vec<u64>,
}

impl BitMatrix {
    fn new(size: usize) -> BitMatrix {
        let words = size.div_ceil(64);
        BitMatrix {
            words,
            bits: vec![0; words * size],
        }
    }

    fn set(&mut self, row: usize, column: usize) {
        self.bits[row * self.words + column / 64] |= 1 << (column % 64);
    }

    fn row(&self, row: usize) -> &[u64] {
        self.bits
            .get(row * self.words..(row + 1) * self.words)
            .unwrap_or(&[])
    }

    fn get(&self, row: usize, column: usize) -> bool {
        bit(self.row(row), column)
    }
}

/// Returns bit `at` of a row of words; `false` past the row's end.
fn bit(row: &[u64], at: usize) -> bool {
    row.get(at / 64)
        .is_some_and(|word| (word >> (at % 64)) & 1 == 1)
}

/// Relations that a [`Model`](super::Model) believes at some tolerance. Ids are those of the
/// model's labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Relations {
    tolerance: f64,
    labels: usize,
    happens_before: Vec<Relation>,
    mutual_exclusion: Vec<Relation>,
    /// Row B has bit A if A→B is believed.
    predecessors: BitMatrix,
    /// Row B has bit A if A→B is believed, or if A and B exclude each other, so that either may
    /// come first in a trace.
    ordered_before: BitMatrix,
    /// Pipelines, sorted by name.
    pipelines: Vec<Pipeline>,
    /// Task number of each segment; empty without pipelines.
    task_of: Vec<u32>,
    pipelined: FxHashSet<(u32, u32)>,
}

impl Relations {
    pub(super) fn of(
        counts: &ResolvedCounts<'_>,
        pipelines: &Pipelines,
        labels: &Labels,
        tolerance: f64,
    ) -> Relations {
        let mut predecessors = BitMatrix::new(labels.len());
        let mut happens_before = Vec::new();
        counts.for_each_together(|a, b, numbers| {
            let support = Support {
                cooccurrences: numbers[TOGETHER],
                contradictions: numbers[CONTRADICTED],
            };
            if a != b && support.is_believed(tolerance) {
                let reverse = Support {
                    contradictions: counts.cell(b, a)[CONTRADICTED],
                    ..support
                };
                // The traces refute neither order, so neither is believed.
                if reverse.is_believed(tolerance) {
                    return;
                }
                predecessors.set(b, a);
                happens_before.push(relation(a, b, support));
            }
        });
        let mut ordered_before = predecessors.clone();
        let mut mutual_exclusion = Vec::new();
        counts.for_each_together(|a, b, numbers| {
            if a > b || predecessors.get(a, b) || predecessors.get(b, a) {
                return;
            }
            let other_side = if a == b {
                PerKind::default()
            } else {
                counts.cell(b, a)
            };
            if a != b && numbers[CONTRADICTED] + other_side[CONTRADICTED] == 0 {
                return;
            }
            let contradictions = numbers[OVERLAPPED] + other_side[OVERLAPPED];
            let support = Support {
                cooccurrences: numbers[TOGETHER],
                contradictions,
            };
            if support.is_believed(tolerance) {
                ordered_before.set(a, b);
                ordered_before.set(b, a);
                if a != b {
                    mutual_exclusion.push(relation(a, b, support));
                }
            }
        });
        let pipelines = believed_pipelines(pipelines, tolerance);
        let (task_of, pipelined) = number_tasks(&pipelines, labels);
        Relations {
            tolerance,
            labels: labels.len(),
            happens_before,
            mutual_exclusion,
            predecessors,
            ordered_before,
            pipelines,
            task_of,
            pipelined,
        }
    }

    /// Reports whether `b` may have waited for `a`: `a` is in [`Relations::ordered_before`] of `b`.
    pub(crate) fn is_ordered_before(&self, a: SegmentId, b: SegmentId) -> bool {
        self.ordered_before.get(b.index(), a.index())
    }

    /// Stops believing that the segments in `these` come before `b`; bit A stands for segment A.
    /// Returns `true` if any of these relations was believed. Leaves the lists of relations as they
    /// are.
    pub(crate) fn drop_predecessors(&mut self, b: SegmentId, these: &[u64]) -> bool {
        let words = self.predecessors.words;
        let row = b.index() * words..(b.index() + 1) * words;
        let mut dropped = false;
        let (before, ordered) = (&mut self.predecessors.bits, &mut self.ordered_before.bits);
        for ((before, ordered), these) in before[row.clone()]
            .iter_mut()
            .zip(&mut ordered[row])
            .zip(these)
        {
            // A segment that excludes `b` was never believed to come before it.
            let gone = *before & these;
            dropped |= gone != 0;
            *before &= !gone;
            *ordered &= !gone;
        }
        dropped
    }

    /// Stops ordering `b` after `a`, a segment that excludes `b`. Leaves the lists of relations as
    /// they are.
    pub(crate) fn drop_exclusion(&mut self, a: SegmentId, b: SegmentId) {
        let matrix = &mut self.ordered_before;
        if let Some(word) = matrix
            .bits
            .get_mut(b.index() * matrix.words + a.index() / 64)
        {
            *word &= !(1 << (a.index() % 64));
        }
    }

    /// Returns the number of labels that the model had.
    pub(crate) fn labels(&self) -> usize {
        self.labels
    }

    /// Returns the maximum fraction of co-occurrences that may contradict a believed relation.
    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Reports whether `a` is believed always to end by the start of `b`.
    pub fn happens_before(&self, a: SegmentId, b: SegmentId) -> bool {
        self.predecessors.get(b.index(), a.index())
    }

    /// Reports whether `a` and `b` are believed never to overlap, although neither always comes
    /// first. For `a == b`, returns `true` if some trace had several instances of the segment and
    /// instances are believed never to overlap.
    pub fn mutual_exclusion(&self, a: SegmentId, b: SegmentId) -> bool {
        !self.happens_before(a, b)
            && !self.happens_before(b, a)
            && self.ordered_before.get(b.index(), a.index())
    }

    /// Returns the number of happens-before relations and mutual exclusions.
    pub fn count(&self) -> usize {
        self.happens_before.len() + self.mutual_exclusion.len()
    }

    /// Returns all happens-before relations, sorted by (first, second).
    pub fn all_happens_before(&self) -> &[Relation] {
        &self.happens_before
    }

    /// Returns all mutual exclusions of two different segments, sorted by (first, second).
    pub fn all_mutual_exclusion(&self) -> &[Relation] {
        &self.mutual_exclusion
    }

    /// Returns all pipelines, sorted by the names of their tasks.
    pub fn all_pipelines(&self) -> &[Pipeline] {
        &self.pipelines
    }

    /// Reports whether both segments work on the same element, and the task of `a` comes before
    /// that of `b` in a pipeline. If `a` came first, `b` then waited for it (a dynamic
    /// happens-before relation, The Mystery Machine, §4.1).
    pub fn pipelined(&self, a: &Segment, b: &Segment) -> bool {
        let same_element = a.element == b.element && a.element != ElementId::NONE;
        same_element
            && self
                .task_of
                .get(a.id.index())
                .zip(self.task_of.get(b.id.index()))
                .is_some_and(|(first, second)| self.pipelined.contains(&(*first, *second)))
    }

    /// Counts the changes of the relations since an `older` snapshot of the same model. Figure 3 of
    /// The Mystery Machine shows such counts to demonstrate convergence.
    pub fn changes_since(&self, older: &Relations) -> Changes {
        let before_missing_in = |one: &[Relation], other: &Relations| {
            one.iter()
                .filter(|r| !other.happens_before(r.first, r.second))
                .count()
        };
        let exclusion_missing_in = |one: &[Relation], other: &Relations| {
            one.iter()
                .filter(|r| !other.mutual_exclusion(r.first, r.second))
                .count()
        };
        Changes {
            happens_before_added: before_missing_in(&self.happens_before, older),
            happens_before_removed: before_missing_in(&older.happens_before, self),
            mutual_exclusion_added: exclusion_missing_in(&self.mutual_exclusion, older),
            mutual_exclusion_removed: exclusion_missing_in(&older.mutual_exclusion, self),
        }
    }

    /// Returns the support of a→b; `None` if a→b is not believed.
    pub fn happens_before_support(&self, a: SegmentId, b: SegmentId) -> Option<Support> {
        find(&self.happens_before, a, b)
    }

    /// Returns the support of the mutual exclusion of `a` and `b`, in either order; `None` if it is
    /// not believed, or if `a == b`.
    pub fn mutual_exclusion_support(&self, a: SegmentId, b: SegmentId) -> Option<Support> {
        find(&self.mutual_exclusion, a.min(b), a.max(b))
    }

    /// Returns the believed predecessors of `b`: bit A of the result means that A→`b` is believed.
    /// The result is empty for an unknown segment.
    pub fn predecessors(&self, b: SegmentId) -> &[u64] {
        self.predecessors.row(b.index())
    }

    /// Returns the segments that `b` may have waited for. Bit A of the result means that A→`b` is
    /// believed, or that A and `b` exclude each other. If such an A came before `b` in a trace, `b`
    /// waited for A (a dynamic happens-before relation, The Mystery Machine, §4.1). The result is
    /// empty for an unknown segment.
    pub fn ordered_before(&self, b: SegmentId) -> &[u64] {
        self.ordered_before.row(b.index())
    }
}

fn believed_pipelines(pipelines: &Pipelines, tolerance: f64) -> Vec<Pipeline> {
    let mut believed = Vec::new();
    for (first, second, counts) in pipelines.pairs() {
        let support = Support {
            cooccurrences: counts.cooccurrences,
            contradictions: counts.contradictions,
        };
        if counts.ordered > 0 && support.is_believed(tolerance) {
            let (first, second) = (first.clone(), second.clone());
            believed.push(Pipeline {
                first,
                second,
                support,
                elements: counts.elements,
            });
        }
    }
    believed.sort_unstable_by(|a, b| (&a.first, &a.second).cmp(&(&b.first, &b.second)));
    believed
}

/// Returns the task number of each label, and the pairs of task numbers that are pipelines. Both
/// are empty without pipelines. All tasks outside pipelines have number 0.
fn number_tasks(pipelines: &[Pipeline], labels: &Labels) -> (Vec<u32>, FxHashSet<(u32, u32)>) {
    if pipelines.is_empty() {
        return (Vec::new(), FxHashSet::default());
    }
    let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
    let mut pipelined = FxHashSet::default();
    for pipeline in pipelines {
        let [first, second] = [&pipeline.first, &pipeline.second].map(|task| {
            let next = numbers.len() as u32 + 1;
            *numbers.entry(task).or_insert(next)
        });
        pipelined.insert((first, second));
    }
    let task_of = labels
        .iter()
        .map(|(_, label)| numbers.get(&*label.task).copied().unwrap_or(0))
        .collect();
    (task_of, pipelined)
}

fn relation(a: usize, b: usize, support: Support) -> Relation {
    Relation {
        first: SegmentId(a as u32),
        second: SegmentId(b as u32),
        support,
    }
}

fn find(relations: &[Relation], a: SegmentId, b: SegmentId) -> Option<Support> {
    let at = relations
        .binary_search_by_key(&(a, b), |r| (r.first, r.second))
        .ok()?;
    Some(relations[at].support)
}
