//! Finds inner operations, root operations and long traces in some columns of spans, without
//! building rows.

use std::collections::BTreeSet;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, DictionaryArray, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use rustc_hash::{FxHashMap, FxHashSet};
use stroboscope_analysis::connection::{CHILDREN_MIN, CONNECTION_NS_MIN};
use stroboscope_analysis::inner_operations::InnerOperations;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::SpanFlags;

use super::batch_column::column;
use super::kinds::{id, ids};

/// Columns that a scan needs.
pub(super) const COLUMNS: [&str; 8] = [
    "trace_id",
    "parent_id",
    "service",
    "name",
    "process",
    "start_ns",
    "end_ns",
    "flags",
];

/// Maximum number of long traces kept per operation.
const LONG_TRACES_PER_OPERATION_MAX: usize = 4;
/// Maximum number of operations for which long traces are kept.
const LONG_OPERATIONS_MAX: usize = 256;

/// Maximum number of distinct operations in each set of root operations.
const ROOT_OPERATIONS_MAX: usize = 4_096;
/// Flags by which root spans are classified.
const OF_KIND: u32 = SpanFlags::SERVER.0 | SpanFlags::CLIENT.0 | SpanFlags::CONNECTION.0;

/// Facts about the operations of the spans of one or more files.
#[derive(Clone, Debug, Default)]
pub struct OperationFacts {
    /// Operations of spans with a parent. Only spans that the SDK recorded count.
    pub inner: InnerOperations,
    /// Service and normalised name of spans without a parent that are neither server, client nor
    /// connection spans. Only spans that the SDK recorded count.
    pub roots: BTreeSet<(String, String)>,
    /// Service and normalised name of spans without a parent that the SDK marked as connections.
    pub marked: BTreeSet<(String, String)>,
    /// Longest traces that may contain [connections](stroboscope_analysis::connection), by the
    /// operation of their first span.
    long: FxHashMap<(String, String), BTreeSet<(i64, u128)>>,
}

impl OperationFacts {
    /// Returns the ids of traces that may contain [connections](stroboscope_analysis::connection):
    /// the longest traces of up to 256 operations.
    #[must_use]
    pub fn long_traces(&self) -> Vec<u128> {
        self.long.values().flatten().map(|(_, id)| *id).collect()
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.inner.merge(&other.inner);
        for (own, more) in [
            (&mut self.roots, other.roots),
            (&mut self.marked, other.marked),
        ] {
            let room = ROOT_OPERATIONS_MAX.saturating_sub(own.len());
            own.extend(more.into_iter().take(room));
        }
        for (operation, traces) in other.long {
            for (length_ns, id) in traces {
                self.note_long(&operation.0, &operation.1, length_ns, id);
            }
        }
    }

    /// Iterates over the service, name, length in ns and id of the longest traces.
    pub(super) fn long(&self) -> impl Iterator<Item = (&str, &str, i64, u128)> {
        self.long.iter().flat_map(|((service, name), traces)| {
            let of =
                |(length_ns, id): &(i64, u128)| (service.as_str(), name.as_str(), *length_ns, *id);
            traces.iter().map(of)
        })
    }

    pub(super) fn note_long(&mut self, service: &str, name: &str, length_ns: i64, id: u128) {
        let operation = (service.to_owned(), name.to_owned());
        if self.long.len() >= LONG_OPERATIONS_MAX && !self.long.contains_key(&operation) {
            return;
        }
        let longest = self.long.entry(operation).or_default();
        longest.insert((length_ns, id));
        if longest.len() > LONG_TRACES_PER_OPERATION_MAX {
            longest.pop_first();
        }
    }
}

/// Scan of the rows of a file, in their order.
#[derive(Debug, Default)]
pub(super) struct OperationScan {
    found: OperationFacts,
    trace: TraceExtent,
}

impl OperationScan {
    /// Adds rows. Does not report invalid columns, because readers of traces do.
    pub(super) fn observe(&mut self, batch: &RecordBatch) {
        let _ = add_operations(batch, &mut self.found);
        let _ = add_long(batch, &mut self.trace, &mut self.found);
    }

