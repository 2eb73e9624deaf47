//! # The tables
//!
//! All files carry `stroboscope.schema_version` and `stroboscope.table` in their Parquet key-value metadata. Times are
//! Int64, ns since the Unix epoch. Dictionary columns are plain strings to other Parquet readers.
//!
//! **spans**, sorted by (`trace_id`, `start_ns`): finished spans.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | trace_id | FixedSizeBinary(16) | big-endian; zeros: outside any request |
//! | trace_name | Utf8, null | the trace's id as its source wrote it, if that is not 32 lower-case hex digits |
//! | span_id, parent_id | UInt64 | parent 0: none |
//! | service, name, host | Dictionary(Int32, Utf8) | |
//! | process | FixedSizeBinary(16) | incarnation; zeros: imported |
//! | start_ns, end_ns | Int64 | |
//! | flags | UInt32 | bits of `SpanFlag` in the protocol |
//! | attributes | Utf8, null | one JSON object |
//!
//! **events**, sorted by (`trace_id`, `time_ns`, `seq`): `trace_id`, `trace_name`, `attributes` as above; `span_id` UInt64 (0: no span,
//! as in event logs); `time_ns`; `seq` UInt32 orders events of the same time; `host`, `service`, `name`; `task`
//! Dictionary, null unless the event is from an event log.
//!
//! **batches**, sorted by (`process`, `sequence`): one row per stored batch. `process`, `sequence` UInt64, `service`, `host`,
//! `pid` UInt32, `started_ns`, `sdk_version`, `from_ns`, `to_ns` (the time covered), `received_ns` (collector's clock),
//! `burst_config` UInt64, `spans`, `events` UInt32 (counts), `windows` list<struct<open_ns, close_ns, burst_config>>,
//! `losses` list<struct<cause Utf8, records UInt64>> (totals since the process started),
//! `clock_steps` list<struct<at_ns, step_ns>>. From version 2 on also what the kernel said of the host's clock at `to_ns`, null
//! where it said nothing: `clock_synchronised` Boolean, `clock_max_error_ns`, `clock_estimated_error_ns` Int64.
//!
//! **kernel**, sorted by `monotonic_ns`: what kernel recorders saw; its columns are documented in `kernel/schema.rs`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

use super::StoreTable;

/// Version of the tables; readers refuse a newer one. In files of an older one, columns that came later are missing.
pub const SCHEMA_VERSION: u32 = 2;
pub(super) const VERSION_KEY: &str = "stroboscope.schema_version";
pub(super) const TABLE_KEY: &str = "stroboscope.table";

/// The Arrow schema of a table.
pub(super) fn schema(table: StoreTable) -> SchemaRef {
    Arc::new(Schema::new(match table {
        StoreTable::Spans => spans(),
        StoreTable::Events => events(),
        StoreTable::Batches => batches(),
        StoreTable::Kernel => super::kernel::fields(),
    }))
}

fn id(name: &str) -> Field {
    Field::new(name, DataType::FixedSizeBinary(16), false)
}

fn dictionary(name: &str, nullable: bool) -> Field {
    let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Field::new(name, text, nullable)
}

fn of(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn spans() -> Vec<Field> {
    use DataType::{Int64, UInt32, UInt64, Utf8};
    vec![
        id("trace_id"),
        Field::new("trace_name", Utf8, true),
        of("span_id", UInt64),
        of("parent_id", UInt64),
        dictionary("service", false),
        dictionary("name", false),
        dictionary("host", false),
        id("process"),
        of("start_ns", Int64),
        of("end_ns", Int64),
        of("flags", UInt32),
        Field::new("attributes", Utf8, true),
    ]
}

fn events() -> Vec<Field> {
    use DataType::{Int64, UInt32, UInt64, Utf8};
    vec![
        id("trace_id"),
        Field::new("trace_name", Utf8, true),
        of("span_id", UInt64),
        of("time_ns", Int64),
        of("seq", UInt32),
        dictionary("host", false),
        dictionary("service", false),
        dictionary("task", true),
        dictionary("name", false),
        Field::new("attributes", Utf8, true),
    ]
}

fn batches() -> Vec<Field> {
    use DataType::{Int64, UInt32, UInt64};
    vec![
        id("process"),
        of("sequence", UInt64),
        dictionary("service", false),
        dictionary("host", false),
        of("pid", UInt32),
        of("started_ns", Int64),
        dictionary("sdk_version", false),
        of("from_ns", Int64),
        of("to_ns", Int64),
        of("received_ns", Int64),
        of("burst_config", UInt64),
        of("spans", UInt32),
        of("events", UInt32),
        list_of("windows", window_fields()),
        list_of("losses", loss_fields()),
        list_of("clock_steps", clock_step_fields()),
        Field::new("clock_synchronised", DataType::Boolean, true),
        Field::new("clock_max_error_ns", Int64, true),
        Field::new("clock_estimated_error_ns", Int64, true),
    ]
}

fn list_of(name: &str, fields: Fields) -> Field {
    Field::new(name, DataType::List(Arc::new(item_field(fields))), false)
}

pub(super) fn item_field(fields: Fields) -> Field {
    Field::new("item", DataType::Struct(fields), false)
}

pub(super) fn window_fields() -> Fields {
    let fields =
        [("open_ns", DataType::Int64), ("close_ns", DataType::Int64), ("burst_config", DataType::UInt64)];
    fields.into_iter().map(|(name, kind)| of(name, kind)).collect()
}

pub(super) fn loss_fields() -> Fields {
    [("cause", DataType::Utf8), ("records", DataType::UInt64)]
        .into_iter()
        .map(|(name, kind)| of(name, kind))
        .collect()
}

pub(super) fn clock_step_fields() -> Fields {
    [("at_ns", DataType::Int64), ("step_ns", DataType::Int64)]
        .into_iter()
        .map(|(name, kind)| of(name, kind))
        .collect()
}
