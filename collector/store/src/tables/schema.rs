//! # The tables
//!
//! All files carry `stroboscope.schema_version` and `stroboscope.table` in their Parquet key-value
//! metadata. Times are Int64, ns since the Unix epoch, except for the monotonic times of
//! **kernel**. Dictionary columns are plain strings to other Parquet readers.
//!
//! Frequent attributes have columns of their own, which differ from file to file (see `shredding`).
//!
//! The lines below declare the other columns in their order. A line has the column's name, its
//! kind, the expression for its value in a row, and the cell that it is read into, if any. The text
//! at the end is its meaning for users in `collector/docs/store.md`. `kernel_schema.rs` declares
//! the columns of **kernel**.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};

use super::columns::{ColumnInfo, fields, infos, table};
use super::kernel_schema::Kernel;
use super::kinds::{Binary, Distinct, Flag, I64, Id, Json, Nullable, PlainText, Text, U32, U64};
use super::lists::List;
use super::names::ATTRIBUTES;
use super::partition::StoreTable;
use crate::record::{BatchRow, EventRow, LoadRow, ProvenanceRow, SpanRow, StringId, WindowRow};

impl StoreTable {
    /// Returns the columns of the table, in the order of its files.
    #[must_use]
    pub fn columns(self) -> Vec<ColumnInfo> {
        match self {
            Self::Spans => infos::<Spans>(),
            Self::Events => infos::<Events>(),
            Self::Batches => infos::<Batches>(),
            Self::Kernel => infos::<Kernel>(),
            Self::Provenance => infos::<Provenance>(),
        }
    }

    /// Returns the columns from which readers build records. For spans and events, these do not
    /// include the trace's id and name.
    #[must_use]
    pub fn record_columns(self) -> Vec<ColumnInfo> {
        let is_read = |info: &ColumnInfo| info.is_cell || info.name == ATTRIBUTES;
        self.columns().into_iter().filter(is_read).collect()
    }
}

/// Placeholder for the JSON of the attributes, which `write.rs` fills in.
fn no_json<Row>(_: &Row) -> Option<&str> {
    None
}

/// Returns the Arrow schema of a table without columns of single attributes.
pub(super) fn schema(table: StoreTable) -> SchemaRef {
    Arc::new(Schema::new(match table {
        StoreTable::Spans => fields::<Spans>(),
        StoreTable::Events => fields::<Events>(),
        StoreTable::Batches => fields::<Batches>(),
        StoreTable::Kernel => fields::<Kernel>(),
        StoreTable::Provenance => fields::<Provenance>(),
    }))
}

table! {
    /// Finished spans, sorted by (`trace_id`, `start_ns`, `span_id`, `process`). The cells of one
    /// row fill a cache line of 64 bytes, so one more column with a cell would cost every reader a
    /// second line.
    pub(super) Spans(row: SpanRow) => struct SpanCells {
        trace_id: Id = row.trace_id, "big-endian; zeros: outside any request";
        trace_name: Nullable<PlainText> = row.trace_name,
            "the trace's id as its source wrote it, if that is not 32 lower-case hex digits";
        span_id: Distinct<U64> = row.span_id => span_id, "unique within its trace";
        parent_id: Distinct<U64> = row.parent_id => parent_id, "0: none";
        service: Text = row.service => service, "";
        name: Text = row.name => name, "";
        host: Text = row.host => host, "";
        process: Id = row.process => process,
            "incarnation, random for each run of a process; zeros: OTLP or imported";
        start_ns: Distinct<I64> = row.start_ns => start_ns, "";
        end_ns: Distinct<I64> = row.end_ns => end_ns, "";
        flags: U32 = row.flags => flags, "the bits below";
        attributes: Nullable<Json> = no_json(row),
            "one JSON object of the attributes that have no column of their own; up to version 2, of all";
    }
}

table! {
    /// Events of spans and lines of logs, sorted by (`trace_id`, `time_ns`, `seq`).
    pub(super) Events(row: EventRow) => struct EventCells {
        trace_id: Id = row.trace_id, "as in spans";
        trace_name: Nullable<PlainText> = row.trace_name, "as in spans";
        span_id: Distinct<U64> = row.span_id => span_id, "0: no span, as in event logs";
        time_ns: Distinct<I64> = row.time_ns => time_ns, "";
        seq: U32 = row.seq => seq, "orders events of the same time";
        host: Text = row.host => host, "";
        service: Text = row.service, "empty in imported event logs";
        task: Nullable<Text> = row.task => task,
            "of a line of a log, such as an event log; null: an event inside a span";
        name: Text = row.name => name, "";
        attributes: Nullable<Json> = no_json(row), "as in spans";
    }
}

