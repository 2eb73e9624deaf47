//! Critical paths of single traces, and their statistics over all traces.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::critical_path::TracePath;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::flow::{ERROR, failed_spans};
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_analysis::segment::SegmentedTrace;

use super::attribute_names::{AttributeCounts, attribute_counts};
use super::categories::{Categories, CategoryEvidence, CategoryRule, CategoryTotals, totals};
use super::circumstances::failures_text;
use super::cutter::Cutter;
use super::inference::Inference;
use super::joining::JoinCounts;
use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::shard::ShardQuestion;
use super::source::{Selection, Source};
use super::study::{Question, StudyInput};
use stroboscope_store::tables::{AttributeKeys, IdRange};

/// Critical path of one trace.
#[derive(Clone, Debug)]
pub struct TraceAnswer {
    /// Id of the trace.
    pub id: TraceId,
    /// Trace id as its source wrote it; `None` if that is the id in 32 lower-case hexadecimal
    /// digits.
    pub name: Option<Arc<str>>,
    /// Root operation of the trace; `None` for a trace without a root.
    pub root: Option<String>,
    /// Start of the request, in ns since the Unix epoch.
    pub start_ns: i64,
    /// Critical path, with the slack of every segment, which is 0 if it is uncertain.
    pub path: TracePath,
}

impl TraceAnswer {
    pub(super) fn of(view: &TraceView<'_>) -> Self {
        Self::made_of(view.records, view.trace.clone(), view.path.clone())
    }

    pub(super) fn made_of(records: &TraceRecords, trace: SegmentedTrace, path: TracePath) -> Self {
        Self {
            id: trace.id,
            name: trace.name,
            root: records.root_operation(),
            start_ns: trace.start_ns,
            path,
        }
    }

    /// Returns the name of the trace in its source, or its hexadecimal id if it has no other name.
    #[must_use]
    pub fn label(&self) -> String {
        self.name
            .as_ref()
            .map_or_else(|| self.id.to_string(), |name| name.to_string())
    }
}

/// Statistics of the critical paths of all selected traces.
#[derive(Debug)]
pub struct Paths {
    /// Statistics per segment, over the requests of all root operations.
    pub aggregate: PathAggregate,
    /// Statistics per root operation. Root operations with callers come first. Within both groups,
    /// the order is by total latency, the largest first.
    pub by_root: Vec<(String, PathAggregate)>,
    /// Time by category, the largest part of the critical path first.
    pub categories: Vec<CategoryTotals>,
    /// For each segment that is critical in any request, the request in which it is critical with
    /// the largest sum of duration and wait.
    pub examples: BTreeMap<SegmentId, TraceId>,
    /// For each segment with slack before the answer, the request in which it has the most.
    pub slack_examples: BTreeMap<SegmentId, TraceId>,
    /// Number of used requests with a failed root span, by root operation. Root operations without
    /// failures are absent.
    pub failed: BTreeMap<String, WeightedCount>,
    /// Latency of the used requests without a failed root span and with a latency above 0, by root
    /// operation.
    pub latency_without_failed: BTreeMap<String, Distribution>,
    /// Sentences about hosts whose processors were busy.
    busy_hosts: Vec<String>,
    joining: JoinCounts,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

impl Paths {
    /// Returns the number of used requests with a failed root span.
    #[must_use]
    pub fn failed_requests(&self) -> WeightedCount {
        self.failed.values().copied().sum()
    }

