//! Pipelines that a model believes.

use std::borrow::Cow;

use stroboscope_analysis::model::{Pipeline, Relations};

use stroboscope_present::show::{Cell, Column, Kind, Row, TableSpec};

pub(in super::super) struct PipelineRow<'a>(&'a Pipeline);

/// The pipelines of a model.
pub(in super::super) fn pipeline_rows(relations: &Relations) -> Vec<PipelineRow<'_>> {
    relations.all_pipelines().iter().map(PipelineRow).collect()
}

impl Row for PipelineRow<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "believed_pipelines",
        about: "Two tasks of which the second works on an element after the first did.",
        columns: Cow::Borrowed(&[
            Column::new("first", "one task", Kind::Text),
            Column::new("then", "the next", Kind::Text),
            Column::new("traces", "traces", Kind::Count),
            Column::new("elements", "elements", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.0.first).into(),
            (&*self.0.second).into(),
            self.0.support.cooccurrences.into(),
            self.0.elements.into(),
        ]
    }
}