table! {
    /// Stored batches, one per row, sorted by (`process`, `sequence`).
    pub(super) Batches(row: BatchRow) => struct BatchCells {
        process: Id = row.process => process, "incarnation";
        sequence: U64 = row.sequence => sequence, "counts from 0; a hole is a counted loss";
        service: Text = row.service => service, "";
        host: Text = row.host => host, "";
        pid: U32 = row.pid, "";
        started_ns: I64 = row.started_ns, "when the process started";
        sdk_version: Text = row.sdk_version, "";
        from_ns: I64 = row.from_ns => from_ns, "begin of the time covered";
        to_ns: I64 = row.to_ns => to_ns, "its end";
        received_ns: I64 = row.received_ns, "by the collector's clock";
        burst_config: U64 = row.burst_config, "in force at `to_ns`";
        spans: U32 = row.spans => spans, "number in the batch";
        events: U32 = row.events => events, "number in the batch";
        windows: List<Windows> = row.windows.as_slice() => windows, "windows as really recorded";
        losses: List<Losses> = row.losses.as_slice() => losses, "totals since the process started";
        clock_steps: List<ClockSteps> = row.clock_steps.as_slice(), "steps of the wall clock";
        clock_synchronised: Nullable<Flag> = row.kernel_clock.map(|said| said.synchronised)
            => clock_synchronised,
            "the kernel's report on the host's clock at `to_ns`; null if it made none; from version 2 on";
        clock_max_error_ns: Nullable<I64> = row.kernel_clock.map(|said| said.max_error_ns)
            => clock_max_error_ns, "the same; from version 2 on";
        clock_estimated_error_ns: Nullable<I64> = row.kernel_clock.map(|said| said.estimated_error_ns)
            => clock_estimated_error_ns, "the same; from version 2 on";
        loads: Nullable<List<Loads>> = row.loads.as_slice() => loads,
            "resource use of the process, about once a second, since the previous batch; from version 4 on";
    }
}

table! {
    /// Provenance logs of requests, one row per piece, sorted by (`trace_id`, `time_ns`, `piece`).
    pub(super) Provenance(row: ProvenanceRow) => struct ProvenanceCells {
        trace_id: Id = row.trace_id => trace_id, "as in spans";
        time_ns: Distinct<I64> = row.time_ns => time_ns, "when the request began to be tracked";
        piece: U32 = row.piece => piece, "number of the piece within the log, from 0";
        pieces: U32 = row.pieces => pieces, "number of pieces of the log";
        span_id: Distinct<U64> = row.span_id => span_id,
            "span in which the request began to be tracked";
        process: Id = row.process => process, "incarnation";
        sequence: U64 = row.sequence => sequence, "of the batch";
        number: U32 = row.number => number, "of the log within the batch, from 0";
        service: Text = row.service => service, "";
        host: Text = row.host, "";
        bytes: Distinct<Binary> = row.bytes.as_slice() => bytes,
            "a piece of a file of the crate stroboscope-provenance, at most 32 KiB";
    }
}

table! {
    pub(super) Windows(row: WindowRow) => WindowRow {
        open_ns: I64 = row.open_ns => open_ns, "";
        close_ns: I64 = row.close_ns => close_ns, "";
        burst_config: U64 = row.burst_config => burst_config, "";
    }
}

table! {
    pub(super) Losses(loss: (StringId, u64)) => struct LossCells {
        cause: PlainText = loss.0 => cause, "";
        records: U64 = loss.1 => records, "";
    }
}

table! {
    pub(super) ClockSteps(step: (i64, i64)) => struct ClockStepCells {
        at_ns: I64 = step.0, "";
        step_ns: I64 = step.1, "";
    }
}

table! {
    pub(super) Loads(row: LoadRow) => LoadRow {
        from_ns: I64 = row.from_ns => from_ns, "";
        to_ns: I64 = row.to_ns => to_ns, "";
        cpu_ns: Nullable<I64> = row.cpu_ns => cpu_ns, "";
        memory_bytes: Nullable<U64> = row.memory_bytes => memory_bytes, "";
        requests: U64 = row.requests => requests, "";
    }
}
