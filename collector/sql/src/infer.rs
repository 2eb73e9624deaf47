//! `infer` as an aggregate function: what the streaming driver does, once more, over rows that any engine has grouped.
//!
//! `infer(trace_id, spans, events)` takes one row per trace, as the view `traces` gives them, and results in a model as
//! `infer --save` writes it. Its partial state is such a model too, and states are merged, so that a plan may have as many
//! partitions as it likes, and the function can run wherever DataFusion's plans do.
//!
//! Clocks that provably differ are corrected as `infer` does, by the round trips of all complete traces of the store,
//! whichever of them the query is about.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, FixedSizeBinaryArray, ListArray, StringArray, StructArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, UInt32Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::Segmenter;

use stroboscope_query::alignment;
use stroboscope_query::{Notes, Selection, Source};
use stroboscope_query::{model_from_json, model_to_json};
use stroboscope_store::tables::{
    Assembler, AttributeKeys, AttributeValues, EventRead, LeftOut, attach_attributes, parse_attributes,
};

/// One row per trace, with all its records, as `infer` wants them.
pub(super) const TRACES_VIEW: &str = "\
    SELECT coalesce(s.trace_id, e.trace_id) AS trace_id, s.spans, e.events \
    FROM (SELECT trace_id, array_agg(named_struct('span_id', span_id, 'parent_id', parent_id, \
            'service', service, 'name', name, 'host', host, 'process', process, 'start_ns', start_ns, \
            'end_ns', end_ns, 'flags', flags, 'attributes', attributes)) AS spans \
          FROM spans GROUP BY trace_id) AS s \
    FULL JOIN (SELECT trace_id, array_agg(named_struct('span_id', span_id, 'time_ns', time_ns, 'seq', seq, \
            'host', host, 'task', task, 'name', name, 'attributes', attributes)) AS events \
          FROM events GROUP BY trace_id) AS e \
    ON s.trace_id = e.trace_id";

/// The same, of a store without events.
pub(super) const TRACES_WITHOUT_EVENTS_VIEW: &str = "\
    SELECT trace_id, array_agg(named_struct('span_id', span_id, 'parent_id', parent_id, \
        'service', service, 'name', name, 'host', host, 'process', process, 'start_ns', start_ns, \
        'end_ns', end_ns, 'flags', flags, 'attributes', attributes)) AS spans, NULL AS events \
    FROM spans GROUP BY trace_id";

/// The same, of a store without spans.
pub(super) const TRACES_WITHOUT_SPANS_VIEW: &str = "\
    SELECT trace_id, NULL AS spans, array_agg(named_struct('span_id', span_id, 'time_ns', time_ns, 'seq', seq, \
        'host', host, 'task', task, 'name', name, 'attributes', attributes)) AS events \
    FROM events GROUP BY trace_id";

/// See the [module](self). Which traces are complete is judged by what the source knows of losses.
#[derive(Debug)]
pub(super) struct InferFunction {
    source: Arc<Source>,
    clocks: Arc<Clocks>,
    signature: Signature,
}

impl InferFunction {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self { source, clocks: Arc::default(), signature: Signature::any(3, Volatility::Immutable) }
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
        Ok(vec![Arc::new(Field::new(format!("{}[model]", args.name), DataType::Binary, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Inferring {
            source: self.source.clone(),
            clocks: self.clocks.clone(),
            segmenter: Segmenter::default(),
            assembler: Assembler::default(),
            model: Model::new(),
        }))
    }
}

/// How clocks are corrected: found out by whoever needs it first.
#[derive(Debug, Default)]
struct Clocks(OnceLock<std::result::Result<Option<Alignment>, String>>);

impl Clocks {
    fn alignment(&self, source: &Source) -> Result<Option<&Alignment>> {
        let found = self.0.get_or_init(|| {
            // On a thread of its own, as the store must not be read by threads that run futures.
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| alignment(source, Selection::default()));
                let found = reading.join().map_err(|_| "comparing clocks failed".to_owned())?;
                found.map_err(|error| error.to_string())
            })
        });
        found.as_ref().map(Option::as_ref).map_err(|error| DataFusionError::Execution(error.clone()))
    }
}

#[derive(Debug)]
struct Inferring {
    source: Arc<Source>,
    clocks: Arc<Clocks>,
    segmenter: Segmenter,
    assembler: Assembler,
    model: Model,
}

