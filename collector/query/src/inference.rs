//! Causal model with the by-products of its inference, concluded from the results of a pass.

use std::collections::BTreeMap;

use regex::Regex;
use stroboscope_analysis::by_root::{ByRoot, OTHER_ROOTS, RootStatistics};
use stroboscope_analysis::category::SpanKinds;
use stroboscope_analysis::clock::{Alignment, ClockEvidence};
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::record::TraceRecords;

use super::attribute_names::nearest;
use super::infer_settings::InferSettings;
use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use stroboscope_store::query_memory::QueryShare;

/// Multiple of a model's own memory that the model and its relations occupy while they are kept.
pub(super) const KEPT_FORMS: usize = 2;
/// Multiple of a model's own memory that inference needs at its peak, when it merges and renumbers
/// models and finds their relations.
pub(super) const MODEL_FORMS: usize = 3;
/// Maximum number of root operations that an error lists.
const ROOTS_NAMED: usize = 20;
/// Name of the diagnostic for round trips that no offset between two clocks explains. The
/// subcommand `clocks` gives details.
const IMPOSSIBLE_ROUND_TRIP: &str = "impossible_round_trip";

/// Causal model, with the settings and by-products of its inference.
#[derive(Debug)]
pub struct Inference {
    /// Model, with segments numbered in order of their labels.
    pub model: Model,
    /// Relations that the model supports within the tolerance.
    pub relations: Relations,
    /// Correction of timestamps, with its error bounds; `None` if the recorded timestamps are
    /// exact.
    pub alignment: Option<Alignment>,
    /// Alignment of the hosts' clocks, even if the recorded timestamps are exact.
    pub clocks: Alignment,
    /// Pattern of the segments that were left out. The caller must leave them out of the traces to
    /// which it applies the model, too.
    pub exclude: Option<Regex>,
    /// True if trailing tokens of names are data elements, as in [`InferSettings`].
    pub trailing_elements: bool,
    /// Number of relations over the course of the inference; empty if not requested, or if another
    /// model was merged in.
    pub convergence: Vec<ConvergencePoint>,
    /// Numbers of complete and incomplete traces, and latency of the used ones, by root operation.
    pub roots: ByRoot,
    /// Kinds of the operations' spans, such as server or client.
    pub kinds: SpanKinds,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

impl Inference {
    /// Reserves the memory of the inference from `share`, for a caller that keeps it.
    ///
    /// # Errors
    /// Fails if there is too little memory.
    pub fn hold(&self, share: &mut QueryShare) -> Result<(), QueryError> {
        let had = share.take(KEPT_FORMS * self.model.bytes());
        had.map_err(QueryError::lack_of_requests)
    }

    /// Corrects the timestamps of records, unless the recorded ones are exact.
    pub(super) fn align(&self, records: &mut TraceRecords) {
        if let Some(alignment) = &self.alignment {
            alignment.apply(records);
        }
    }

    /// Returns the segments that were seen and not left out, in order of their numbers.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &SegmentLabel)> {
        // A segment that is left out has a label too, because traces are cut before the pattern is
        // applied.
        let labels = self.model.labels().iter();
        labels.filter(|(id, _)| self.model.segment_counts(*id).traces > 0)
    }

    /// Returns the name under which [`roots`](Self::roots) counts a request: its root operation, or
    /// the entry for all root operations beyond the limit.
    pub(super) fn known_root(&self, records: &TraceRecords) -> String {
        let (root, known) = (records.root_name(), self.roots.roots());
        if known.is_empty() || known.contains_key(&*root) {
            root.into_owned()
        } else {
            OTHER_ROOTS.to_owned()
        }
    }

    /// Returns the inference with the other one's model merged into its own, so that its relations
    /// rest on the evidence of both. A comparison of two periods joins each one with the other. The
    /// convergence is dropped, and everything else is unchanged.
    pub(super) fn joined(&self, other: &Self, tolerance: f64) -> Self {
        let mut model = self.model.clone();
        model.merge(&other.model);
        let model = model.canonical();
        Self {
            relations: model.relations(tolerance),
            model,
            alignment: self.alignment.clone(),
            clocks: self.clocks.clone(),
            exclude: self.exclude.clone(),
            trailing_elements: self.trailing_elements,
            convergence: Vec::new(),
            roots: self.roots.clone(),
            kinds: self.kinds.clone(),
            notes: self.notes.clone(),
        }
    }

