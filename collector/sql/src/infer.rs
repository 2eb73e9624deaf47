//! `infer` as an aggregate function: the streaming driver, applied to rows that DataFusion has
//! grouped.
//!
//! `infer(trace_id, spans, events)` takes one row per trace, as the view `traces` returns them. It
//! returns a model in the format of `infer --save`. Its partial state is also a model, and models
//! can be merged. A plan may therefore have any number of partitions. Traces of several requests
//! are divided as in the subcommand `infer`.
//!
//! Clocks that provably differ are corrected as in the subcommand `infer`. The correction uses the
//! round trips of all complete traces of the store, even if the query selects only some.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, ListArray, RecordBatch, StructArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::segment::Segmenter;

use stroboscope_query::alignment;
use stroboscope_query::{Notes, Selection, Source};
use stroboscope_query::{model_from_json, model_to_json};
use stroboscope_store::tables::{
    AttributeKeys, ColumnInfo, ELEMENT, EventAttacher, LeftOut, RecordDecoder, StoreTable,
    attribute_field, sort_spans,
};

use crate::StoredTable;

/// Returns the query of the view `traces`: one row per trace, with all its records, in the form
/// that `infer` takes. `tables` lists the tables that have files in the store.
pub(super) fn traces_view(tables: &[StoredTable]) -> String {
    let stored = |table: StoreTable| tables.iter().find(|of| of.table == table);
    let grouped = |of: &StoredTable, others: &str| {
        let field = |name: &str| format!("'{name}', \"{name}\"");
        let names = of.table.record_columns().into_iter();
        let names = names.map(|column| field(column.name));
        let elements = of.attributes.iter();
        let elements = elements.filter(|column| is_element(column.name()));
        let elements = elements.map(|column| field(column.name()));
        let fields: Vec<String> = names.chain(elements).collect();
        let (name, fields) = (of.table.name(), fields.join(", "));
        format!(
            "SELECT trace_id, array_agg(named_struct({fields})) AS {name}{others} FROM {name} GROUP BY trace_id"
        )
    };
    match (stored(StoreTable::Spans), stored(StoreTable::Events)) {
        (Some(spans), Some(events)) => format!(
            "SELECT coalesce(s.trace_id, e.trace_id) AS trace_id, s.spans, e.events FROM ({}) AS s \
             FULL JOIN ({}) AS e ON s.trace_id = e.trace_id",
            grouped(spans, ""),
            grouped(events, "")
        ),
        (Some(spans), None) => grouped(spans, ", NULL AS events"),
        (None, Some(events)) => format!(
            "SELECT trace_id, NULL AS spans, events FROM ({})",
            grouped(events, "")
        ),
        // A store without spans and events has been rejected before.
        (None, None) => "SELECT NULL AS trace_id, NULL AS spans, NULL AS events".to_owned(),
    }
}

fn is_element(column: &str) -> bool {
    attribute_field(column).is_some_and(|(key, _)| key == ELEMENT)
}

/// Aggregate function `infer`; see the [module](self). Like the subcommand by default, it skips
/// incomplete traces: for example, fragments, and traces that a recorded loss may affect.
#[derive(Debug)]
pub(super) struct InferFunction {
    source: Arc<Source>,
    clocks: Arc<Clocks>,
    signature: Signature,
}

impl InferFunction {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self {
            source,
            clocks: Arc::default(),
            signature: Signature::any(3, Volatility::Immutable),
        }
    }
}

impl PartialEq for InferFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }
}

impl Eq for InferFunction {}

impl Hash for InferFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Arc::as_ptr(&self.source) as usize).hash(state);
    }
}

impl AggregateUDFImpl for InferFunction {
    fn name(&self) -> &str {
        "infer"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(
            format!("{}[model]", args.name),
            DataType::Binary,
            true,
        ))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(InferenceState {
            source: self.source.clone(),
            clocks: self.clocks.clone(),
            segmenter: Segmenter::default(),
            decoder: RecordDecoder::new(AttributeKeys::none().with_elements()),
            attacher: EventAttacher::default(),
            model: Model::new(),
        }))
    }
}

/// Correction of the clocks, computed on first use; `None` if no clock needs one.
#[derive(Debug, Default)]
struct Clocks(OnceLock<std::result::Result<Option<Alignment>, String>>);

impl Clocks {
    fn alignment(&self, source: &Source) -> Result<Option<&Alignment>> {
        let found = self.0.get_or_init(|| {
            // This runs on a thread of its own, because threads that run futures must not read the
            // store.
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| alignment(source, Selection::default()));
                let found = reading
                    .join()
                    .map_err(|_| "comparing clocks failed".to_owned())?;
                found.map_err(|error| error.to_string())
            })
        });
        let found = found.as_ref().map(Option::as_ref);
        found.map_err(|error| DataFusionError::Execution(error.clone()))
    }
}

