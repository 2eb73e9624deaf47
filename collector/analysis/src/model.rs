//! The causal model: hypotheses about pairs of segments, and how many traces contradict each (The
//! Mystery Machine, §4.2).
//!
//! - A→B (happens-before) is contradicted by a trace in which some B starts before some A ends.
//! - A∨B (mutual exclusion) is contradicted by a trace in which some A and some B overlap.
//! - t₁≫t₂ (pipeline, of two tasks) is contradicted by a trace in which a data element reaches t₂
//!   before t₁ is done with it. A trace also contradicts it if t₂ starts on two elements in the
//!   opposite order to t₁.
//!
//! Timestamps may have a resolution or error bounds (see [`clock`](crate::clock)). Then an order
//! contradicts a hypothesis only if it is certain: the timestamps must differ by more than the
//! coarser resolution plus, between two clocks, both errors. Between clocks that nothing
//! connects, no order is certain. Two orders are certain regardless of clocks: a segment starts
//! before it ends, and the segments of a span or of an event log's task follow each other. If
//! these tolerances differ between pairs of timestamps in a trace of more than 2,048 segments, the
//! errors also apply between timestamps of one clock. Such a trace may contradict less than it
//! could.
//!
//! The model believes no relation of two segments until some trace has shown an order of them.
//!
//! A trace counts at most once for each pair and kind, however often a segment occurs in it. The
//! model keeps counts instead of single bits, so that every relation has its [`Support`] and the
//! model can tolerate noise.
//!
//! `contradictions` counts any trace, `groups` counts traces whose set of labels recurs, and
//! `uncertain` compares timestamps with errors. `relations` decides which relations are believed.

mod contradictions;
mod counts;
mod groups;
mod pipelines;
mod relations;
mod uncertain;

pub use pipelines::{PIPELINE_TASKS_MAX, PipelineCounts};
pub use relations::{Changes, Pipeline, Relation, Relations, Support};

use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::segment::{ElementId, Segment, SegmentedTrace};
use contradictions::Sweep;
use counts::{BLOCK_BYTES, CONTRADICTED, Counts, OVERLAPPED, PerKind, TOGETHER};
use groups::{Groups, ResolvedCounts};
use pipelines::Pipelines;
use std::sync::Arc;
use uncertain::shrink_ends;

/// Frequency of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SegmentCounts {
    /// Number of instances, over all traces.
    pub occurrences: u64,
    /// Number of traces with at least one instance.
    pub traces: u64,
}

/// Counts of an ordered pair of segments that occurred in the same traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairCounts {
    /// The segment supposed to come first.
    pub a: SegmentId,
    /// The segment supposed to come second. Equal to `a` for several instances of one segment in
    /// one trace.
    pub b: SegmentId,
    /// Number of traces that contain both segments; if `a == b`, several instances of the segment.
    pub cooccurrences: u64,
    /// Number of traces that contradict a→b; 0 if `a == b`.
    pub contradictions: u64,
    /// Number of traces in which the two segments overlap. It is equal for (a, b) and (b, a).
    pub overlaps: u64,
}

/// Estimated memory of a label in bytes. It includes the label's texts, which labels usually share.
const LABEL_BYTES: usize = 256;
/// Number of segments in a trace above which the scratch memory is freed.
const LARGE_SEGMENTS: usize = 1 << 15;

/// Causal model, as counts over the traces observed so far. See the [module](self).
#[derive(Clone, Default)]
pub struct Model {
    labels: Labels,
    traces: u64,
    unknown_segments: u64,
    segments: Vec<SegmentCounts>,
    counts: Counts,
    /// Counts of requests whose set of labels recurs, in addition to `counts`.
    groups: Groups,
    pipelines: Pipelines,
    sweep: Sweep,
    /// A trace's segments with earlier ends, see [`shrink_ends`].
    shrunk: Vec<Segment>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Model of {} traces and {} segments",
            self.traces,
            self.labels.len()
        )
    }
}

impl Model {
    /// Creates an empty model with the default bound on labels.
    pub fn new() -> Model {
        Model::default()
    }

    /// Creates an empty model that distinguishes at most `max_labels` segments. The counts take
    /// about 2.1 KiB for each segment and each block of 64 segments that contains one occurring
    /// with it: up to about `max_labels² / 64 * 2.1` KiB. The counters of sets of segments that
    /// recur take up to about 12 MiB more.
    pub fn with_max_labels(max_labels: usize) -> Model {
        Model {
            labels: Labels::with_max(max_labels),
            ..Model::default()
        }
    }