    /// Returns sentences on circumstances that make the figures misleading: those of
    /// [`circumstances()`](super::circumstances()) for an unknown number of processors, and signs
    /// of lost trace context.
    #[must_use]
    pub fn circumstances(&self) -> Vec<String> {
        let requests = self.aggregate.traces() + self.aggregate.without_length();
        let failed = self.failed_requests().recorded();
        let mut said = Vec::new();
        if failed > 0 {
            said.extend_from_slice(&self.busy_hosts);
        }
        said.extend(failures_text(failed, requests.recorded()));
        said.append(&mut self.joining.signs(self.notes.connections.is_empty()));
        said
    }
}

/// Passes the critical path of each selected request to `visit`, in order of the ids of their
/// traces, until `visit` returns `false`.
///
/// # Errors
/// Fails if the store cannot be listed, if temporary files cannot be written, or if there is too
/// little memory.
pub fn each_path(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    mut visit: impl FnMut(TraceAnswer) -> bool,
) -> Result<Notes, QueryError> {
    let mut cutter = Cutter::of(inference);
    let keys = AttributeKeys::none().with_elements();
    let mut notes =
        source.for_each_trace("finding critical paths", selection, &keys, |records, _| {
            let (trace, path) = cutter.path(inference, records);
            visit(TraceAnswer::made_of(records, trace, path))
        })?;
    cutter.add_to(&mut notes);
    Ok(notes)
}

/// Returns the critical path of one trace, with the notes about the trace itself; `None` if the
/// selection has no such trace. Reads only files that may hold its id.
///
/// # Errors
/// Fails if the store cannot be listed, if temporary files cannot be written, or if there is too
/// little memory.
pub fn path_of(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    id: u128,
) -> Result<(Option<TraceAnswer>, Notes), QueryError> {
    let (found, mut notes) = source.trace(id, selection, &AttributeKeys::none().with_elements())?;
    let mut cutter = Cutter::of(inference);
    let answer = found.map(|mut records| {
        let (trace, path) = cutter.path(inference, &mut records);
        TraceAnswer::made_of(&records, trace, path)
    });
    cutter.add_to(&mut notes);
    // A weight changes no figure of a single request.
    notes.sampling.requests = WeightedCount::default();
    Ok((answer, notes))
}

/// Asks for statistics of the critical paths of all selected traces, with categories by this rule.
#[derive(Clone, Debug, Default)]
pub struct PathsQuestion(pub CategoryRule);

/// Pass that collects statistics of critical paths by root operation.
#[derive(Debug)]
pub struct PathsByRoot<'a> {
    inference: &'a Inference,
    sums: PathSums,
}

/// Statistics of critical paths by root operation, with segments numbered as in the model.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PathSums {
    by_root: BTreeMap<String, PathAggregate>,
    longest: Largest,
    slackest: Largest,
    failed: BTreeMap<String, WeightedCount>,
    latency_without_failed: BTreeMap<String, Distribution>,
    joining: JoinCounts,
}

/// Reports whether a root span of a request failed. The records must have the attribute [`ERROR`].
pub(super) fn has_failed(records: &TraceRecords) -> bool {
    let roots = records.spans.iter().filter(|span| span.parent_id == 0);
    let roots: Vec<u64> = roots.map(|root| root.span_id).collect();
    failed_spans(records).any(|id| roots.contains(&id))
}

/// Replaces the largest time in ns and its request by those of another request, if its time is
/// larger, or equal and its id lower.
pub(super) fn note_largest(largest: &mut Option<(u64, TraceId)>, ns: u64, id: TraceId) {
    let is_larger =
        |(known_ns, known): (u64, TraceId)| (ns, Reverse(id)) > (known_ns, Reverse(known));
    if largest.is_none_or(is_larger) {
        *largest = Some((ns, id));
    }
}

/// Largest time of each segment in ns, with its request, indexed by the segment's number. Among
/// equal times, the time of the request with the lowest id counts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Largest(Vec<Option<(u64, TraceId)>>);

impl Largest {
    fn note(&mut self, at: usize, ns: u64, id: TraceId) {
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        note_largest(&mut self.0[at], ns, id);
    }

    fn merge(&mut self, other: Self) {
        for (at, largest) in other.0.into_iter().enumerate() {
            if let Some((ns, id)) = largest {
                self.note(at, ns, id);
            }
        }
    }

    fn examples(&self) -> BTreeMap<SegmentId, TraceId> {
        let known = self.0.iter().zip(0u32..);
        known
            .filter_map(|(largest, at)| Some((SegmentId(at), (*largest)?.1)))
            .collect()
    }
}

impl Pass<TraceView<'_>> for PathsByRoot<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (root, sums) = (self.inference.known_root(seen.records), &mut self.sums);
        if has_failed(seen.records) {
            let failed = sums.failed.entry(root.clone()).or_default();
            failed.count(seen.weight());
        } else if seen.path.latency_ns > 0 {
            let others = sums.latency_without_failed.entry(root.clone()).or_default();
            others.record_weighted(seen.path.latency_ns, seen.weight());
        }
        let of_root = sums.by_root.entry(root).or_default();
        of_root.observe(seen.path, seen.weight());
        sums.joining.observe(seen.records);
        for timing in &seen.path.segments {
            let at = timing.segment.0 as usize;
            if timing.critical {
                sums.longest.note(at, timing.weight_ns(), seen.trace.id);
            }
            if timing.slack_ns > 0 && !timing.after_answer {
                sums.slackest.note(at, timing.slack_ns, seen.trace.id);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.sums.merge(other.sums);
    }
}