impl Accumulator for Inferring {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [ids, spans, events] = values else {
            return Err(DataFusionError::Execution("infer takes trace_id, spans, events".to_owned()));
        };
        let Some(ids) = ids.as_any().downcast_ref::<FixedSizeBinaryArray>() else {
            return Err(DataFusionError::Execution("infer: trace_id is not of 16 bytes".to_owned()));
        };
        let (spans, events) = (lists(spans), lists(events));
        let alignment = self.clocks.alignment(&self.source)?;
        let mut notes = Notes::default();
        let mut records = TraceRecords::default();
        for row in 0..ids.len() {
            let id = <[u8; 16]>::try_from(ids.value(row)).map_or(0, u128::from_be_bytes);
            // Records outside any request.
            if id == 0 {
                continue;
            }
            records.id = TraceId(id);
            records.spans.clear();
            records.events.clear();
            records.clocks.clear();
            records.elements.clear();
            records.attributes.clear();
            let mut read = Vec::new();
            if let Some(spans) = rows_of(spans.as_ref(), row) {
                read_spans(&spans, &mut records)?;
            }
            if let Some(events) = rows_of(events.as_ref(), row) {
                read_events(&events, &mut read)?;
            }
            self.assembler.attach(&mut records, &mut read, &mut LeftOut::default());
            if self.source.takes(&records, Selection::default(), &mut notes) {
                if let Some(alignment) = alignment {
                    alignment.apply(&mut records);
                }
                let (trace, _) = self.segmenter.segment(&records, self.model.labels_mut());
                self.model.observe(&trace);
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(model_to_json(&self.model).into_bytes()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let models: &BinaryArray = states
            .first()
            .and_then(|states| states.as_any().downcast_ref())
            .ok_or_else(|| DataFusionError::Internal("infer: a state is no model".to_owned()))?;
        for bytes in models.iter().flatten() {
            let model = model_from_json(bytes).map_err(|error| DataFusionError::External(error.into()))?;
            self.model.merge(&model);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8(Some(model_to_json(&self.model.canonical()))))
    }

    fn size(&self) -> usize {
        // About: a block of counters for each 64 neighbours of a segment.
        size_of_val(self) + self.model.labels().len() * self.model.labels().len().div_ceil(64) * 2_200
    }
}

/// A column of lists; none where it is null in every row, and has no type.
fn lists(column: &ArrayRef) -> Option<ListArray> {
    column.as_any().downcast_ref::<ListArray>().cloned()
}

fn rows_of(lists: Option<&ListArray>, row: usize) -> Option<StructArray> {
    let lists = lists.filter(|lists| lists.is_valid(row))?;
    lists.value(row).as_any().downcast_ref::<StructArray>().cloned()
}

/// A field of structs, as the type that is wanted.
fn field(rows: &StructArray, name: &str, kind: &DataType) -> Result<ArrayRef> {
    let column = rows
        .column_by_name(name)
        .ok_or_else(|| DataFusionError::Execution(format!("infer: the records have no {name}")))?;
    Ok(cast(column, kind)?)
}

fn texts(rows: &StructArray, name: &str) -> Result<StringArray> {
    Ok(field(rows, name, &DataType::Utf8)?.as_string::<i32>().clone())
}

fn text(texts: &StringArray, row: usize) -> Option<Arc<str>> {
    texts.is_valid(row).then(|| texts.value(row).into())
}

fn said(attributes: &StringArray, row: usize) -> AttributeValues {
    let elements = AttributeKeys::none().with_elements();
    let said = attributes
        .is_valid(row)
        .then(|| parse_attributes(attributes.value(row), &elements, |text| text.into()));
    said.flatten().unwrap_or_default()
}

fn read_spans(rows: &StructArray, records: &mut TraceRecords) -> Result<()> {
    let numbers = |name| field(rows, name, &DataType::UInt64);
    let times = |name| field(rows, name, &DataType::Int64);
    let (ids, parents) = (numbers("span_id")?, numbers("parent_id")?);
    let (starts, ends) = (times("start_ns")?, times("end_ns")?);
    let flags = field(rows, "flags", &DataType::UInt32)?;
    let (services, names, hosts) = (texts(rows, "service")?, texts(rows, "name")?, texts(rows, "host")?);
    let attributes = texts(rows, "attributes")?;
    let processes = field(rows, "process", &DataType::FixedSizeBinary(16))?;
    let processes = processes.as_fixed_size_binary();
    for row in 0..rows.len() {
        let span = SpanRecord {
            span_id: ids.as_primitive::<UInt64Type>().value(row),
            parent_id: parents.as_primitive::<UInt64Type>().value(row),
            service: text(&services, row).unwrap_or_default(),
            name: text(&names, row).unwrap_or_default(),
            host: text(&hosts, row).unwrap_or_default(),
            process: <[u8; 16]>::try_from(processes.value(row)).map_or(0, u128::from_be_bytes),
            start_ns: starts.as_primitive::<Int64Type>().value(row),
            end_ns: ends.as_primitive::<Int64Type>().value(row),
            flags: SpanFlags(flags.as_primitive::<UInt32Type>().value(row)),
            events: Vec::new(),
        };
        attach_attributes(records, RecordOwner::Span(span.span_id), said(&attributes, row));
        records.spans.push(span);
    }
    // As the store keeps them; what the engine makes of their order is its own business.
    records.spans.sort_by_key(|span| (span.start_ns, span.span_id));
    Ok(())
}

fn read_events(rows: &StructArray, read: &mut Vec<EventRead>) -> Result<()> {
    let ids = field(rows, "span_id", &DataType::UInt64)?;
    let times = field(rows, "time_ns", &DataType::Int64)?;
    let seqs = field(rows, "seq", &DataType::UInt32)?;
    let (hosts, tasks, names) = (texts(rows, "host")?, texts(rows, "task")?, texts(rows, "name")?);
    let attributes = texts(rows, "attributes")?;
    read.extend((0..rows.len()).map(|row| EventRead {
        trace_name: None,
        span_id: ids.as_primitive::<UInt64Type>().value(row),
        time_ns: times.as_primitive::<Int64Type>().value(row),
        seq: seqs.as_primitive::<UInt32Type>().value(row),
        host: text(&hosts, row).unwrap_or_default(),
        task: text(&tasks, row),
        name: text(&names, row).unwrap_or_default(),
        attributes: said(&attributes, row),
    }));
    read.sort_by_key(|event| (event.time_ns, event.seq));
    Ok(())
}
