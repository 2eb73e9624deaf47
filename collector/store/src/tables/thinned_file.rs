//! Writes a file of a table without the rows of the requests that thinning drops.
//!
//! The other rows stay as they are, except that spans of reweighted requests get a new
//! `tracestate`.

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array as _, ArrayAccessor as _, ArrayRef, BooleanArray, DictionaryArray, RecordBatch,
    StringArray,
};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use stroboscope_analysis::thinning::{NewThreshold, ThinningDecision, ThinningRule};

use super::attributes::TRACE_STATE;
use super::batch_column::column;
use super::checksum::{ChecksumWriter, seal};
use super::compact::MergeError;
use super::names::{ATTRIBUTES, THINNED_KEY};
use super::objects::Store;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::Damage;
use super::row_merge::KeyedBatches as _;
use super::shredding::{AttributeColumn, without_text};
use super::sorted_file::{SortedFile, union};
use super::staged::StagedObject;
use super::stored_operations::FactsWriter;
use super::thinning_log::{ThinningLog, ThinningTask};
use super::write::properties;

/// Result of thinning a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinnedFile {
    /// Number of rows that were dropped.
    pub(crate) dropped_rows: u64,
    /// Size of the thinned file, in bytes.
    pub(crate) bytes: u64,
}

/// Writes `file` to `path` durably, without the requests that `log` drops.
///
/// # Errors
/// Returns an error if the file is damaged, if the store or the log fails, or if `goes_on` returned
/// false.
pub(crate) fn thin_file(
    store: &Store,
    table: StoreTable,
    file: &(Path, u64),
    path: &Path,
    (of, log): (&ThinningTask, &mut ThinningLog),
    goes_on: &dyn Fn() -> bool,
) -> Result<ThinnedFile, MergeError> {
    let damaged = |reason: String| MergeError::Damaged(Damage::new(store.display(&file.0), reason));
    let budget = ReadBudget::of(1);
    let opened = SortedFile::open(store, table, file, budget).map_err(damaged)?;
    let schema = union(table, std::slice::from_ref(&opened)).map_err(damaged)?;
    let schema = match table {
        StoreTable::Spans => with_tracestate(&schema),
        _ => schema,
    };
    let batches = opened.batches(&schema, budget.batch_rows);
    let mut batches = batches.map_err(damaged)?;
    let mut decisions = log.read()?;
    let mut staged = StagedObject::begin(store, path)?;
    let write = || -> Result<ThinnedFile, MergeError> {
        let to = ChecksumWriter::new(&mut staged);
        let mut writer = ArrowWriter::try_new(to, schema, Some(properties(table)?))?;
        let mut facts = FactsWriter::of(table, opened.rows());
        let (mut rows, mut dropped_rows) = (0, 0);
        while let Some((batch, keys)) = batches.next().map_err(damaged)? {
            if !goes_on() {
                return Err(MergeError::Stopped);
            }
            let mut is_kept = Vec::with_capacity(keys.len());
            let mut changes = Vec::new();
            for [trace_id, ..] in &keys {
                let decision = decisions.decision(*trace_id)?;
                is_kept.push(decision != ThinningDecision::Dropped);
                match decision {
                    ThinningDecision::Dropped => {}
                    ThinningDecision::Unchanged => changes.push(None),
                    ThinningDecision::Reweighted(of) => changes.push(Some(of)),
                }
            }
            rows += keys.len() as u64;
            dropped_rows += (keys.len() - changes.len()) as u64;
            let mut kept = filter_record_batch(&batch, &BooleanArray::from(is_kept))?;
            if table == StoreTable::Spans {
                kept = reweighted(&kept, &of.rule, &changes).map_err(damaged)?;
            }
            facts.iter_mut().for_each(|facts| facts.observe(&kept));
            writer.write(&kept)?;
        }
        if rows != opened.rows() {
            let expected = opened.rows();
            return Err(damaged(format!("it has {rows} rows, not {expected}")));
        }
        seal(&mut writer, facts)?;
        let ratio = KeyValue::new(THINNED_KEY.to_owned(), of.ratio.to_string());
        writer.append_key_value_metadata(ratio);
        writer.finish()?;
        Ok(ThinnedFile {
            dropped_rows,
            bytes: writer.bytes_written() as u64,
        })
    };
    match write() {
        Ok(written) => staged.publish().map(|()| written).map_err(Into::into),
        Err(error) => {
            staged.discard();
            Err(error)
        }
    }
}

/// Returns the schema with the column of trace states, which is added last if it is missing.
fn with_tracestate(schema: &SchemaRef) -> SchemaRef {
    let column = AttributeColumn::text(TRACE_STATE);
    if schema.index_of(&column.name()).is_ok() {
        return schema.clone();
    }
    let added = Arc::new(column.read_field());
    let fields = schema.fields().iter().cloned().chain([added]);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns spans with new trace states. `changes` has one entry for each row, `None` for spans that
/// stay as they are.
fn reweighted(
    spans: &RecordBatch,
    rule: &ThinningRule,
    changes: &[Option<NewThreshold>],
) -> Result<RecordBatch, String> {
    if changes.iter().all(Option::is_none) {
        return Ok(spans.clone());
    }
    let name = AttributeColumn::text(TRACE_STATE).name();
    let states: DictionaryArray<Int32Type> = column(spans, &name)?;
    let texts = states.downcast_dict::<StringArray>();
    let texts = texts.ok_or_else(|| format!("column {name} is no dictionary of texts"))?;
    let json: StringArray = column(spans, ATTRIBUTES)?;
    let mut new_states = StringDictionaryBuilder::<Int32Type>::new();
    let mut new_json = Vec::with_capacity(spans.num_rows());
    for (row, change) in changes.iter().enumerate() {
        let known = states.is_valid(row).then(|| texts.value(row));
        let members = json.is_valid(row).then(|| json.value(row));
        let Some(of) = change else {
            new_states.append_option(known);
            new_json.push(members.map(str::to_owned));
            continue;
        };
        let may_have_it = |members: &&str| members.contains(TRACE_STATE) || members.contains('\\');
        let unknown = members.filter(|_| known.is_none()).filter(may_have_it);
        let found = unknown.and_then(|members| without_text(members, TRACE_STATE));
        let (rest, in_json) = found.unwrap_or_else(|| (members.map(str::to_owned), String::new()));
        let known = known.unwrap_or(&in_json);
        new_states.append_value(rule.tracestate(*of, known));
        new_json.push(rest);
    }
    let new_states: ArrayRef = Arc::new(new_states.finish());
    let new_json: ArrayRef = Arc::new(StringArray::from(new_json));
    let schema = spans.schema();
    let columns = schema.fields().iter().zip(spans.columns());
    let columns = columns.map(|(field, column)| match field.name().as_str() {
        ATTRIBUTES => new_json.clone(),
        field if *field == name => new_states.clone(),
        _ => column.clone(),
    });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns).map_err(|error| error.to_string())
}
