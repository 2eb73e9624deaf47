//! What if a segment took less time, or more? Each request is replayed by the model.

use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::what_if::{Change, LatencyChange, WhatIf};

use super::infer::Inference;
use super::paths::{Visit, fold_traces};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// Latency before and after a change.
#[derive(Debug)]
pub struct WhatIfReport {
    /// The segments that were changed, in order of their numbers.
    pub segments: Vec<SegmentId>,
    /// Over all requests, also those that have none of the segments.
    pub latency: LatencyChange,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Replays all selected traces with the segments changed for which `is_chosen` holds.
///
/// # Errors
/// When it holds for none, or the store cannot be listed.
pub fn what_if(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    change: Change,
    is_chosen: impl Fn(SegmentId, &SegmentLabel) -> bool,
) -> Result<WhatIfReport, QueryError> {
    let chosen = inference.segments().filter(|(id, label)| is_chosen(*id, label));
    let segments: Vec<SegmentId> = chosen.map(|(id, _)| id).collect();
    if segments.is_empty() {
        return Err(QueryError::NoSuchSegment {
            data: source.name(),
            segments: inference.segments().count(),
        });
    }
    let chosen = |id: SegmentId, _: &SegmentLabel| segments.binary_search(&id).ok().map(|_| change);
    let new = || (WhatIf::new(chosen), LatencyChange::default());
    let keys = AttributeKeys::none();
    let (parts, notes) =
        fold_traces("replaying", source, selection, inference, &keys, new, |(what_if, latency), visit| {
            let Visit { trace, labels, path, .. } = visit;
            latency.observe(path.latency_ns, what_if.replay(&trace, &path, &inference.relations, labels));
        })?;
    let mut latency = LatencyChange::default();
    parts.iter().for_each(|(_, of_part)| latency.merge(of_part));
    Ok(WhatIfReport { segments, latency, notes })
}
