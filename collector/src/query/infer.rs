//! `infer`: the causal model of all traces in the store.

use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::segment::segment;

use super::source::{Notes, QueryError, Selection, Source};

/// A causal model and what it was made of.
#[derive(Debug)]
pub struct Inference {
    /// The model, its segments numbered in order of their labels.
    pub model: Model,
    /// What it believes.
    pub relations: Relations,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Infers the model of all selected traces; `tolerance` is the part of co-occurrences that may contradict a relation
/// that is still believed.
///
/// # Errors
/// When the store cannot be read, or no trace is complete.
pub fn infer(source: &Source, selection: Selection, tolerance: f64) -> Result<Inference, QueryError> {
    let mut model = Model::new();
    let notes = source.for_each_trace("inferring", selection, |records, notes| {
        let (trace, diagnostics) = segment(records, model.labels_mut());
        for diagnostic in &diagnostics {
            *notes.diagnostics.entry(diagnostic.cause()).or_default() += 1;
        }
        model.observe(&trace);
        true
    })?;
    if model.traces() == 0 && notes.traces > 0 {
        return Err(QueryError::NoneComplete { traces: notes.traces, causes: notes.incomplete_text() });
    }
    // So that the numbers do not depend on which trace came first.
    let model = model.canonical();
    Ok(Inference { relations: model.relations(tolerance), model, notes })
}