    /// Returns the facts of the rows.
    pub(super) fn finish(mut self) -> OperationFacts {
        self.trace.end(&mut self.found);
        self.found
    }
}

/// Extent of a trace in one file, in which its rows are adjacent.
#[derive(Debug, Default)]
struct TraceExtent {
    id: u128,
    spans: usize,
    from_ns: i64,
    to_ns: i64,
    /// Service and name of the first row of the trace.
    operation: (String, String),
}

impl TraceExtent {
    fn end(&mut self, found: &mut OperationFacts) {
        let length_ns = self.to_ns.saturating_sub(self.from_ns);
        if self.spans >= CHILDREN_MIN && length_ns >= CONNECTION_NS_MIN && self.id != 0 {
            let (service, name) = &self.operation;
            found.note_long(service, &normalise(name), length_ns, self.id);
        }
        self.spans = 0;
    }
}

fn add_long(
    batch: &RecordBatch,
    trace: &mut TraceExtent,
    found: &mut OperationFacts,
) -> Result<(), String> {
    let traces = ids(batch, "trace_id")?;
    let starts: Int64Array = column(batch, "start_ns")?;
    let ends: Int64Array = column(batch, "end_ns")?;
    let services: DictionaryArray<Int32Type> = column(batch, "service")?;
    let names: DictionaryArray<Int32Type> = column(batch, "name")?;
    for row in 0..batch.num_rows() {
        let (id, start_ns, end_ns) = (id(&traces, row), starts.value(row), ends.value(row));
        if trace.spans == 0 || trace.id != id {
            trace.end(found);
            (trace.id, trace.from_ns, trace.to_ns) = (id, start_ns, end_ns);
            for (of, column) in [
                (&mut trace.operation.0, &services),
                (&mut trace.operation.1, &names),
            ] {
                of.clear();
                of.push_str(text(column, row));
            }
        }
        trace.spans += 1;
        trace.from_ns = trace.from_ns.min(start_ns);
        trace.to_ns = trace.to_ns.max(end_ns);
    }
    Ok(())
}

fn add_operations(batch: &RecordBatch, found: &mut OperationFacts) -> Result<(), String> {
    let parents: UInt64Array = column(batch, "parent_id")?;
    let processes = ids(batch, "process")?;
    let services: DictionaryArray<Int32Type> = column(batch, "service")?;
    let names: DictionaryArray<Int32Type> = column(batch, "name")?;
    let flags: UInt32Array = column(batch, "flags")?;
    let mut seen: FxHashSet<(i32, i32, bool, u32)> = FxHashSet::default();
    let mut last = None;
    for row in 0..batch.num_rows() {
        let (is_root, flags) = (parents.value(row) == 0, flags.value(row));
        let kind = flags & OF_KIND;
        let (service, name) = (services.keys().value(row), names.keys().value(row));
        let keys = (service, name, is_root, kind);
        // Skips spans with keys that were seen in this batch, usually most spans, and spans that
        // the SDK did not record.
        if last == Some(keys) || seen.contains(&keys) || id(&processes, row) == 0 {
            continue;
        }
        last = Some(keys);
        seen.insert(keys);
        let (service, name) = (text(&services, row), text(&names, row));
        if !is_root {
            found.inner.insert(&service.into(), &name.into());
            continue;
        }
        let operations = match kind {
            0 => &mut found.roots,
            kind if kind & SpanFlags::CONNECTION.0 != 0 => &mut found.marked,
            _ => continue,
        };
        if operations.len() < ROOT_OPERATIONS_MAX {
            operations.insert((service.to_owned(), normalise(name).into_owned()));
        }
    }
    Ok(())
}

pub(super) fn text(column: &DictionaryArray<Int32Type>, row: usize) -> &str {
    let texts = column.values().as_any().downcast_ref::<StringArray>();
    match column.key(row).zip(texts) {
        Some((key, texts)) if texts.is_valid(key) => texts.value(key),
        _ => "",
    }
}
