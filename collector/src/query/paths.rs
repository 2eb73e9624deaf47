//! Critical paths: of each trace, and of all together. They need the model, so the store is read twice: once to infer,
//! once to apply.

use std::sync::Arc;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::critical_path::{TracePath, analyse};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::Segmenter;

use super::infer::Inference;
use super::source::{Notes, QueryError, Selection, Source};

/// One trace's critical path.
#[derive(Debug)]
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

/// All critical paths together.
#[derive(Debug)]
pub struct Paths {
    /// Per segment.
    pub aggregate: PathAggregate,
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
    // The model knows all labels by now; interning finds them again under the same numbers.
    let mut labels = inference.model.labels().clone();
    let mut segmenter = Segmenter::default();
    source.for_each_trace("finding critical paths", selection, |records, _| {
        if let Some(alignment) = &inference.alignment {
            alignment.apply(records);
        }
        let (trace, _) = segmenter.segment(records, &mut labels);
        let path = analyse(&trace, &inference.relations);
        visit(TraceAnswer { id: trace.id, name: trace.name, path })
    })
}

/// The critical paths of all selected traces together.
///
/// # Errors
/// When the store cannot be listed.
pub fn aggregate(source: &Source, selection: Selection, inference: &Inference) -> Result<Paths, QueryError> {
    let mut aggregate = PathAggregate::new();
    let notes = each_path(source, selection, inference, |answer| {
        aggregate.observe(&answer.path);
        true
    })?;
    Ok(Paths { aggregate, notes })
}
