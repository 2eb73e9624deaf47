//! Pipelines of a model.

use stroboscope_analysis::model::{Pipeline, Relations};

use stroboscope_render::rows;

pub struct PipelineRow<'a>(&'a Pipeline);

/// Returns the pipelines of a model as rows of a table.
pub fn pipeline_rows(relations: &Relations) -> Vec<PipelineRow<'_>> {
    relations.all_pipelines().iter().map(PipelineRow).collect()
}

rows! {
    PipelineRow<'_> as row, "believed_pipelines": "Two tasks of which the second works on an element after the first did.";
    first: Text, "one task" = &*row.0.first;
    then: Text, "the next" = &*row.0.second;
    traces: Count, "traces" = row.0.support.cooccurrences;
    elements: Count, "elements" = row.0.elements;
}
