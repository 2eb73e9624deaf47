//! List of the items in provenance logs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{Direction, Notes, item_id};
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc};

use super::filter::ItemFilter;
use super::gaps::LogGaps;
use super::known::{KnownItems, trace_of};
use super::reading::QueriedLogs;
use crate::Failure;
use crate::verb::Top;

/// Outputs and sources of provenance logs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvenanceItems {
    /// Outputs, then sources, then the items between them, each in the order of the logs.
    items: Top<ListedItem>,
    /// Number of logs that were read.
    logs_read: u64,
    /// Logs with gaps.
    pub(super) logs: Vec<LogGaps>,
    /// Notes about the data.
    pub(super) notes: Notes,
}

/// Output or source of a log.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedItem {
    /// `output` if no log read it, `source` if no log wrote it, otherwise `between`.
    kind: &'static str,
    /// Id, as 16 hexadecimal digits.
    id: String,
    /// Name that the service gave; empty if none is known.
    name: String,
    /// Log that wrote or read the item: a service and its request, or a file.
    log: String,
    /// Request that wrote the log; null if it is unknown.
    trace: Option<String>,
    /// Larger of the bytes written, and the most bytes that one log read.
    bytes: u64,
}

/// Kind of an item, in the order of the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ItemKind {
    /// Written by a log, and read by none.
    Output,
    /// Read by a log, and written by none.
    Source,
    /// Written by a log, and read by one.
    Between,
}

impl ItemKind {
    fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Source => "source",
            Self::Between => "between",
        }
    }
}

rows! {
    ListedItem as row, "provenance_list": "Outputs and sources of provenance logs.";
    kind: Text, "kind" = row.kind;
    item: Text, "item" = linked_item(&row.id);
    name: Text, "name" = row.name.as_str();
    log: Text, "log" = linked_log(&row.log, row.trace.as_deref());
    bytes: Count, "bytes" = row.bytes;
}

pub(super) fn linked_item(id: &str) -> Cell {
    Cell::Linked(id.to_owned(), item_path(id, ""))
}

/// Returns the path of the page of an item, or of some of its bytes (`:FROM..UNTIL`).
pub(super) fn item_path(id: &str, bytes: &str) -> String {
    format!("/provenance?item={id}{bytes}")
}

/// Returns the cell of a log, which links to the request that wrote it, if that is known.
pub(super) fn linked_log(name: &str, trace: Option<&str>) -> Cell {
    match trace {
        Some(trace) => Cell::Linked(name.to_owned(), format!("/traces/{trace}")),
        None => name.into(),
    }
}

impl ProvenanceItems {
    /// Lists the items whose names contain `name`, and that the filters accept.
    pub(super) fn of(
        mut queried: QueriedLogs<'_>,
        name: Option<&str>,
        only: &[ItemFilter],
        top: usize,
    ) -> Result<Self, Failure> {
        let only = queried.filters(only)?;
        let logs = &queried.logs;
        let items = KnownItems::of(logs, |_| true);
        // By id: the place of the first log, the bytes written, and the most that one log read.
        let mut bytes: BTreeMap<u64, (usize, u64, u64)> = BTreeMap::new();
        for (place, log) in logs.iter().enumerate() {
            for ((direction, id), count) in log.items() {
                let (_, written, read) = bytes.entry(id).or_insert((place, 0, 0));
                match direction {
                    Direction::Backward => *written += count,
                    Direction::Forward => *read = count.max(*read),
                }
            }
        }
        let mut rows: Vec<(ItemKind, usize, ListedItem)> = Vec::new();
        for (id, (place, written, read)) in bytes {
            let info = items.get(id);
            let known = info.map_or("", |info| info.name);
            let has_name = name.is_none_or(|name| known.contains(name));
            if !has_name || !items.are_accepted(&only, id) {
                continue;
            }
            let kind = match (written, read) {
                (_, 0) => ItemKind::Output,
                (0, _) => ItemKind::Source,
                _ => ItemKind::Between,
            };
            let place = info.map_or(place, |info| info.log);
            let item = ListedItem {
                kind: kind.name(),
                id: item_id(id),
                name: known.to_owned(),
                log: logs[place].name.clone(),
                trace: trace_of(&logs[place]),
                bytes: written.max(read),
            };
            rows.push((kind, place, item));
        }
        rows.sort_by_key(|(kind, place, _)| (*kind, *place));
        let rows = rows.into_iter().map(|(_, _, item)| item).collect();
        Ok(Self {
            items: Top { rows, top },
            logs_read: logs.len() as u64,
            logs: LogGaps::of_all(logs),
            notes: queried.notes,
        })
    }

    /// Writes the list as a table, or a sentence if it is empty.
    pub(super) fn show(&self, doc: &mut Doc) {
        if self.items.rows.is_empty() {
            doc.sentence("No log has such an item.");
        } else {
            doc.table("items", &self.items.rows, self.items.shown());
        }
        LogGaps::show_all(&self.logs, doc);
    }
}
