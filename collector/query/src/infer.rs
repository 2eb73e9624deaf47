//! Infers the causal model of all selected traces.

use std::collections::HashSet;

use regex::Regex;
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::category::SpanKinds;
use stroboscope_analysis::clock::{Alignment, ClockEvidence};
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::pass::Pass;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::{SegmentedTrace, Segmenter};

use super::clocks::{as_selected, sampled};
use super::infer_settings::InferSettings;
use super::inference::{Inference, KEPT_FORMS, MODEL_FORMS, PassResult};
use super::notes::Notes;
use super::query_error::QueryError;
use super::reading_memory::SourceMemory;
use super::rounds::{Merger, Rounds, rounds};
use super::source::{Selection, Source};
use stroboscope_store::query_memory::QueryLack;
use stroboscope_store::tables::{AttributeKeys, IdRange};

/// Infers the model of all selected traces. `tolerance` is the fraction of co-occurrences, 0 to 1,
/// that may contradict a relation that is still accepted.
///
/// Pipelines are inferred from data elements. The attribute `element` of a span or event names its
/// element; a log line inside a span has none.
///
/// The inference also compares the hosts' clocks (The Mystery Machine, §3). It corrects timestamps
/// by an estimate from the first traces. If the alignment from all traces differs too much from
/// this estimate, the store is read a second time.
///
/// # Errors
/// Fails if the store cannot be read, if there are traces but none is complete, or none has the
/// selected root operation, or if there is too little memory.
pub fn infer(
    source: &Source,
    selection: Selection,
    tolerance: f64,
) -> Result<Inference, QueryError> {
    let settings = InferSettings {
        tolerance,
        ..InferSettings::default()
    };
    infer_with(source, selection, &settings)
}

/// Infers the model like [`infer`], with the given settings.
///
/// # Errors
/// Fails if the store cannot be read, if there are traces but none is complete, or none has the
/// selected root operation, or if there is too little memory.
pub fn infer_with(
    source: &Source,
    selection: Selection,
    settings: &InferSettings,
) -> Result<Inference, QueryError> {
    infer_riding(source, selection, settings, &AttributeKeys::none(), || ())
        .map(|(inference, ())| inference)
}

/// Infers the model like [`infer_with`], and runs a second pass (the rider) over the same records.
/// The records have the attributes of `keys`.
pub(super) fn infer_riding<R: Pass<TraceRecords>>(
    source: &Source,
    selection: Selection,
    settings: &InferSettings,
    keys: &AttributeKeys,
    new_rider: impl Fn() -> R,
) -> Result<(Inference, R), QueryError> {
    let guess = sampled(source, selection)?;
    let whole = Some(&IdRange::ALL);
    let (mut observed, rider) = observe(
        source,
        selection,
        settings,
        (&guess, whole),
        (keys, new_rider),
    )?;
    let clocks = as_selected(&observed.clocks, selection);
    if !clocks.is_as(&guess) {
        let none = &AttributeKeys::none();
        (observed, ()) = observe(source, selection, settings, (&clocks, whole), (none, || ()))?;
    }
    let inference = observed.conclude(clocks, settings, (source.root(), source.filter()))?;
    let bytes = KEPT_FORMS * inference.model.bytes();
    let kept = source.memory.keep_model(bytes);
    kept.map_err(QueryError::lack_of_requests)?;
    Ok((inference, rider))
}

/// Creates an exclusion of the segments whose labels the pattern matches. It matches each label
/// once.
pub(super) fn exclusion(pattern: Option<&Regex>) -> Exclusion<IsExcluded> {
    let pattern = pattern.cloned();
    Exclusion::new(Box::new(move |label| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(&label.to_string()))
    }))
}

pub(super) type IsExcluded = Box<dyn Fn(&SegmentLabel) -> bool + Send>;

pub(super) fn segmenter(trailing_elements: bool) -> Segmenter {
    if trailing_elements {
        Segmenter::with_trailing_elements()
    } else {
        Segmenter::default()
    }
}

/// Worker that infers the model of one part of the store.
struct Worker<'a, F, R> {
    memory: &'a SourceMemory,
    lack: Option<QueryLack>,
    trailing_elements: bool,
    seen: WorkerResult,
    rider: R,
    segmenter: Segmenter,
    excluded: Exclusion<F>,
    /// Worker's share in the convergence rounds. It is dropped with the worker, so that the other
    /// workers can continue the rounds.
    rounds: Option<Rounds>,
}

/// Results of a worker, which are kept after the worker is dropped.
#[derive(Default)]
struct WorkerResult {
    model: Model,
    clocks: ClockEvidence,
    roots: ByRoot,
    kinds: SpanKinds,
    excluded_segments: u64,
}

