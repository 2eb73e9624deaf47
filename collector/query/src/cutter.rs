//! Cuts traces into segments by a model, and finds their critical paths.

use std::collections::BTreeMap;

use stroboscope_analysis::critical_path::{
    SlackUse, TracePath, analyse_for, drop_unsure_slack, settle,
};
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::{SegmentedTrace, Segmenter};

use super::infer::{IsExcluded, exclusion, segmenter};
use super::inference::Inference;
use super::notes::Notes;

pub(super) struct Cutter {
    /// Labels of the model, and of other segments that were cut.
    pub(super) labels: Labels,
    segmenter: Segmenter,
    excluded: Exclusion<IsExcluded>,
    /// Number of flaws in the traces, by cause.
    diagnostics: BTreeMap<&'static str, u64>,
}

impl Cutter {
    pub(super) fn of(inference: &Inference) -> Self {
        Self {
            // A label that the model has keeps its number when it is interned again.
            labels: inference.model.labels().clone(),
            segmenter: segmenter(inference.trailing_elements),
            excluded: exclusion(inference.exclude.as_ref()),
            diagnostics: BTreeMap::new(),
        }
    }

    /// Aligns the timestamps of records, cuts the records into segments, removes the segments that
    /// the model left out, and finds the critical path.
    pub(super) fn path(
        &mut self,
        inference: &Inference,
        records: &mut TraceRecords,
    ) -> (SegmentedTrace, TracePath) {
        self.path_for(inference, records, SlackUse::Needed)
    }

    /// Cuts records like [`path`](Self::path), and finds the segments' slack only if it is needed.
    pub(super) fn path_for(
        &mut self,
        inference: &Inference,
        records: &mut TraceRecords,
        slack: SlackUse,
    ) -> (SegmentedTrace, TracePath) {
        inference.align(records);
        let (mut trace, diagnostics) = self.segmenter.segment(records, &mut self.labels);
        for diagnostic in &diagnostics {
            *self.diagnostics.entry(diagnostic.cause()).or_default() += 1;
        }
        self.excluded.remove_from(&mut trace, &self.labels);
        // Removes segments that the model left out for lack of memory. They have no relations.
        let model = &inference.model;
        let is_known = |id| model.segment_counts(id).traces > 0;
        trace
            .segments
            .retain(|segment| segment.id.index() >= model.labels().len() || is_known(segment.id));
        settle(&mut trace, &inference.relations);
        let mut path = analyse_for(&trace, &inference.relations, slack);
        if slack == SlackUse::Needed {
            drop_unsure_slack(&trace, &mut path);
        }
        (trace, path)
    }

    /// Adds the flaws of the traces, and the number of segments that the exclusion pattern removed.
    pub(super) fn add_to(&self, notes: &mut Notes) {
        notes.excluded_segments += self.excluded.removed();
        for (cause, count) in &self.diagnostics {
            *notes.diagnostics.entry((*cause).into()).or_default() += count;
        }
    }
}
