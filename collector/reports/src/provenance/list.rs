//! List of the items in provenance logs.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{Direction, Notes, ProvenanceLog, infos, item_id};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

use crate::verb::Top;

/// Outputs and sources of provenance logs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvenanceList {
    /// Items in the order of the logs: outputs, then sources.
    items: Top<ListedItem>,
    /// Number of logs that were read.
    logs_read: u64,
    /// Notes about the data.
    pub(super) notes: Notes,
}

/// Output or source of a log.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedItem {
    /// `output` or `source`.
    kind: &'static str,
    /// Id, as 16 hexadecimal digits.
    id: String,
    /// Name that the service gave; empty if none is known.
    name: String,
    /// A service and its request, or a file.
    log: String,
    /// Number of bytes that have labels.
    bytes: u64,
}

rows! {
    ListedItem as row, "provenance_list": "Outputs and sources of provenance logs.";
    kind: Text, "kind" = row.kind;
    item: Text, "item" = row.id.as_str();
    name: Text, "name" = row.name.as_str();
    log: Text, "log" = row.log.as_str();
    bytes: Count, "bytes" = row.bytes;
}

impl ProvenanceList {
    /// Lists the items whose names contain `name`.
    pub(super) fn of(
        logs: &[ProvenanceLog<'_>],
        notes: Notes,
        name: Option<&str>,
        top: usize,
    ) -> Self {
        let infos = infos(logs, |_| true);
        let mut rows = Vec::new();
        for log in logs {
            for ((direction, id), bytes) in log.items() {
                let known = infos.get(&id).map_or("", |info| info.name);
                if name.is_none_or(|name| known.contains(name)) {
                    rows.push(ListedItem {
                        kind: match direction {
                            Direction::Backward => "output",
                            Direction::Forward => "source",
                        },
                        id: item_id(id),
                        name: known.to_owned(),
                        log: log.name.clone(),
                        bytes,
                    });
                }
            }
        }
        Self {
            items: Top { rows, top },
            logs_read: logs.len() as u64,
            notes,
        }
    }
}

impl ProvenanceList {
    /// Writes the list as a table.
    pub(super) fn show(&self, doc: &mut Doc) {
        if self.items.rows.is_empty() {
            doc.sentence("No log has such an item.");
            return;
        }
        doc.table("items", &self.items.rows, self.items.shown());
    }
}
