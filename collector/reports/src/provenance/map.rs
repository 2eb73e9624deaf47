//! Report of the sources of outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{Direction, Notes};
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

use super::MapChoice;
use super::filter::ItemFilter;
use super::gaps::LogGaps;
use super::items::linked_item;
use super::known::{ItemBytes, KnownItems, NamedItem};
use super::reading::QueriedLogs;
use crate::Failure;
use crate::graphviz::{beginning, escape};
use crate::verb::Top;

/// Maximum number of names that an error lists.
const NAMES_MAX: usize = 10;

/// Bytes of each source on which each output depends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvenanceMapReport {
    /// Pairs of an output and a source, in the order of the logs.
    pairs: Top<ItemPair>,
    /// Chosen outputs that depend on no chosen source.
    without_sources: Top<NamedItem>,
    /// Number of flows that were left out, because an output has too many. Pairs may be missing.
    pub(super) flows_left_out: u64,
    /// Number of ranges of inputs without a known source, because a log reached a limit.
    unknown_inputs: u64,
    /// Number of logs that were read.
    logs_read: u64,
    /// Logs with gaps.
    pub(super) logs: Vec<LogGaps>,
    /// Notes about the data.
    pub(super) notes: Notes,
}

/// Output, and a source on which it depends.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ItemPair {
    output: NamedItem,
    /// The source, with the bytes on which the output depends.
    source: ItemBytes,
}

rows! {
    ItemPair as row, "provenance_map": "Outputs, and the bytes of sources on which they depend.";
    { let (output, source) = (&row.output, &row.source.item); }
    output: Text, "output" = linked_item(&output.id);
    output_name: Text, "output name" = output.name.as_str();
    output_log: Text, "output of" = output.log.as_str();
    output_service: Text, "" = output.service.as_deref();
    output_trace: Request, "" = output.trace.as_deref();
    output_span: Text, "" = output.span.as_deref();
    source: Text, "source" = linked_item(&source.id);
    source_name: Text, "source name" = source.name.as_str();
    source_log: Text, "source of" = source.log.as_str();
    source_service: Text, "" = source.service.as_deref();
    source_trace: Request, "" = source.trace.as_deref();
    source_span: Text, "" = source.span.as_deref();
    bytes: Count, "bytes" = row.source.bytes;
    ranges: Text, "ranges" = row.source.ranges.to_string().as_str();
}

impl ProvenanceMapReport {
    /// Computes the pairs of the outputs and the sources that the choice accepts.
    pub(super) fn of(
        mut queried: QueriedLogs<'_>,
        choice: &MapChoice,
        top: usize,
    ) -> Result<Self, Failure> {
        let outputs = queried.filters(&choice.output)?;
        let sources = queried.filters(&choice.source)?;
        let logs = &queried.logs;
        let known = KnownItems::of(logs, |_| true);
        let is_source = |id| known.are_accepted(&sources, id);
        let is_candidate = |id| choice.between || !logs.has(Direction::Forward, id);
        let is_output = |id| is_candidate(id) && known.are_accepted(&outputs, id);
        if !choice.output.is_empty() && !logs.ids(Direction::Backward).any(is_output) {
            let what = match choice.between {
                true => "output",
                false => "output that no log read (--between adds others)",
            };
            let ids = logs.ids(Direction::Backward).filter(|id| is_candidate(*id));
            return Err(no_match(what, &choice.output, &known, ids));
        }
        if !choice.source.is_empty() && !logs.ids(Direction::Forward).any(is_source) {
            let ids = logs.ids(Direction::Forward);
            return Err(no_match("source", &choice.source, &known, ids));
        }
        let wherever = choice.between.then_some(&is_source as &dyn Fn(u64) -> bool);
        let map = logs.map(&is_output, wherever, &mut queried.share);
        let map = map.map_err(Failure::of)?;
        let (mut pairs, mut without_sources) = (Vec::new(), Vec::new());
        for (output, mut sources) in map.outputs {
            let output = known.named(output);
            sources.retain(|id, _| is_source(*id));
            if sources.is_empty() {
                without_sources.push(output);
                continue;
            }
            pairs.extend(sources.into_iter().map(|(source, ranges)| ItemPair {
                output: output.clone(),
                source: known.with_bytes(source, ranges),
            }));
        }
        Ok(Self {
            pairs: Top { rows: pairs, top },
            without_sources: Top {
                rows: without_sources,
                top,
            },
            flows_left_out: map.left_out,
            unknown_inputs: map.unknown,
            logs_read: logs.len() as u64,
            logs: LogGaps::of_all(logs),
            notes: queried.notes,
        })
    }

    /// Formats the pairs in Graphviz's language: nodes are outputs and sources, and an edge from a
    /// source to an output has the number of bytes on which the output depends.
    pub(super) fn dot(&self) -> String {
        let mut dot = beginning("provenance");
        let pairs = self.pairs.rows.iter();
        let items = pairs.flat_map(|pair| [&pair.output, &pair.source.item]);
        let items: BTreeMap<&str, &NamedItem> = items
            .chain(&self.without_sources.rows)
            .map(|item| (&*item.id, item))
            .collect();
        for (id, item) in items {
            let name = if item.name.is_empty() { id } else { &item.name };
            let (name, log) = (escape(name), escape(&item.log));
            let _ = writeln!(dot, "  \"{id}\" [label=\"{name}\\n{log}\"];");
        }
        for ItemPair { output, source } in &self.pairs.rows {
            let (from, to, bytes) = (&source.item.id, &output.id, source.bytes);
            let _ = writeln!(dot, "  \"{from}\" -> \"{to}\" [label=\"{bytes} B\"];");
        }
        dot.push_str("}\n");
        dot
    }

    pub(super) fn show(&self, doc: &mut Doc) {
        if self.pairs.rows.is_empty() {
            doc.sentence(
                "No chosen output depends on a chosen source. --between also chooses items that one log wrote and \
                 another read.",
            );
        } else {
            doc.table("sources of outputs", &self.pairs.rows, self.pairs.shown());
        }
        let without = self.without_sources.rows.len() as u64;
        if without > 0 && !self.pairs.rows.is_empty() {
            let outputs = counted(without, "other output");
            doc.sentence(format!("No chosen source made {outputs}."));
        }
        if self.flows_left_out > 0 {
            let left_out = self.flows_left_out;
            doc.sentence(format!(
                "Pairs may be missing: outputs have {left_out} more flows than queries follow."
            ));
        }
        if self.unknown_inputs > 0 {
            doc.sentence("Some inputs have no known source, because a log reached a limit.");
        }
        LogGaps::show_all(&self.logs, doc);
    }
}

/// Returns the error for filters that none of these items matches, with names of the items.
fn no_match(
    what: &str,
    filters: &[ItemFilter],
    known: &KnownItems<'_>,
    ids: impl Iterator<Item = u64>,
) -> Failure {
    let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
    let names = ids.filter_map(|id| known.get(id)).map(|info| info.name);
    let names: BTreeSet<&str> = names.collect();
    let more = match names.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let names: Vec<&str> = names.into_iter().take(NAMES_MAX).collect();
    let names = match &names[..] {
        [] => "none has a name".to_owned(),
        names => format!("there are: {}{more}", names.join(", ")),
    };
    let filters = filters.join(" and ");
    Failure::unknown(format!("no {what} matches {filters}; {names}"))
}