    /// Returns the labels of the segments.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the labels for interning. [`segment`](crate::segment::segment) must cut the traces
    /// for this model with these labels.
    pub fn labels_mut(&mut self) -> &mut Labels {
        &mut self.labels
    }

    /// Returns the number of traces observed. The caller decides whether a trace is complete enough
    /// to observe.
    pub fn traces(&self) -> u64 {
        self.traces
    }

    /// Returns the number of segments that were left out because this model's labels lack their
    /// ids. Such segments are an error of the caller.
    pub fn unknown_segments(&self) -> u64 {
        self.unknown_segments
    }

    /// Returns the frequency of a segment; zeros for an unknown segment.
    pub fn segment_counts(&self, id: SegmentId) -> SegmentCounts {
        self.segments.get(id.index()).copied().unwrap_or_default()
    }

    /// Returns the approximate memory of the model, in bytes.
    pub fn bytes(&self) -> usize {
        self.counts.blocks() * BLOCK_BYTES + self.groups.bytes() + self.labels.len() * LABEL_BYTES
    }

    /// Returns an upper bound, in bytes, of the blocks of counts that further pairs of this trace
    /// need if it is observed; `None` if the bound is at most `few`.
    pub fn growth_bytes(&self, trace: &SegmentedTrace, few: usize) -> Option<usize> {
        let pairs = trace.segments.len().min(self.labels.len()) * self.labels.len().div_ceil(64);
        if pairs * BLOCK_BYTES <= few {
            return None;
        }
        let mut rows: Vec<u32> = trace.segments.iter().map(|segment| segment.id.0).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut words: Vec<u32> = rows.iter().map(|row| row / 64).collect();
        words.dedup();
        let known = |row: &u32| {
            let has = |word: &&u32| self.counts.has(*row as usize, **word as usize);
            words.iter().filter(has).count()
        };
        let known: usize = rows.iter().map(known).sum();
        let growth = (rows.len() * words.len() - known) * BLOCK_BYTES;
        (growth > few).then_some(growth)
    }

    /// Counts one trace. The ids of its segments must come from this model's labels.
    pub fn observe(&mut self, trace: &SegmentedTrace) {
        debug_assert!(
            trace.segments.is_sorted_by_key(|s| (s.start_ns, s.end_ns)),
            "see SegmentedTrace::new"
        );
        self.traces += 1;
        let labels = self.labels.len();
        if self.segments.len() < labels {
            self.segments.resize(labels, SegmentCounts::default());
        }
        let known;
        let segments = if trace.segments.iter().all(|s| s.id.index() < labels) {
            &trace.segments
        } else {
            known = trace
                .segments
                .iter()
                .filter(|s| s.id.index() < labels)
                .copied()
                .collect::<Vec<_>>();
            self.unknown_segments += (trace.segments.len() - known.len()) as u64;
            &known
        };
        let seen = &mut self.segments;
        let mut note = |id: SegmentId, instances: u64| {
            seen[id.index()].occurrences += instances;
            seen[id.index()].traces += 1;
        };
        match trace.uniform_tolerance_ns() {
            Some(tolerance_ns) => {
                let segments = shrink_ends(segments, tolerance_ns, &mut self.shrunk);
                if self.groups.count(segments, &mut self.counts) {
                    segments.iter().for_each(|segment| note(segment.id, 1));
                } else {
                    self.sweep.count(segments, labels, &mut self.counts, note);
                }
            }
            None => self
                .sweep
                .count_uncertain(trace, segments, labels, &mut self.counts, note),
        }
        if trace.segments.len() > LARGE_SEGMENTS {
            (self.sweep, self.shrunk) = (Sweep::default(), Vec::new());
            self.groups.empty_scratch();
        }
        if trace
            .segments
            .iter()
            .any(|segment| segment.element != ElementId::NONE)
        {
            self.pipelines.observe(trace, &self.labels);
        }
    }

    /// Adds the counts of another model. Labels are matched by their text, so the two models may
    /// number them differently. Apart from the numbers and bounds, merging is commutative and
    /// associative while no label and no task is refused. Labels over the bound are refused and
    /// counted; the counts of their segments, and of pairs with one of these, are left out.
    pub fn merge(&mut self, other: &Model) {
        let ids: Vec<Option<SegmentId>> = other
            .labels
            .iter()
            .map(|(_, l)| self.labels.intern(&l.task, &l.start, &l.end))
            .collect();
        self.take(other, &ids);
        self.labels.add_refused(other.labels.refused());
    }

