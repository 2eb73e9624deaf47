//! Parts of a model, shared by several subcommands.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::model::{Model, Relation, Relations};

use stroboscope_render::rows;
use stroboscope_render::show::SegmentName;

/// A segment of a model, with the number of its occurrences.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SegmentEntry<'a> {
    /// Number by which relations refer to the segment.
    id: u32,
    task: &'a str,
    start: &'a str,
    end: &'a str,
    /// Number of times that the segment occurred.
    count: u64,
    /// Number of traces with the segment.
    traces: u64,
}

/// Returns the segments of a model that occurred in its traces.
pub(crate) fn segment_entries(model: &Model) -> Vec<SegmentEntry<'_>> {
    let mut entries = Vec::new();
    for (id, SegmentLabel { task, start, end }) in model.labels().iter() {
        let seen = model.segment_counts(id);
        if seen.traces > 0 {
            let (count, traces) = (seen.occurrences, seen.traces);
            entries.push(SegmentEntry {
                id: id.0,
                task,
                start,
                end,
                count,
                traces,
            });
        }
    }
    entries
}

/// A relation between two segments, with its support.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RelationEntry {
    pub first: u32,
    pub second: u32,
    /// Number of traces with both segments.
    pub traces: u64,
    pub contradictions: u64,
}

impl From<&Relation> for RelationEntry {
    fn from(relation: &Relation) -> Self {
        Self {
            first: relation.first.0,
            second: relation.second.0,
            traces: relation.support.cooccurrences,
            contradictions: relation.support.contradictions,
        }
    }
}

/// Two tasks where the second works on an element after the first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PipelineEntry<'a> {
    first: &'a str,
    second: &'a str,
    elements: u64,
}

pub(crate) fn pipeline_entries(relations: &Relations) -> Vec<PipelineEntry<'_>> {
    let pipelines = relations.all_pipelines().iter();
    let entries = pipelines.map(|pipeline| PipelineEntry {
        first: &pipeline.first,
        second: &pipeline.second,
        elements: pipeline.elements,
    });
    entries.collect()
}

/// Relations as pairs of segments' numbers. Serializes them one by one, without intermediate
/// values, because there may be millions.
#[derive(Debug)]
pub(crate) struct Pairs<'a>(pub &'a [Relation]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0
                .iter()
                .map(|relation| [relation.first.0, relation.second.0]),
        )
    }
}

pub(crate) struct SegmentRow<'a> {
    pub name: SegmentName,
    pub label: &'a SegmentLabel,
    pub occurrences: u64,
    pub traces: u64,
}

rows! {
    SegmentRow<'_> as row, "model_segments": "A segment of the model.";
    segment: Segment, "segment" = &row.name;
    id: Count, "" = u64::from(row.name.id().0);
    task: Text, "" = &*row.label.task;
    start: Text, "" = &*row.label.start;
    end: Text, "" = &*row.label.end;
    occurrences: Count, "occurs" = row.occurrences;
    traces: Count, "in traces" = row.traces;
}
