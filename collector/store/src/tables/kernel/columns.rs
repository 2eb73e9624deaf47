//! Rows as Arrow columns and back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray,
    UInt32Array, UInt64Array,
};
use arrow_schema::ArrowError;
use stroboscope_analysis::kernel::event::Name;

use super::KernelChunk;
use super::rows::{KernelRow, RowKind, architecture_name, architecture_named, into_chunk};
use crate::tables::partition::StoreTable;
use crate::tables::reader::column;
use crate::tables::schema::schema;

fn u32s(values: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    Arc::new(values.collect::<UInt32Array>())
}

fn u64s(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.collect::<UInt64Array>())
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}

/// Names are few and rows are many.
fn names(values: impl Iterator<Item = Option<Name>>) -> ArrayRef {
    let mut known: HashMap<Name, String> = HashMap::new();
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    for value in values {
        match value.filter(|name| !name.is_empty()) {
            Some(name) => builder.append_value(&*known.entry(name).or_insert_with(|| name.to_string())),
            None => builder.append_null(),
        }
    }
    Arc::new(builder.finish())
}

/// Rows of a chunk as columns.
pub(super) fn columns(rows: &[KernelRow], chunk: &KernelChunk) -> Result<RecordBatch, ArrowError> {
    let recording =
        FixedSizeBinaryArray::try_new(16, chunk.recording.to_be_bytes().repeat(rows.len()).into(), None)?;
    let call_name = |row: &KernelRow| match row.kind {
        RowKind::Recording => Some(architecture_name(chunk.architecture)),
        _ => row.call.and_then(|call| chunk.architecture.call_name(call)),
    };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(recording),
        texts(rows.iter().map(|_| Some(chunk.host.as_str()))),
        Arc::new(rows.iter().map(|row| Some(chunk.clocks.wall_ns(row.monotonic_ns))).collect::<Int64Array>()),
        u64s(rows.iter().map(|row| Some(row.monotonic_ns))),
        u32s(rows.iter().map(|row| Some(u32::from(row.cpu)))),
        u32s(rows.iter().map(|row| Some(row.tid))),
        texts(rows.iter().map(|row| Some(row.kind.name()))),
        u32s(rows.iter().map(|row| row.process)),
        names(rows.iter().map(|row| row.name)),
        u32s(rows.iter().map(|row| row.call)),
        texts(rows.iter().map(call_name)),
    ];
    columns.extend((0..6).map(|place| u64s(rows.iter().map(|row| row.args[place]))));
    columns.extend([
        Arc::new(rows.iter().map(|row| row.result).collect::<Int64Array>()) as ArrayRef,
        u32s(rows.iter().map(|row| row.state)),
        u32s(rows.iter().map(|row| row.other)),
        u32s(rows.iter().map(|row| row.other_process)),
        names(rows.iter().map(|row| row.other_name)),
        u64s(rows.iter().map(|row| row.owner.map(|owner| owner.0))),
        u64s(rows.iter().map(|row| row.owner.map(|owner| owner.1))),
    ]);
    RecordBatch::try_new(schema(StoreTable::Kernel), columns)
}

/// A dictionary column whose values are parsed once each.
struct ParsedColumn<T> {
    column: DictionaryArray<Int32Type>,
    values: Vec<T>,
}

impl<T: Copy> ParsedColumn<T> {
    fn new(
        batch: &RecordBatch,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, String> {
        let column: DictionaryArray<Int32Type> = column(batch, name)?;
        let texts = column.values().as_any().downcast_ref::<StringArray>();
        let texts = texts.ok_or_else(|| format!("column {name} is no text"))?;
        let values = texts.iter().map(|text| read(text.unwrap_or_default())).collect::<Result<_, _>>()?;
        Ok(Self { column, values })
    }

    fn at(&self, row: usize) -> Option<T> {
        self.values.get(self.column.key(row)?).copied()
    }
}

fn kind(text: &str) -> Result<RowKind, String> {
    let found = RowKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("it has rows of an unknown kind {text:?}"))
}

/// Adds the rows of a batch to a chunk.
pub(super) fn read(batch: &RecordBatch, chunk: &mut KernelChunk) -> Result<(), String> {
    let monotonic_ns: UInt64Array = column(batch, "monotonic_ns")?;
    let (cpu, tid): (UInt32Array, UInt32Array) = (column(batch, "cpu")?, column(batch, "tid")?);
    let kinds = ParsedColumn::new(batch, "kind", kind)?;
    let name = |text: &str| Ok(Name::new(text));
    let (names, other_names) =
        (ParsedColumn::new(batch, "name", name)?, ParsedColumn::new(batch, "other_name", name)?);
    let architectures = ParsedColumn::new(batch, "call_name", |text| Ok(architecture_named(text)))?;
    let process: UInt32Array = column(batch, "process")?;
    let (call, state): (UInt32Array, UInt32Array) = (column(batch, "call")?, column(batch, "state")?);
    let args: Vec<UInt64Array> =
        (0..6).map(|place| column(batch, &format!("arg{place}"))).collect::<Result<_, _>>()?;
    let result: Int64Array = column(batch, "result")?;
    let other: UInt32Array = column(batch, "other_tid")?;
    let other_process: UInt32Array = column(batch, "other_process")?;
    let (trace, span): (UInt64Array, UInt64Array) = (column(batch, "trace")?, column(batch, "span")?);
    if chunk.host.is_empty() && batch.num_rows() > 0 {
        let hosts: DictionaryArray<Int32Type> = column(batch, "host")?;
        let texts = hosts.values().as_any().downcast_ref::<StringArray>();
        let first = hosts.key(0).and_then(|key| texts.map(|texts| texts.value(key).to_owned()));
        chunk.host = first.unwrap_or_default();
    }
    let u32_at = |values: &UInt32Array, at: usize| values.is_valid(at).then(|| values.value(at));
    let u64_at = |values: &UInt64Array, at: usize| values.is_valid(at).then(|| values.value(at));
    for at in 0..batch.num_rows() {
        let row = KernelRow {
            monotonic_ns: monotonic_ns.value(at),
            cpu: cpu.value(at) as u16,
            tid: tid.value(at),
            kind: kinds.at(at).ok_or("it has a row without a kind")?,
            process: u32_at(&process, at),
            name: names.at(at),
            call: u32_at(&call, at),
            args: std::array::from_fn(|place| u64_at(&args[place], at)),
            result: result.is_valid(at).then(|| result.value(at)),
            state: u32_at(&state, at),
            other: u32_at(&other, at),
            other_process: u32_at(&other_process, at),
            other_name: other_names.at(at),
            owner: u64_at(&trace, at).zip(u64_at(&span, at)),
        };
        if row.kind == RowKind::Recording {
            let known = architectures.at(at).flatten();
            chunk.architecture = known.ok_or("it is of a processor architecture that is not known here")?;
        }
        into_chunk(&row, chunk)?;
    }
    Ok(())
}