    /// Returns a copy whose segments are numbered in the order of their labels (task, start, end).
    /// Unless labels or tasks were refused, results then do not depend on the order of traces.
    pub fn canonical(&self) -> Model {
        let mut canonical = Model::with_max_labels(self.labels.max_labels());
        let mut ids = vec![None; self.labels.len()];
        for id in self.labels.sorted_ids() {
            let label = self.labels.get(id);
            ids[id.index()] =
                label.and_then(|l| canonical.labels.intern(&l.task, &l.start, &l.end));
        }
        canonical.take(self, &ids);
        canonical.labels.add_refused(self.labels.refused());
        canonical
    }

    /// Returns the believed relations. A relation is believed if some trace has shown an order, and
    /// if at most the fraction `tolerance` of the traces that could contradict it do so: 0 allows
    /// none, 0.01 one in a hundred. If both orders of two segments are within the tolerance,
    /// neither is believed. A mutual exclusion is believed only if neither order is.
    pub fn relations(&self, tolerance: f64) -> Relations {
        Relations::of(&self.resolved(), &self.pipelines, &self.labels, tolerance)
    }

    /// Returns the support of a→b, believed or not.
    pub fn happens_before_support(&self, a: SegmentId, b: SegmentId) -> Support {
        let numbers = self.cell(a, b);
        Support {
            cooccurrences: numbers[TOGETHER],
            contradictions: numbers[CONTRADICTED],
        }
    }

    /// Returns the support of the hypothesis that `a` and `b` never overlap, believed or not.
    pub fn mutual_exclusion_support(&self, a: SegmentId, b: SegmentId) -> Support {
        let numbers = self.cell(a, b);
        let other_side = if a == b {
            0
        } else {
            self.cell(b, a)[OVERLAPPED]
        };
        Support {
            cooccurrences: numbers[TOGETHER],
            contradictions: numbers[OVERLAPPED] + other_side,
        }
    }

    /// Returns the number of ordered pairs of segments that occurred together: the length of
    /// [`pairs`](Model::pairs).
    pub fn pair_count(&self) -> usize {
        let mut count = 0;
        self.resolved().for_each_together(|_, _, _| count += 1);
        count
    }

    /// Returns the counts of every ordered pair of segments that occurred together, sorted by (a,
    /// b).
    pub fn pairs(&self) -> Vec<PairCounts> {
        // There may be millions of pairs, and a vector that grows holds its contents twice
        // meanwhile.
        let mut pairs = Vec::with_capacity(self.pair_count());
        let resolved = self.resolved();
        resolved.for_each_together(|a, b, numbers| {
            let other_side = if a == b {
                0
            } else {
                resolved.cell(b, a)[OVERLAPPED]
            };
            pairs.push(PairCounts {
                a: SegmentId(a as u32),
                b: SegmentId(b as u32),
                cooccurrences: numbers[TOGETHER],
                contradictions: numbers[CONTRADICTED],
                overlaps: numbers[OVERLAPPED] + other_side,
            });
        });
        pairs
    }

    /// Returns the counts of each ordered pair of tasks that worked on the same data elements, in
    /// order of name. Pairs that are not believed to be pipelines are included.
    pub fn pipelines(&self) -> Vec<(Arc<str>, Arc<str>, PipelineCounts)> {
        let mut pairs: Vec<_> = self
            .pipelines
            .pairs()
            .map(|(first, second, counts)| (first.clone(), second.clone(), counts))
            .collect();
        pairs.sort_unstable_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        pairs
    }

    /// Returns the counts for the pipeline from `first` to `second`; `None` if the model has seen
    /// no element that both tasks worked on, or refused a task.
    pub fn pipeline_counts(&self, first: &str, second: &str) -> Option<PipelineCounts> {
        self.pipelines.get(first, second)
    }

    /// Returns how many times the model refused a task that works on elements, because it already
    /// had [`PIPELINE_TASKS_MAX`] such tasks.
    pub fn refused_pipeline_tasks(&self) -> u64 {
        self.pipelines.refused()
    }

    /// Returns the model as plain data for storage or transfer. [`Model::from_parts`] restores it,
    /// except for [`Model::refused_pipeline_tasks`].
    pub fn parts(&self) -> ModelParts {
        ModelParts {
            max_labels: self.labels.max_labels(),
            traces: self.traces,
            refused_labels: self.labels.refused(),
            unknown_segments: self.unknown_segments,
            segments: self
                .labels
                .iter()
                .map(|(id, l)| (l.clone(), self.segment_counts(id)))
                .collect(),
            pairs: self.pairs(),
            pipelines: self.pipelines(),
        }
    }