impl PathSums {
    fn merge(&mut self, other: Self) {
        for (root, paths) in other.by_root {
            match self.by_root.entry(root) {
                Entry::Occupied(known) => known.into_mut().merge(&paths),
                Entry::Vacant(new) => drop(new.insert(paths)),
            }
        }
        self.longest.merge(other.longest);
        self.slackest.merge(other.slackest);
        for (root, failed) in other.failed {
            *self.failed.entry(root).or_default() += failed;
        }
        for (root, others) in other.latency_without_failed {
            let of_root = self.latency_without_failed.entry(root).or_default();
            of_root.merge(&others);
        }
        self.joining.merge(other.joining);
    }

    fn into_paths(
        self,
        inference: &Inference,
        categories: &Categories,
        busy_hosts: Vec<String>,
        notes: Notes,
    ) -> Paths {
        let mut aggregate = PathAggregate::new();
        let by_root = self.by_root.values();
        by_root.for_each(|of_root| aggregate.merge(of_root));
        Paths {
            categories: totals(&aggregate, categories),
            aggregate,
            by_root: inference.ranked(self.by_root),
            examples: self.longest.examples(),
            slack_examples: self.slackest.examples(),
            failed: self.failed,
            latency_without_failed: self.latency_without_failed,
            busy_hosts,
            joining: self.joining,
            notes: notes.weighing(WeightUse::Everything),
        }
    }
}

impl Question for PathsQuestion {
    type Records = CategoryEvidence;
    type Preparation = Categories;
    type Paths<'a> = PathsByRoot<'a>;
    type Answer = Paths;

    fn what(&self) -> &'static str {
        "finding critical paths"
    }

    fn record_keys(&self) -> AttributeKeys {
        self.0.keys([])
    }

    fn records(&self) -> CategoryEvidence {
        CategoryEvidence::new(&self.0)
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: CategoryEvidence,
    ) -> Result<Categories, QueryError> {
        records.categories(studied)
    }

    fn path_keys(&self, _: &Categories) -> AttributeKeys {
        AttributeKeys::of([ERROR])
    }

    fn paths<'a>(&'a self, studied: StudyInput<'a>, _: &'a Categories) -> PathsByRoot<'a> {
        PathsByRoot {
            inference: studied.inference,
            sums: PathSums::default(),
        }
    }

    fn answer(
        &self,
        studied: StudyInput<'_>,
        categories: &Categories,
        paths: PathsByRoot<'_>,
        notes: Notes,
    ) -> Result<Paths, QueryError> {
        let busy_hosts = studied.source.processor_use()?.busy(None);
        let paths = paths.sums;
        Ok(paths.into_paths(studied.inference, categories, busy_hosts, notes))
    }
}

/// Statistics of the critical paths of one shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct PathsState {
    evidence: CategoryEvidence,
    /// Attributes of the shard's requests; empty if its categories are known.
    attributes: AttributeCounts,
    sums: PathSums,
    /// Sentences about the busy hosts of the store.
    busy_hosts: Vec<String>,
}

impl ShardQuestion for PathsQuestion {
    type State = PathsState;

    fn shard_preparation(&self, _: &Inference) -> Categories {
        Categories::default()
    }

    fn state(
        &self,
        studied: StudyInput<'_>,
        ids: Option<&IdRange>,
        evidence: CategoryEvidence,
        paths: PathsByRoot<'_>,
    ) -> Result<PathsState, QueryError> {
        let is_known = evidence.known_categories(studied.inference).is_some();
        let attributes = match ids {
            Some(ids) if !is_known => attribute_counts(studied.source, studied.selection, ids)?,
            _ => AttributeCounts::default(),
        };
        Ok(PathsState {
            evidence,
            attributes,
            sums: paths.sums,
            busy_hosts: studied.source.processor_use()?.busy(None),
        })
    }

    fn merge_states(&self, whole: &mut PathsState, part: PathsState) {
        whole.evidence.merge(part.evidence);
        whole.attributes.merge(&part.attributes);
        whole.sums.merge(part.sums);
    }

    fn conclude(
        &self,
        inference: &Inference,
        whole: PathsState,
        notes: Notes,
    ) -> Result<Paths, QueryError> {
        let categories = whole.evidence.known_categories(inference);
        let categories = categories.ok_or_else(|| {
            let attribute = self.0.attribute_name();
            whole.attributes.no_such_attribute(attribute)
        })?;
        let paths = whole.sums;
        Ok(paths.into_paths(inference, &categories, whole.busy_hosts, notes))
    }
}
