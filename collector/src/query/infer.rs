//! `infer`: the causal model of all traces in the store.

use regex::Regex;
use stroboscope_analysis::clock::{Alignment, ClockEstimates};
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::Segmenter;

use super::rounds::{Converging, Rounds, rounds};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// How to infer.
#[derive(Clone, Debug, Default)]
pub struct InferSettings {
    /// The part of co-occurrences that may contradict a relation that is still believed.
    pub tolerance: f64,
    /// Segments to leave out: those of which `task [start … end]` has a match.
    pub exclude: Option<Regex>,
    /// Take the trailing token of an event-log event's name for its data element, see
    /// [`from_events`](stroboscope_analysis::segment::from_events).
    pub trailing_elements: bool,
    /// Take a point of the convergence series every so many traces; 0 takes none.
    pub convergence_every: u64,
}

/// A causal model and what it was made of.
#[derive(Debug)]
pub struct Inference {
    /// The model, its segments numbered in order of their labels.
    pub model: Model,
    /// What it believes.
    pub relations: Relations,
    /// How the hosts' clocks were corrected, if round trips proved that they differ.
    pub alignment: Option<Alignment>,
    /// Segments that were left out, and are to be left out of whatever the model is applied to.
    pub exclude: Option<Regex>,
    /// Whether trailing tokens of names are data elements, as in [`InferSettings`].
    pub trailing_elements: bool,
    /// How relations came and went, if that was asked for.
    pub convergence: Vec<ConvergencePoint>,
    /// The latency of the traces in the model.
    pub latency: Distribution,
    /// What was noticed on the way.
    pub notes: Notes,
}

impl Inference {
    /// The segments that were seen and not left out, in order of their numbers.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &SegmentLabel)> {
        // What is left out has a label all the same, as traces are cut before it is known.
        self.model.labels().iter().filter(|(id, _)| self.model.segment_counts(*id).traces > 0)
    }
}

/// Infers the model of all selected traces; `tolerance` is the part of co-occurrences that may contradict a relation
/// that is still believed.
///
/// What spans, and events of event logs, say in their attribute `element` names the data element they are about, which
/// pipelines are inferred of.
///
/// Clocks are compared on the way (The Mystery Machine, §3). Where they are proven to differ, the store is read a
/// second time with corrected timestamps; otherwise timestamps are exact as they are.
///
/// # Errors
/// When the store cannot be read, or no trace is complete.
pub fn infer(source: &Source, selection: Selection, tolerance: f64) -> Result<Inference, QueryError> {
    infer_with(source, selection, InferSettings { tolerance, ..InferSettings::default() })
}

/// As [`infer`], with segments left out and the convergence noted.
///
/// # Errors
/// When the store cannot be read, or no trace is complete.
pub fn infer_with(
    source: &Source,
    selection: Selection,
    settings: InferSettings,
) -> Result<Inference, QueryError> {
    let mut observed = observe(source, selection, &settings, None)?;
    let (alignment, impossible) = (observed.clocks.align(None), observed.clocks.impossible());
    let alignment = (alignment.is_needed() && !selection.trust_clocks).then_some(alignment);
    if alignment.is_some() {
        observed = observe(source, selection, &settings, alignment.as_ref())?;
    }
    let Observed { model, mut notes, convergence, latency, .. } = observed;
    if impossible > 0 {
        notes.diagnostics.insert(IMPOSSIBLE_ROUND_TRIP, impossible);
    }
    if model.traces() == 0 && notes.traces > 0 {
        return Err(QueryError::NoneComplete { traces: notes.traces, causes: notes.incomplete_text() });
    }
    // So that the numbers do not depend on which trace came first.
    let model = model.canonical();
    let relations = model.relations(settings.tolerance);
    let InferSettings { exclude, trailing_elements, .. } = settings;
    Ok(Inference { relations, model, alignment, exclude, trailing_elements, convergence, latency, notes })
}

/// The cause of round trips that no offset between two clocks explains; `clocks` says more.
const IMPOSSIBLE_ROUND_TRIP: &str = "impossible_round_trip";

/// Leaves out the segments that the pattern matches, of whose labels it is asked once.
pub(super) fn exclusion(pattern: Option<&Regex>) -> Exclusion<impl Fn(&SegmentLabel) -> bool> {
    Exclusion::new(move |label| pattern.is_some_and(|pattern| pattern.is_match(&label.to_string())))
}

/// Cuts traces as the settings say.
pub(super) fn segmenter(trailing_elements: bool) -> Segmenter {
    if trailing_elements { Segmenter::with_trailing_elements() } else { Segmenter::default() }
}

/// What one pass over the store has found.
struct Observed {
    model: Model,
    clocks: ClockEstimates,
    notes: Notes,
    convergence: Vec<ConvergencePoint>,
    latency: Distribution,
}

/// What infers one part of the store.
struct Worker<F> {
    model: Model,
    clocks: ClockEstimates,
    segmenter: Segmenter,
    excluded: Exclusion<F>,
    latency: Distribution,
    rounds: Option<Rounds>,
}

fn observe(
    source: &Source,
    selection: Selection,
    settings: &InferSettings,
    alignment: Option<&Alignment>,
) -> Result<Observed, QueryError> {
    let parts = source.parts(selection, &AttributeKeys::none().with_elements())?;
    let (converging, mut rounds) = rounds(settings, parts.count());
    let worker = |_| Worker {
        model: Model::new(),
        clocks: ClockEstimates::new(),
        segmenter: segmenter(settings.trailing_elements),
        excluded: exclusion(settings.exclude.as_ref()),
        latency: Distribution::default(),
        rounds: rounds.next(),
    };
    let workers = (0..parts.count()).map(worker).collect();
    let (converging, (workers, mut notes)) = std::thread::scope(|scope| {
        let converging = scope.spawn(|| converging.map(Converging::run));
        let visit = |worker: &mut Worker<_>, records: &mut TraceRecords, notes: &mut Notes| {
            worker.take(records, alignment, notes);
        };
        let mut found = source.fold("inferring", selection, &parts, workers, visit);
        // With the last sender gone, the rounds are over.
        found.0.iter_mut().for_each(|worker| worker.rounds = None);
        match converging.join() {
            Ok(converging) => (converging, found),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let (mut model, mut convergence) = converging.unwrap_or_default();
    let (mut clocks, mut latency) = (ClockEstimates::new(), Distribution::default());
    for worker in workers {
        model.merge(&worker.model);
        clocks.merge(&worker.clocks);
        latency.merge(&worker.latency);
        notes.excluded_segments += worker.excluded.removed();
    }
    if let Some(convergence) = &mut convergence {
        convergence.finish(&model);
    }
    let convergence = convergence.map_or_else(Vec::new, |convergence| convergence.points().to_vec());
    Ok(Observed { model, clocks, notes, convergence, latency })
}

impl<F: Fn(&SegmentLabel) -> bool> Worker<F> {
    fn take(&mut self, records: &mut TraceRecords, alignment: Option<&Alignment>, notes: &mut Notes) {
        match alignment {
            Some(alignment) => alignment.apply(records),
            None => self.clocks.observe(records),
        }
        let (mut trace, diagnostics) = self.segmenter.segment(records, self.model.labels_mut());
        for diagnostic in &diagnostics {
            *notes.diagnostics.entry(diagnostic.cause()).or_default() += 1;
        }
        self.excluded.remove_from(&mut trace, self.model.labels());
        self.model.observe(&trace);
        self.latency.record(trace.latency_ns());
        if let Some(rounds) = &mut self.rounds {
            rounds.after_trace(&mut self.model);
        }
    }
}
