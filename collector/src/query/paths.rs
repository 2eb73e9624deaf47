//! Critical paths: of each trace, and of all together. They need the model, so the store is read twice: once to infer,
//! once to apply.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::critical_path::{TracePath, analyse, drop_unsure_slack, settle};
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::segment::{SegmentedTrace, Segmenter};

use super::categories::{CategoryEvidence, CategoryRule, CategoryTotals, totals};
use super::infer::{Inference, IsExcluded, exclusion, segmenter};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// One trace's critical path.
#[derive(Clone, Debug)]
pub struct TraceAnswer {
    /// Its id.
    pub id: TraceId,
    /// As its source wrote it, if that was not hex.
    pub name: Option<Arc<str>>,
    /// The operation of its root, if it has one.
    pub root: Option<String>,
    /// Its first event, in ns since the Unix epoch.
    pub start_ns: i64,
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

impl Visit<'_> {
    pub(super) fn into_answer(self) -> TraceAnswer {
        let root = self.records.root_operation();
        let SegmentedTrace { id, name, start_ns, .. } = self.trace;
        TraceAnswer { id, name, root, start_ns, path: self.path }
    }
}

/// All critical paths together.
#[derive(Debug)]
pub struct Paths {
    /// Per segment, requests of all kinds alike.
    pub aggregate: PathAggregate,
    /// The same of the requests of each root operation: those with callers first, the ones with the most time first.
    pub by_root: Vec<(String, PathAggregate)>,
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
    each_trace(what, source, selection, inference, &AttributeKeys::none(), |seen| visit(seen.into_answer()))
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
    let mut cutter = Cutter::of(inference);
    let mut notes = source.for_each_trace(what, selection, &keys.with_elements(), |records, _| {
        let (trace, path) = cutter.path(inference, records);
        visit(Visit { records, trace, labels: &cutter.labels, path })
    })?;
    notes.excluded_segments = cutter.excluded.removed();
    Ok(notes)
}

/// The critical path of one trace, if it is there; only what may hold it is read.
///
/// # Errors
/// When the store cannot be listed.
pub fn path_of(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    id: u128,
) -> Result<(Option<TraceAnswer>, Notes), QueryError> {
    let (found, notes) = source.trace(id, selection, &AttributeKeys::none().with_elements())?;
    let mut cutter = Cutter::of(inference);
    let answer = found.map(|mut records| {
        let (trace, path) = cutter.path(inference, &mut records);
        Visit { records: &records, trace, labels: &cutter.labels, path }.into_answer()
    });
    Ok((answer, notes))
}

/// What cuts traces into segments and finds their critical paths.
struct Cutter {
    labels: Labels,
    segmenter: Segmenter,
    excluded: Exclusion<IsExcluded>,
}

impl Cutter {
    fn of(inference: &Inference) -> Self {
        Self {
            // The model knows all labels by now; interning finds them again under the same numbers.
            labels: inference.model.labels().clone(),
            segmenter: segmenter(inference.trailing_elements),
            excluded: exclusion(inference.exclude.as_ref()),
        }
    }

    /// Puts the records on one time axis, cuts them, and finds the path.
    fn path(&mut self, inference: &Inference, records: &mut TraceRecords) -> (SegmentedTrace, TracePath) {
        if let Some(alignment) = &inference.alignment {
            alignment.apply(records);
        }
        let (mut trace, _) = self.segmenter.segment(records, &mut self.labels);
        self.excluded.remove_from(&mut trace, &self.labels);
        settle(&mut trace, &inference.relations);
        let mut path = analyse(&trace, &inference.relations);
        drop_unsure_slack(&trace, &mut path);
        (trace, path)
    }
}

/// What works on one part of the store.
struct Worker<A> {
    cutter: Cutter,
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
    let worker = |_| Worker { cutter: Cutter::of(inference), accumulator: new() };
    let workers = (0..parts.count()).map(worker).collect();
    let (workers, mut notes) = source.fold(what, selection, &parts, workers, |worker, records, _| {
        let (trace, path) = worker.cutter.path(inference, records);
        visit(&mut worker.accumulator, Visit { records, trace, labels: &worker.cutter.labels, path });
    });
    notes.excluded_segments = workers.iter().map(|worker| worker.cutter.excluded.removed()).sum();
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
    let (keys, new) =
        (rule.keys([]), || (BTreeMap::<String, PathAggregate>::new(), CategoryEvidence::new(rule)));
    let (parts, notes) =
        fold_traces(what, source, selection, inference, &keys, new, |(by_root, evidence), visit| {
            evidence.observe(visit.records);
            by_root.entry(inference.known_root(visit.records)).or_default().observe(&visit.path);
        })?;
    let (mut by_root, mut evidence) = new();
    for (of_part, evidence_of_part) in &parts {
        of_part.iter().for_each(|(root, paths)| by_root.entry(root.clone()).or_default().merge(paths));
        evidence.merge(evidence_of_part);
    }
    let mut aggregate = PathAggregate::new();
    by_root.values().for_each(|of_root| aggregate.merge(of_root));
    let categories = totals(&aggregate, &evidence.categories(inference.model.labels(), (source, selection))?);
    let by_root = inference.ranked(by_root);
    Ok(Paths { aggregate, by_root, categories, notes })
}
