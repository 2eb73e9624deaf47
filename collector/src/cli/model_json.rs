//! Parts of a model, as several verbs show them.

use std::borrow::Cow;

use serde_json::{Value, json};
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Model, Pipeline, Relations};

use stroboscope_present::show::{Cell, Column, Kind, Row, SegmentName, TableSpec};

/// The segments as the contract has them.
pub(super) fn segments_json(model: &Model) -> Vec<Value> {
    let segment = |(id, label): (SegmentId, &SegmentLabel)| {
        let counts = model.segment_counts(id);
        json!({
            "id": id.0,
            "task": &*label.task,
            "start": &*label.start,
            "end": &*label.end,
            "count": counts.occurrences,
            "traces": counts.traces,
        })
    };
    let is_seen = |(id, _): &(SegmentId, &SegmentLabel)| model.segment_counts(*id).traces > 0;
    model.labels().iter().filter(is_seen).map(segment).collect()
}

pub(super) fn pipelines_json(relations: &Relations) -> Vec<Value> {
    let pipeline = |pipeline: &Pipeline| json!({"first": &*pipeline.first, "second": &*pipeline.second, "elements": pipeline.elements});
    relations.all_pipelines().iter().map(pipeline).collect()
}

/// A segment of the model.
pub(super) struct SegmentRow<'a> {
    pub name: SegmentName,
    pub label: &'a SegmentLabel,
    pub occurrences: u64,
    pub traces: u64,
}

impl Row for SegmentRow<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "model_segments",
        about: "A segment of the model.",
        columns: Cow::Borrowed(&[
            Column::new("segment", "segment", Kind::Segment),
            Column::new("id", "", Kind::Count),
            Column::new("task", "", Kind::Text),
            Column::new("start", "", Kind::Text),
            Column::new("end", "", Kind::Text),
            Column::new("occurrences", "occurs", Kind::Count),
            Column::new("traces", "in traces", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&self.name).into(),
            u64::from(self.name.id().0).into(),
            (&*self.label.task).into(),
            (&*self.label.start).into(),
            (&*self.label.end).into(),
            self.occurrences.into(),
            self.traces.into(),
        ]
    }
}