    /// Returns the results of root operations in order. Root operations with callers come first.
    /// Within both groups, the order is by total latency, the largest first.
    pub(super) fn ranked<T>(&self, mut by_root: BTreeMap<String, T>) -> Vec<(String, T)> {
        let ranked = self.roots.ranked().into_iter();
        let known = ranked.filter_map(|(root, _)| by_root.remove_entry(root));
        let mut in_order: Vec<_> = known.collect();
        in_order.extend(by_root);
        in_order
    }
}

/// Results of one pass over the store, or over a shard of it.
pub(super) struct PassResult {
    pub(super) model: Model,
    pub(super) clocks: ClockEvidence,
    pub(super) notes: Notes,
    pub(super) convergence: Vec<ConvergencePoint>,
    pub(super) roots: ByRoot,
    pub(super) kinds: SpanKinds,
}

impl PassResult {
    pub(super) fn merge(&mut self, other: Self) {
        self.model.merge(&other.model);
        self.clocks.merge(&other.clocks);
        self.notes.merge(other.notes);
        self.roots.merge(&other.roots);
        self.kinds.merge(&other.kinds);
    }

    /// Concludes the inference from the results for all traces. `clocks` is the alignment by all
    /// evidence. `root` is the root operation whose requests were selected; `None` for all.
    /// `filter` is the text of the filter's formula; empty without a filter.
    ///
    /// # Errors
    /// Fails if there are traces but none is complete, or none has the selected root operation.
    pub(super) fn conclude(
        self,
        clocks: Alignment,
        settings: &InferSettings,
        (root, filter): (Option<&str>, &str),
    ) -> Result<Inference, QueryError> {
        let impossible = self.clocks.impossible();
        let (mut notes, mut roots) = (self.notes, self.roots);
        // Only the selected root operation is in the result.
        let selected = |(name, of): (&String, &RootStatistics)| {
            root.is_none_or(|wanted| wanted == name)
                .then(|| (name.clone(), of.clone()))
        };
        roots.merge(&notes.roots.roots().iter().filter_map(selected).collect());
        if let Some(root) = root.filter(|_| notes.traces == 0 && !notes.roots.roots().is_empty()) {
            let known: Vec<&str> = notes.roots.ranked().iter().map(|(root, _)| *root).collect();
            let (filter, without, nearest) = match filter {
                "" => (String::new(), "", nearest(root, known.iter().copied())),
                // The filter may have left out this root operation, too.
                formula => {
                    let filter = format!(" that satisfies --where '{formula}'");
                    (filter, "without --where, ", None)
                }
            };
            let known = known[..known.len().min(ROOTS_NAMED)].join(", ");
            let none = QueryError::NoSuchRoot {
                root: root.to_owned(),
                filter,
                nearest: nearest.map_or_else(String::new, |name| format!(" (is it {name}?)")),
                known: format!("{without}there are: {known}"),
            };
            return Err(none.with_damage(&notes.damage));
        }
        if impossible > 0 {
            notes
                .diagnostics
                .insert(IMPOSSIBLE_ROUND_TRIP.into(), impossible);
        }
        if self.model.traces() == 0 && notes.traces > 0 {
            let none = QueryError::NoneComplete {
                traces: notes.traces,
                causes: notes.incomplete_text(),
            };
            return Err(none.with_damage(&notes.damage));
        }
        // Renumbers the segments, so that their numbers do not depend on the order of traces.
        let model = self.model.canonical();
        Ok(Inference {
            relations: model.relations(settings.tolerance),
            model,
            alignment: (!clocks.is_exact()).then(|| clocks.clone()),
            clocks,
            exclude: settings.exclude.clone(),
            trailing_elements: settings.trailing_elements,
            convergence: self.convergence,
            roots,
            kinds: self.kinds,
            notes: notes.weighing(WeightUse::Roots),
        })
    }
}
