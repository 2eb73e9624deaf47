//! Items as the logs describe them.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{ByteRanges, ItemInfo, ProvenanceLog, ProvenanceLogs, infos, item_id};

use super::filter::ItemFilters;

/// Item with its name and origin.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct NamedItem {
    /// Id, as 16 hexadecimal digits.
    pub(super) id: String,
    /// Name that the service gave; empty if none is known.
    pub(super) name: String,
    /// Log that made or read the item: a service and its request, or a file; empty if unknown.
    pub(super) log: String,
    /// Service that wrote the log; null if it is unknown.
    pub(super) service: Option<String>,
    /// Request that wrote the log; null if it is unknown.
    pub(super) trace: Option<String>,
    /// Span in which the item was read or written, as 16 hexadecimal digits; null if unknown.
    pub(super) span: Option<String>,
}

/// Bytes of an item.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ItemBytes {
    #[serde(flatten)]
    pub(super) item: NamedItem,
    pub(super) bytes: u64,
    /// Ranges, each given by its first offset and the offset after its last one.
    pub(super) ranges: ByteRanges,
}

/// Logs, and their descriptions of items.
pub(super) struct KnownItems<'a> {
    logs: &'a ProvenanceLogs<'a>,
    infos: HashMap<u64, ItemInfo<'a>>,
}

impl<'a> KnownItems<'a> {
    /// Collects the descriptions of the items that `wanted` accepts.
    pub(super) fn of(logs: &'a ProvenanceLogs<'a>, wanted: impl Fn(u64) -> bool) -> Self {
        Self {
            logs,
            infos: infos(logs, wanted),
        }
    }

    /// Returns the collected description of an item; `None` if there is none.
    pub(super) fn get(&self, id: u64) -> Option<&ItemInfo<'a>> {
        self.infos.get(&id)
    }

    pub(super) fn are_accepted(&self, filters: &ItemFilters<'_>, id: u64) -> bool {
        filters.accept(self.get(id), self.logs)
    }

    pub(super) fn named(&self, id: u64) -> NamedItem {
        let info = self.get(id);
        let log = info.map(|info| &self.logs[info.log]);
        let span = info.map(|info| info.span).filter(|span| *span != 0);
        NamedItem {
            id: item_id(id),
            name: info.map_or_else(String::new, |info| info.name.to_owned()),
            log: log.map_or_else(String::new, |log| log.name.clone()),
            service: log.and_then(|log| log.service.clone()),
            trace: log.and_then(trace_of),
            span: span.map(item_id),
        }
    }

    pub(super) fn with_bytes(&self, id: u64, ranges: ByteRanges) -> ItemBytes {
        ItemBytes {
            item: self.named(id),
            bytes: ranges.bytes(),
            ranges,
        }
    }
}

pub(super) fn trace_of(log: &ProvenanceLog<'_>) -> Option<String> {
    log.trace.map(|trace| format!("{trace:032x}"))
}
