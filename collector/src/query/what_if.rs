//! What if a segment took less time, or more? Each request is replayed by the model.

use std::collections::BTreeMap;

use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::what_if::{Change, LatencyChange, Waiting, WaitingSample, WhatIf};

use super::infer::Inference;
use super::paths::{Visit, fold_traces};
use super::source::{Notes, QueryError, Selection, Source};
use crate::store::AttributeKeys;

/// Latency before and after a change.
#[derive(Debug)]
pub struct WhatIfReport {
    /// The segments that were changed, in order of their numbers.
    pub segments: Vec<SegmentId>,
    /// Over all requests, also those that have none of the segments. What was seen to wait does nothing else.
    pub latency: LatencyChange,
    /// The same, if what was seen to wait worked before it for as long as it can have.
    pub longest: LatencyChange,
    /// The first of these by root operation: those with callers first, the ones with the most time first.
    pub by_root: Vec<(String, LatencyChange)>,
    /// How many segments were found to wait for others, inside and before their start.
    pub waiting: (usize, usize),
    /// What was noticed on the way.
    pub notes: Notes,
}

/// Replays all selected traces with the segments changed for which `is_chosen` holds. Reads them twice: to learn what
/// waits for what, then to replay them.
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
    let waiting = learn(source, selection, inference)?;
    let new = || {
        (WhatIf::new(&waiting, chosen), BTreeMap::<String, LatencyChange>::new(), LatencyChange::default())
    };
    let keys = AttributeKeys::none();
    let (parts, notes) = fold_traces(
        "replaying",
        source,
        selection,
        inference,
        &keys,
        new,
        |(what_if, by_root, longest), visit| {
            let Visit { records, trace, labels, path } = visit;
            let replayed = what_if.replay(&trace, &path, labels);
            let root = inference.known_root(records);
            by_root.entry(root).or_default().observe(path.latency_ns, replayed.latency_ns);
            longest.observe(path.latency_ns, replayed.longest_ns);
        },
    )?;
    let (mut by_root, mut longest) = (BTreeMap::<String, LatencyChange>::new(), LatencyChange::default());
    for (_, of_part, longest_of_part) in parts {
        of_part.into_iter().for_each(|(root, change)| by_root.entry(root).or_default().merge(&change));
        longest.merge(&longest_of_part);
    }
    let mut latency = LatencyChange::default();
    by_root.values().for_each(|of_root| latency.merge(of_root));
    let by_root = inference.ranked(by_root);
    Ok(WhatIfReport { segments, latency, longest, by_root, waiting: waiting.found(), notes })
}

/// What waits for what in the selected traces.
fn learn(source: &Source, selection: Selection, inference: &Inference) -> Result<Waiting, QueryError> {
    let (what, keys) = ("looking for what waits", AttributeKeys::none());
    let (parts, _) = fold_traces(
        what,
        source,
        selection,
        inference,
        &keys,
        WaitingSample::default,
        |sample: &mut WaitingSample, visit| sample.observe(&visit.trace),
    )?;
    let mut sample = WaitingSample::default();
    parts.into_iter().for_each(|of_part| sample.merge(of_part));
    Ok(Waiting::learn(&sample, &inference.relations, inference.model.labels()))
}