    /// Restores a model from its parts. Returns an error if they do not fit together.
    pub fn from_parts(parts: &ModelParts) -> Result<Model, ModelPartsError> {
        let mut model = Model::with_max_labels(parts.max_labels);
        for (number, (label, counts)) in parts.segments.iter().enumerate() {
            let id = model.labels.intern(&label.task, &label.start, &label.end);
            match id {
                Some(id) if id.index() == number => model.segments.push(*counts),
                Some(_) => {
                    return Err(ModelPartsError::RepeatedLabel {
                        label: label.clone(),
                    });
                }
                None => {
                    let (segments, max_labels) = (parts.segments.len(), parts.max_labels);
                    return Err(ModelPartsError::TooManyLabels {
                        segments,
                        max_labels,
                    });
                }
            }
        }
        for pair in &parts.pairs {
            if pair.a.index().max(pair.b.index()) >= model.labels.len() {
                return Err(ModelPartsError::UnknownSegment {
                    a: pair.a,
                    b: pair.b,
                });
            }
            // Parts list the overlaps of a pair in both directions; one of them suffices here.
            let overlaps = if pair.a <= pair.b { pair.overlaps } else { 0 };
            let numbers = [pair.cooccurrences, pair.contradictions, overlaps];
            model
                .counts
                .add_cell(pair.a.index(), pair.b.index(), numbers);
        }
        for (first, second, counts) in &parts.pipelines {
            model.pipelines.add(first, second, *counts);
        }
        model.traces = parts.traces;
        model.unknown_segments = parts.unknown_segments;
        model.labels.add_refused(parts.refused_labels);
        Ok(model)
    }

    fn resolved(&self) -> ResolvedCounts<'_> {
        ResolvedCounts::of(&self.counts, &self.groups)
    }

    fn cell(&self, a: SegmentId, b: SegmentId) -> PerKind {
        let (a, b) = (a.index(), b.index());
        let (numbers, more) = (self.counts.cell(a, b), self.groups.cell(a, b));
        std::array::from_fn(|kind| numbers[kind] + more[kind])
    }

    /// Adds the counts of `other`, whose segment `i` is `ids[i]` here. Pairs that involve a refused
    /// label are left out.
    fn take(&mut self, other: &Model, ids: &[Option<SegmentId>]) {
        self.traces += other.traces;
        self.pipelines.merge(&other.pipelines);
        self.unknown_segments += other.unknown_segments;
        self.segments
            .resize(self.labels.len(), SegmentCounts::default());
        for (counts, id) in other.segments.iter().zip(ids) {
            let Some(own) = id.and_then(|id| self.segments.get_mut(id.index())) else {
                continue;
            };
            own.occurrences += counts.occurrences;
            own.traces += counts.traces;
        }
        other.resolved().for_each_together(|a, b, numbers| {
            if let (Some(Some(a)), Some(Some(b))) = (ids.get(a), ids.get(b)) {
                self.counts.add_cell(a.index(), b.index(), numbers);
            }
        });
    }
}

/// A model as plain data. See [`Model::parts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelParts {
    /// Maximum number of labels.
    pub max_labels: usize,
    /// Number of traces observed.
    pub traces: u64,
    /// Number of times that a new label was refused because there was no room.
    pub refused_labels: u64,
    /// Number of segments that were left out because their ids were unknown.
    pub unknown_segments: u64,
    /// Label and counts of each segment, by its number.
    pub segments: Vec<(SegmentLabel, SegmentCounts)>,
    /// Counts of every ordered pair of segments that occurred together.
    pub pairs: Vec<PairCounts>,
    /// Counts of every ordered pair of tasks that worked on the same elements.
    pub pipelines: Vec<(Arc<str>, Arc<str>, PipelineCounts)>,
}

/// Reason why parts do not form a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelPartsError {
    /// Two segments have the same label.
    #[error(
        "the model lists the segment `{label}` twice; it was not written by this program, recompute it"
    )]
    RepeatedLabel {
        /// Label of both segments.
        label: SegmentLabel,
    },
    /// The parts list more segments than their own `max_labels`.
    #[error(
        "the model lists {segments} segments, but allows {max_labels}; raise its bound or recompute it"
    )]
    TooManyLabels {
        /// Number of segments listed.
        segments: usize,
        /// Maximum number of segments.
        max_labels: usize,
    },
    /// A pair refers to a segment that is not listed.
    #[error("the model counts the pair ({}, {}), of which it lists no segment; recompute it", a.0, b.0)]
    UnknownSegment {
        /// The first segment.
        a: SegmentId,
        /// The second segment.
        b: SegmentId,
    },
}
