//! `infer`: the causal model of all traces in the store.

use stroboscope_analysis::clock::{Alignment, ClockEstimates};
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::segment::Segmenter;

use super::source::{Notes, QueryError, Selection, Source};

/// A causal model and what it was made of.
#[derive(Debug)]
pub struct Inference {
    /// The model, its segments numbered in order of their labels.
    pub model: Model,
    /// What it believes.
    pub relations: Relations,
    /// How the hosts' clocks were corrected, if round trips proved that they differ.
    pub alignment: Option<Alignment>,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Infers the model of all selected traces; `tolerance` is the part of co-occurrences that may contradict a relation
/// that is still believed.
///
/// Clocks are compared on the way (The Mystery Machine, §3). Where they are proven to differ, the store is read a
/// second time with corrected timestamps; otherwise timestamps are exact as they are.
///
/// # Errors
/// When the store cannot be read, or no trace is complete.
pub fn infer(source: &Source, selection: Selection, tolerance: f64) -> Result<Inference, QueryError> {
    let mut clocks = ClockEstimates::new();
    let (mut model, mut notes) = observe(source, selection, None, &mut clocks)?;
    let alignment = clocks.align(None);
    let alignment = (alignment.is_needed() && !selection.trust_clocks).then_some(alignment);
    if alignment.is_some() {
        (model, notes) = observe(source, selection, alignment.as_ref(), &mut ClockEstimates::new())?;
    }
    if model.traces() == 0 && notes.traces > 0 {
        return Err(QueryError::NoneComplete { traces: notes.traces, causes: notes.incomplete_text() });
    }
    // So that the numbers do not depend on which trace came first.
    let model = model.canonical();
    Ok(Inference { relations: model.relations(tolerance), model, alignment, notes })
}

fn observe(
    source: &Source,
    selection: Selection,
    alignment: Option<&Alignment>,
    clocks: &mut ClockEstimates,
) -> Result<(Model, Notes), QueryError> {
    let mut model = Model::new();
    let mut segmenter = Segmenter::default();
    let notes = source.for_each_trace("inferring", selection, |records, notes| {
        match alignment {
            Some(alignment) => alignment.apply(records),
            None => clocks.observe(records),
        }
        let (trace, diagnostics) = segmenter.segment(records, model.labels_mut());
        for diagnostic in &diagnostics {
            *notes.diagnostics.entry(diagnostic.cause()).or_default() += 1;
        }
        model.observe(&trace);
        true
    })?;
    Ok((model, notes))
}