#[derive(Debug)]
struct InferenceState {
    source: Arc<Source>,
    clocks: Arc<Clocks>,
    segmenter: Segmenter,
    decoder: RecordDecoder,
    attacher: EventAttacher,
    model: Model,
}

impl Accumulator for InferenceState {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [ids, spans, events] = values else {
            let text = "infer takes trace_id, spans, events";
            return Err(DataFusionError::Execution(text.to_owned()));
        };
        let Some(ids) = ids.as_any().downcast_ref::<FixedSizeBinaryArray>() else {
            return Err(unreadable("trace_id is not of 16 bytes"));
        };
        let (spans, events) = (lists(spans), lists(events));
        let alignment = self.clocks.alignment(&self.source)?;
        let mut notes = Notes::default();
        for row in 0..ids.len() {
            let id = <[u8; 16]>::try_from(ids.value(row)).map_or(0, u128::from_be_bytes);
            // Trace id 0 marks records outside any request.
            if id == 0 {
                continue;
            }
            let mut records = TraceRecords {
                id: TraceId(id),
                ..TraceRecords::default()
            };
            let mut read = Vec::new();
            if let Some(spans) = rows_of(spans.as_ref(), row) {
                let rows = as_stored(StoreTable::Spans, &spans)?;
                self.decoder
                    .add_spans(&rows, &mut records)
                    .map_err(|reason| unreadable(&reason))?;
                // Restores the order of the store; the engine may return rows in any order.
                sort_spans(&mut records.spans);
            }
            if let Some(events) = rows_of(events.as_ref(), row) {
                let rows = as_stored(StoreTable::Events, &events)?;
                self.decoder
                    .add_events(&rows, &mut read)
                    .map_err(|reason| unreadable(&reason))?;
                read.sort_by_key(|event| (event.time_ns, event.seq));
            }
            self.attacher
                .attach(&mut records, &mut read, &mut LeftOut::default());
            let source = &self.source;
            source.for_each_request(&mut records, &mut notes, |records, notes| {
                if source.takes(records, Selection::default(), notes) {
                    if let Some(alignment) = alignment {
                        alignment.apply(records);
                    }
                    let (trace, _) = self.segmenter.segment(records, self.model.labels_mut());
                    self.model.observe(&trace);
                }
                true
            });
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(
            model_to_json(&self.model).into_bytes(),
        ))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let models: &BinaryArray = states
            .first()
            .and_then(|states| states.as_any().downcast_ref())
            .ok_or_else(|| DataFusionError::Internal("infer: a state is no model".to_owned()))?;
        for bytes in models.iter().flatten() {
            let model =
                model_from_json(bytes).map_err(|error| DataFusionError::External(error.into()))?;
            self.model.merge(&model);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8(Some(model_to_json(
            &self.model.canonical(),
        ))))
    }

    fn size(&self) -> usize {
        // Estimate in bytes: each segment has a block of counters for every 64 segments.
        size_of_val(self)
            + self.model.labels().len() * self.model.labels().len().div_ceil(64) * 2_200
    }
}

/// Returns a column of lists. Returns `None` for a column of another type, such as one without a
/// type, which is null in every row.
fn lists(column: &ArrayRef) -> Option<ListArray> {
    column.as_any().downcast_ref::<ListArray>().cloned()
}

fn rows_of(lists: Option<&ListArray>, row: usize) -> Option<StructArray> {
    let lists = lists.filter(|lists| lists.is_valid(row))?;
    let row = lists.value(row);
    row.as_any().downcast_ref::<StructArray>().cloned()
}

/// Converts structs to rows of their table. Casts each field to the column's type, because an
/// engine may have changed it to an equivalent type.
fn as_stored(table: StoreTable, rows: &StructArray) -> Result<RecordBatch> {
    let column = |info: &ColumnInfo| {
        let column = rows.column_by_name(info.name).ok_or_else(|| {
            let (table, name) = (table.name(), info.name);
            unreadable(&format!(
                "the {table} have no field {name}; the view `traces` has all that it takes"
            ))
        })?;
        Ok(cast(column, &info.data_type)?)
    };
    let infos = table.record_columns();
    let mut columns = infos.iter().map(column).collect::<Result<Vec<_>>>()?;
    let field = |info: &ColumnInfo| Field::new(info.name, info.data_type.clone(), true);
    let mut fields: Vec<Field> = infos.iter().map(field).collect();
    for (found, values) in rows.fields().iter().zip(rows.columns()) {
        if let Some((_, field)) = attribute_field(found.name()) {
            columns.push(cast(values, field.data_type())?);
            fields.push(field);
        }
    }
    let schema = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn unreadable(reason: &str) -> DataFusionError {
    DataFusionError::Execution(format!("infer: {reason}"))
}