/// Observes the selected traces with ids in `ids`; none if `ids` is `None`. `alignment` corrects
/// timestamps only for the model and the statistics of roots, not for the rider and the clocks.
pub(super) fn observe<R: Pass<TraceRecords>>(
    source: &Source,
    selection: Selection,
    settings: &InferSettings,
    (alignment, ids): (&Alignment, Option<&IdRange>),
    (keys, new_rider): (&AttributeKeys, impl Fn() -> R),
) -> Result<(PassResult, R), QueryError> {
    let times_ns = selection.range.records_ns();
    let parts = source.parts_between(times_ns, ids, &keys.with_elements())?;
    let (converging, mut rounds) = rounds(settings, parts.count());
    let worker = |_| Worker {
        memory: &source.memory,
        lack: None,
        trailing_elements: settings.trailing_elements,
        seen: WorkerResult {
            model: Model::with_max_labels(settings.max_segments),
            ..WorkerResult::default()
        },
        rider: new_rider(),
        segmenter: segmenter(settings.trailing_elements),
        excluded: exclusion(settings.exclude.as_ref()),
        rounds: rounds.next(),
    };
    let workers = (0..parts.count()).map(worker).collect();
    let (converging, found) = std::thread::scope(|scope| {
        let converging = scope.spawn(|| converging.map(Merger::run));
        let visit =
            |worker: &mut Worker<'_, _, R>, records: &mut TraceRecords, notes: &mut Notes| {
                worker.take(records, alignment, notes);
            };
        let pass_over = |_: &mut Worker<'_, _, R>, _: &mut TraceRecords| {};
        let made = (visit, pass_over, Worker::after, Worker::finish);
        let found = source.fold_to("inferring", selection, &parts, workers, made);
        match converging.join() {
            Ok(converging) => (converging, found),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let (parts_seen, mut notes) = found?;
    let (mut model, mut convergence) =
        converging.unwrap_or_else(|| (Model::with_max_labels(settings.max_segments), None));
    let (mut clocks, mut roots, mut rider) = (ClockEvidence::new(), ByRoot::default(), new_rider());
    let mut kinds = SpanKinds::default();
    for (seen, rider_of_part) in parts_seen {
        rider.merge(rider_of_part);
        model.merge(&seen.model);
        clocks.merge(&seen.clocks);
        roots.merge(&seen.roots);
        kinds.merge(&seen.kinds);
        notes.excluded_segments += seen.excluded_segments;
    }
    source.kernel_clocks().note_in(&mut clocks);
    if let Some(convergence) = &mut convergence {
        convergence.finish(&model);
    }
    let convergence = convergence.map(|convergence| convergence.points().to_vec());
    let result = PassResult {
        model,
        clocks,
        notes,
        convergence: convergence.unwrap_or_default(),
        roots,
        kinds,
    };
    Ok((result, rider))
}

/// Upper estimate of the bytes of the counters for one segment and a block of 64 segments.
/// See [`Model::with_max_labels`].
const BLOCK_BYTES: usize = 2_300;
/// Name of the diagnostic for segments that do not fit into the model.
pub(super) const LABELS_FULL: &str = "labels_full";

/// Removes segments from a trace that has more labels than a model of `bytes_max` bytes can relate
/// to each other: the segments of the labels that occur last. Returns true if it removed any. The
/// result does not depend on the numbering of labels, and therefore not on the order of traces.
fn leave_out_last(trace: &mut SegmentedTrace, bytes_max: usize) -> bool {
    let labels_max = (bytes_max / BLOCK_BYTES * 64).isqrt();
    if trace.segments.len() <= labels_max {
        return false;
    }
    let (before, mut labels) = (trace.segments.len(), HashSet::new());
    trace.segments.retain(|segment| {
        labels.contains(&segment.id) || labels.len() < labels_max && labels.insert(segment.id)
    });
    trace.segments.len() < before
}

/// Growth of a model by one trace, in bytes, beyond which memory is reserved in advance.
const GROWTH_BYTES: usize = 8 << 20;
/// Number of records of a trace above which the segmenter is replaced afterwards, which releases
/// its memory.
const LARGE_RECORDS: usize = 1 << 14;

impl<F: Fn(&SegmentLabel) -> bool, R: Pass<TraceRecords>> Worker<'_, F, R> {
    fn take(&mut self, records: &mut TraceRecords, alignment: &Alignment, notes: &mut Notes) {
        self.rider.observe(records);
        self.seen.clocks.observe(records);
        self.seen.kinds.observe(records);
        alignment.apply(records);
        let model = &mut self.seen.model;
        let (mut trace, diagnostics) = self.segmenter.segment(records, model.labels_mut());
        for diagnostic in &diagnostics {
            let flaws = notes.diagnostics.entry(diagnostic.cause().into());
            *flaws.or_default() += 1;
        }
        self.excluded.remove_from(&mut trace, model.labels());
        if leave_out_last(&mut trace, self.memory.model_max() / MODEL_FORMS / 2) {
            let is_noted = diagnostics.iter().any(|noted| noted.cause() == LABELS_FULL);
            *notes.diagnostics.entry(LABELS_FULL.into()).or_default() += u64::from(!is_noted);
        }
        let growth = model.growth_bytes(&trace, GROWTH_BYTES);
        let more = growth.map(|bytes| self.memory.take(MODEL_FORMS * bytes));
        // Keeps this reservation until the model has grown; `after` then reports the model's size.
        let _more = match more.transpose() {
            Ok(more) => more,
            Err(lack) => {
                self.lack = Some(lack);
                return;
            }
        };
        model.observe(&trace);
        let (latency_ns, after_ns) = (trace.latency_ns(), trace.after_answer_ns());
        let (roots, root) = (&mut self.seen.roots, records.root_name());
        roots.observe(&root, latency_ns, after_ns, records.weight());
        if records.spans.len() + records.events.len() > LARGE_RECORDS {
            self.segmenter = segmenter(self.trailing_elements);
        }
    }

    /// Sends the model to the merging thread if the model has this worker's share of a convergence
    /// round, and may wait for that thread. Returns the memory in bytes that this worker needs for
    /// its model, or the lack of memory if memory ran out.
    fn after(&mut self) -> Result<usize, QueryLack> {
        let model = &mut self.seen.model;
        if let Some(rounds) = &mut self.rounds {
            rounds.after_trace(model);
        }
        self.lack
            .map_or_else(|| Ok(MODEL_FORMS * model.bytes()), Err)
    }

    fn finish(self) -> (WorkerResult, R) {
        let mut seen = self.seen;
        seen.excluded_segments = self.excluded.removed();
        (seen, self.rider)
    }
}
