//! Critical paths: of each trace, and of all together. They need the model, so the store is read twice: once to infer,
//! once to apply.

use std::sync::Arc;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::critical_path::{TracePath, analyse};
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::segment::{SegmentedTrace, Segmenter};

use super::categories::{CategoryEvidence, CategoryRule, CategoryTotals, totals};
use super::infer::{Inference, exclusion, segmenter};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// One trace's critical path.
#[derive(Clone, Debug)]
pub struct TraceAnswer {
    /// Its id.
    pub id: TraceId,
    /// As its source wrote it, if that was not hex.
    pub name: Option<Arc<str>>,
    /// The path and every segment's slack.
    pub path: TracePath,
}

impl TraceAnswer {
    /// What to call the trace: as its source did.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| self.id.to_string(), |name| name.to_string())
    }
}

/// One trace on its way through an analysis.
pub(super) struct Visit<'a> {
    /// As recorded, on one time axis.
    pub(super) records: &'a TraceRecords,
    /// Cut into segments, without those left out.
    pub(super) trace: SegmentedTrace,
    /// What it was cut with.
    pub(super) labels: &'a Labels,
    /// Its critical path.
    pub(super) path: TracePath,
}

/// All critical paths together.
#[derive(Debug)]
pub struct Paths {
    /// Per segment.
    pub aggregate: PathAggregate,
    /// Time by category, the largest part of the critical path first.
    pub categories: Vec<CategoryTotals>,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Hands the critical path of each selected trace to `visit`, which may stop by `false`.
///
/// # Errors
/// When the store cannot be listed.
pub fn each_path(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    mut visit: impl FnMut(TraceAnswer) -> bool,
) -> Result<Notes, QueryError> {
    let what = "finding critical paths";
    each_trace(what, source, selection, inference, &AttributeKeys::none(), |Visit { trace, path, .. }| {
        visit(TraceAnswer { id: trace.id, name: trace.name, path })
    })
}

/// Hands each selected trace with its critical path to `visit`, which may stop by `false`. The attributes of `keys` are
/// among the records; what they say of elements is read in any case.
pub(super) fn each_trace(
    what: &'static str,
    source: &Source,
    selection: Selection,
    inference: &Inference,
    keys: &AttributeKeys,
    mut visit: impl FnMut(Visit<'_>) -> bool,
) -> Result<Notes, QueryError> {
    // The model knows all labels by now; interning finds them again under the same numbers.
    let mut labels = inference.model.labels().clone();
    let mut segmenter = segmenter(inference.trailing_elements);
    let mut excluded = exclusion(inference.exclude.as_ref());
    let mut notes = source.for_each_trace(what, selection, &keys.with_elements(), |records, _| {
        if let Some(alignment) = &inference.alignment {
            alignment.apply(records);
        }
        let (mut trace, _) = segmenter.segment(records, &mut labels);
        excluded.remove_from(&mut trace, &labels);
        let path = analyse(&trace, &inference.relations);
        visit(Visit { records, trace, labels: &labels, path })
    })?;
    notes.excluded_segments = excluded.removed();
    Ok(notes)
}

/// What finds the critical paths of one part of the store.
struct Worker<F, A> {
    labels: Labels,
    segmenter: Segmenter,
    excluded: Exclusion<F>,
    accumulator: A,
}

/// Hands each selected trace with its critical path to the accumulator of its part, all parts at the same time; the
/// accumulators, in order of the parts. Otherwise as [`each_trace`].
pub(super) fn fold_traces<A: Send>(
    what: &'static str,
    source: &Source,
    selection: Selection,
    inference: &Inference,
    keys: &AttributeKeys,
    new: impl Fn() -> A,
    visit: impl Fn(&mut A, Visit<'_>) + Sync,
) -> Result<(Vec<A>, Notes), QueryError> {
    let parts = source.parts(selection, &keys.with_elements())?;
    let worker = |_| Worker {
        // The model knows all labels by now; interning finds them again under the same numbers.
        labels: inference.model.labels().clone(),
        segmenter: segmenter(inference.trailing_elements),
        excluded: exclusion(inference.exclude.as_ref()),
        accumulator: new(),
    };
    let workers = (0..parts.count()).map(worker).collect();
    let (workers, mut notes) = source.fold(what, selection, &parts, workers, |worker, records, _| {
        if let Some(alignment) = &inference.alignment {
            alignment.apply(records);
        }
        let Worker { labels, segmenter, excluded, accumulator } = worker;
        let (mut trace, _) = segmenter.segment(records, labels);
        excluded.remove_from(&mut trace, labels);
        let path = analyse(&trace, &inference.relations);
        visit(accumulator, Visit { records, trace, labels, path });
    });
    notes.excluded_segments = workers.iter().map(|worker| worker.excluded.removed()).sum();
    Ok((workers.into_iter().map(|worker| worker.accumulator).collect(), notes))
}

/// The critical paths of all selected traces together, by kind of span.
///
/// # Errors
/// When the store cannot be listed.
pub fn aggregate(source: &Source, selection: Selection, inference: &Inference) -> Result<Paths, QueryError> {
    aggregate_by(source, selection, inference, &CategoryRule::Kinds)
}

/// As [`aggregate`], with other categories.
///
/// # Errors
/// When the store cannot be listed.
pub fn aggregate_by(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    rule: &CategoryRule,
) -> Result<Paths, QueryError> {
    let what = "finding critical paths";
    let (keys, new) = (rule.keys([]), || (PathAggregate::new(), CategoryEvidence::new(rule)));
    let (parts, notes) =
        fold_traces(what, source, selection, inference, &keys, new, |(aggregate, evidence), visit| {
            evidence.observe(visit.records);
            aggregate.observe(&visit.path);
        })?;
    let (mut aggregate, mut evidence) = new();
    for (of_part, evidence_of_part) in &parts {
        aggregate.merge(of_part);
        evidence.merge(evidence_of_part);
    }
    let categories = totals(&aggregate, &evidence.categories(inference.model.labels()));
    Ok(Paths { aggregate, categories, notes })
}
