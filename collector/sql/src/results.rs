//! Results as tables: `segments`, `relations`, `pipelines` and `paths`, computed when a query reads
//! them. The model is inferred once.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::Relation;

use super::given::GivenTable;
use stroboscope_query::{Inference, Paths, PathsQuestion, QueryError, Study};

/// Kind of the results in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultKind {
    Segments,
    Relations,
    Pipelines,
    Paths,
}

impl ResultKind {
    pub(super) const ALL: [Self; 4] = [
        Self::Segments,
        Self::Relations,
        Self::Pipelines,
        Self::Paths,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Relations => "relations",
            Self::Pipelines => "pipelines",
            Self::Paths => "paths",
        }
    }

    fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        let number = |name: &str| Field::new(name, DataType::UInt64, false);
        let real = |name: &str| Field::new(name, DataType::Float64, false);
        Arc::new(Schema::new(match self {
            Self::Segments => vec![
                number("id"),
                text("task"),
                text("start"),
                text("end"),
                number("count"),
                number("traces"),
            ],
            Self::Relations => vec![
                text("kind"),
                number("first"),
                number("second"),
                number("together"),
                number("contradicted"),
            ],
            Self::Pipelines => vec![
                text("first"),
                text("second"),
                number("together"),
                number("contradicted"),
                number("elements"),
            ],
            Self::Paths => vec![
                number("segment"),
                number("traces"),
                number("occurrences"),
                number("critical_traces"),
                real("mean_share"),
                real("mean_wait_share"),
                number("duration_p50_ns"),
                number("duration_p95_ns"),
                number("duration_p99_ns"),
                number("slack_p50_ns"),
                number("slack_p95_ns"),
                number("slack_p99_ns"),
            ],
        }))
    }
}

fn columns(kind: ResultKind, study: &Study) -> Result<Vec<ArrayRef>, QueryError> {
    Ok(match kind {
        ResultKind::Segments => segments(study.inference()?),
        ResultKind::Relations => relations(study.inference()?),
        ResultKind::Pipelines => pipelines(study.inference()?),
        ResultKind::Paths => paths(&study.ask(&PathsQuestion::default())?),
    })
}

fn paths(found: &Paths) -> Vec<ArrayRef> {
    let (traces, all) = (found.aggregate.traces(), || {
        found.aggregate.segments().map(|(_, all)| all)
    });
    let (duration, slack): (Vec<_>, Vec<_>) = all()
        .map(|of| (of.duration.percentiles(), of.slack.percentiles()))
        .unzip();
    vec![
        numbers(found.aggregate.segments().map(|(id, _)| u64::from(id.0))),
        numbers(all().map(|of| of.traces.rounded())),
        numbers(all().map(|of| of.occurrences.rounded())),
        numbers(all().map(|of| of.critical_traces.rounded())),
        Arc::new(Float64Array::from_iter_values(
            all().map(|of| of.shares().mean(traces)),
        )),
        Arc::new(Float64Array::from_iter_values(
            all().map(|of| of.wait_shares.mean(traces)),
        )),
        numbers(duration.iter().map(|of| of.p50_ns)),
        numbers(duration.iter().map(|of| of.p95_ns)),
        numbers(duration.iter().map(|of| of.p99_ns)),
        numbers(slack.iter().map(|of| of.p50_ns)),
        numbers(slack.iter().map(|of| of.p95_ns)),
        numbers(slack.iter().map(|of| of.p99_ns)),
    ]
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn texts<Text: AsRef<str>>(values: impl Iterator<Item = Text>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn segments(inference: &Inference) -> Vec<ArrayRef> {
    let counts = |id: SegmentId| inference.model.segment_counts(id);
    vec![
        numbers(inference.segments().map(|(id, _)| u64::from(id.0))),
        texts(inference.segments().map(|(_, label)| &*label.task)),
        texts(inference.segments().map(|(_, label)| &*label.start)),
        texts(inference.segments().map(|(_, label)| &*label.end)),
        numbers(inference.segments().map(|(id, _)| counts(id).occurrences)),
        numbers(inference.segments().map(|(id, _)| counts(id).traces)),
    ]
}

fn relations(inference: &Inference) -> Vec<ArrayRef> {
    let of = |kind: &'static str, relations: &[Relation]| -> Vec<(&'static str, Relation)> {
        relations.iter().map(|relation| (kind, *relation)).collect()
    };
    let mut all = of("happens-before", inference.relations.all_happens_before());
    let exclusions = inference.relations.all_mutual_exclusion();
    all.extend(of("mutual exclusion", exclusions));
    let relations = || all.iter().map(|(_, relation)| relation);
    vec![
        texts(all.iter().map(|(kind, _)| *kind)),
        numbers(relations().map(|relation| u64::from(relation.first.0))),
        numbers(relations().map(|relation| u64::from(relation.second.0))),
        numbers(relations().map(|relation| relation.support.cooccurrences)),
        numbers(relations().map(|relation| relation.support.contradictions)),
    ]
}

fn pipelines(inference: &Inference) -> Vec<ArrayRef> {
    let all = inference.relations.all_pipelines();
    vec![
        texts(all.iter().map(|pipeline| &*pipeline.first)),
        texts(all.iter().map(|pipeline| &*pipeline.second)),
        numbers(all.iter().map(|pipeline| pipeline.support.cooccurrences)),
        numbers(all.iter().map(|pipeline| pipeline.support.contradictions)),
        numbers(all.iter().map(|pipeline| pipeline.elements)),
    ]
}

/// Table of analysis results, computed when a query reads it.
#[derive(Debug)]
pub(super) struct ResultTable {
    pub(super) kind: ResultKind,
    pub(super) study: Arc<Study>,
}

impl GivenTable for ResultTable {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn schema(&self) -> SchemaRef {
        self.kind.schema()
    }

    fn rows(&self) -> Result<RecordBatch, String> {
        let found = columns(self.kind, &self.study).map_err(|error| error.to_string())?;
        RecordBatch::try_new(self.schema(), found).map_err(|error| error.to_string())
    }
}
