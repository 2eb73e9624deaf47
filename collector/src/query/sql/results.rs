//! Results as tables: `segments`, `relations`, `pipelines` and `paths`, computed when a query first reads one.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Float64Array, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::Relation;

use super::super::{Inference, Selection, Source, aggregate, infer};

/// What is inferred once for all tables of a session.
#[derive(Debug)]
pub(super) struct Results {
    source: Arc<Source>,
    inference: Mutex<Option<Arc<Inference>>>,
}

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultKind {
    Segments,
    Relations,
    Pipelines,
    Paths,
}

impl ResultKind {
    pub(super) const ALL: [Self; 4] = [Self::Segments, Self::Relations, Self::Pipelines, Self::Paths];

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
            Self::Segments => {
                vec![
                    number("id"),
                    text("task"),
                    text("start"),
                    text("end"),
                    number("count"),
                    number("traces"),
                ]
            }
            Self::Relations => {
                vec![
                    text("kind"),
                    number("first"),
                    number("second"),
                    number("together"),
                    number("contradicted"),
                ]
            }
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

impl Results {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self { source, inference: Mutex::new(None) }
    }

    fn inference(&self) -> Result<Arc<Inference>> {
        let mut known = self.inference.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inference) = &*known {
            return Ok(inference.clone());
        }
        let inference = infer(&self.source, Selection::default(), 0.0).map_err(external)?;
        Ok(known.insert(Arc::new(inference)).clone())
    }

    /// The rows of a table. Blocks.
    fn rows(&self, kind: ResultKind) -> Result<RecordBatch> {
        let inference = self.inference()?;
        let columns = match kind {
            ResultKind::Segments => segments(&inference),
            ResultKind::Relations => relations(&inference),
            ResultKind::Pipelines => pipelines(&inference),
            ResultKind::Paths => self.paths(&inference)?,
        };
        Ok(RecordBatch::try_new(kind.schema(), columns)?)
    }

    fn paths(&self, inference: &Inference) -> Result<Vec<ArrayRef>> {
        let found = aggregate(&self.source, Selection::default(), inference).map_err(external)?;
        let (traces, all) = (found.aggregate.traces(), || found.aggregate.segments().map(|(_, all)| all));
        let (duration, slack): (Vec<_>, Vec<_>) =
            all().map(|of| (of.duration.percentiles(), of.slack.percentiles())).unzip();
        Ok(vec![
            numbers(found.aggregate.segments().map(|(id, _)| u64::from(id.0))),
            numbers(all().map(|of| of.traces)),
            numbers(all().map(|of| of.occurrences)),
            numbers(all().map(|of| of.critical_traces)),
            Arc::new(Float64Array::from_iter_values(all().map(|of| of.shares().mean(traces)))),
            Arc::new(Float64Array::from_iter_values(all().map(|of| of.wait_shares.mean(traces)))),
            numbers(duration.iter().map(|of| of.p50_ns)),
            numbers(duration.iter().map(|of| of.p95_ns)),
            numbers(duration.iter().map(|of| of.p99_ns)),
            numbers(slack.iter().map(|of| of.p50_ns)),
            numbers(slack.iter().map(|of| of.p95_ns)),
            numbers(slack.iter().map(|of| of.p99_ns)),
        ])
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
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
    all.extend(of("mutual exclusion", inference.relations.all_mutual_exclusion()));
    vec![
        texts(all.iter().map(|(kind, _)| *kind)),
        numbers(all.iter().map(|(_, relation)| u64::from(relation.first.0))),
        numbers(all.iter().map(|(_, relation)| u64::from(relation.second.0))),
        numbers(all.iter().map(|(_, relation)| relation.support.cooccurrences)),
        numbers(all.iter().map(|(_, relation)| relation.support.contradictions)),
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

/// A table of results.
#[derive(Debug)]
pub(super) struct ResultTable {
    pub(super) kind: ResultKind,
    pub(super) results: Arc<Results>,
}

#[async_trait]
impl TableProvider for ResultTable {
    fn schema(&self) -> SchemaRef {
        self.kind.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (kind, results) = (self.kind, self.results.clone());
        let rows = tokio::task::spawn_blocking(move || results.rows(kind)).await.map_err(external)??;
        MemTable::try_new(self.schema(), vec![vec![rows]])?.scan(state, projection, filters, limit).await
    }
}
