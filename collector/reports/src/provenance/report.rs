//! Report of the bytes that made an output, or of the outputs that bytes reached.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{
    ByteFlow, BytesByItem, Direction, Notes, ProvenanceAnswer, ProvenanceLogs, item_id,
};
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, Origin, Passage, Stretch};

use super::filter::ItemFilters;
use super::gaps::LogGaps;
use super::items::{item_path, linked_item, linked_log};
use super::known::{ItemBytes, KnownItems};
use crate::Status;
use crate::verb::Top;

/// Bytes that made an output, or outputs that bytes reached.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvenanceReport {
    /// `backward`: from an output to its sources; `forward`: from a source to outputs.
    direction: &'static str,
    /// Queried item.
    item: ItemBytes,
    /// First bytes of the queried output, if the service kept them, each part with the items that
    /// made it.
    content: Vec<ContentPart>,
    /// Items at which the query ended, because no log has an output (`backward`) or a source
    /// (`forward`) with these bytes.
    ends: Vec<ItemBytes>,
    /// Items between the queried one and the ends.
    through: Vec<ItemBytes>,
    /// Number of ends and items between that the filters left out.
    items_left_out: u64,
    /// Flows in order of log and output.
    flows: Top<Flow>,
    /// Number of flows that the query left out, because there are too many.
    flows_left_out: u64,
    /// Number of ranges of inputs without a known source, because a log reached a limit.
    unknown_inputs: u64,
    /// Number of logs that were read.
    logs_read: u64,
    /// Logs with gaps.
    logs: Vec<LogGaps>,
    /// Notes about the data.
    pub(super) notes: Notes,
}

/// Bytes that made an item, and outputs that its bytes reached.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ItemProvenance {
    /// Bytes that made the queried bytes; null if no log has the queried bytes as an output.
    pub(super) why: Option<ProvenanceReport>,
    /// Outputs that the queried bytes reached; null if no log has these bytes as a source.
    pub(super) of: Option<ProvenanceReport>,
    /// Notes about the data.
    pub(super) notes: Notes,
}

impl ItemProvenance {
    pub(super) fn show(&self, doc: &mut Doc) {
        let answers = self.why.iter().chain(&self.of);
        answers.for_each(|answer| answer.show(doc));
    }

    /// Returns the outcome of the subcommand, which is partial if a log was not read and queried
    /// whole.
    pub(super) fn status(&self, read: Status) -> Status {
        let answers = self.why.iter().chain(&self.of);
        let mut statuses = answers.map(|answer| answer.status(read));
        statuses.find(|status| *status != read).unwrap_or(read)
    }
}

/// Bytes of an output that depend on the same items.
#[derive(Debug, Serialize, JsonSchema)]
struct ContentPart {
    from: u64,
    until: u64,
    /// The bytes as text; bytes that are no UTF-8 are replaced.
    text: String,
    /// Items at which the query of these bytes ended.
    sources: Vec<String>,
    /// Ids of these items, in ascending order, while `sources` is in order of name.
    source_ids: Vec<String>,
}

/// Bytes of an output that depend on bytes of a source.
#[derive(Debug, Serialize, JsonSchema)]
struct Flow {
    log: String,
    output: String,
    output_from: u64,
    output_until: u64,
    source: String,
    source_from: u64,
    source_until: u64,
    /// True if the bytes are copies, one by one. Otherwise, each byte of the output depends on all
    /// those of the source.
    copy: bool,
}

rows! {
    ItemBytes as row, "provenance_items": "Items that a query across merge logs reached.";
    item: Text, "item" = linked_item(&row.item.id);
    name: Text, "name" = row.item.name.as_str();
    log: Text, "log" = linked_log(&row.item.log, row.item.trace.as_deref());
    bytes: Count, "bytes" = row.bytes;
    ranges: Text, "ranges" = row.ranges.to_string().as_str();
}

rows! {
    ContentPart as row, "provenance_content": "Bytes of an output, with the items that made them.";
    bytes: Text, "bytes" = format!("{}..{}", row.from, row.until).as_str();
    text: Text, "text" = row.text.as_str();
    sources: Text, "made by" = row.sources.join(", ").as_str();
}

rows! {
    Flow as row, "provenance_flows": "Bytes of outputs, and bytes of sources on which they depend.";
    log: Text, "log" = row.log.as_str();
    output: Text, "output" = linked_item(&row.output);
    output_from: Count, "output from" = row.output_from;
    output_until: Count, "output until" = row.output_until;
    source: Text, "source" = linked_item(&row.source);
    source_from: Count, "source from" = row.source_from;
    source_until: Count, "source until" = row.source_until;
    copy: Flag, "copy" = row.copy;
}

impl KnownItems<'_> {
    /// Returns the parts of an output's content, with the items that made each. `answer` is the
    /// answer to the query of this output.
    fn content(&self, id: u64, answer: &ProvenanceAnswer) -> Vec<ContentPart> {
        let content = self.get(id).map_or(&[][..], |info| info.content);
        let parts = answer.parts(id, content.len() as u64).into_iter();
        parts
            .map(|part| {
                let bytes = part.bytes.start as usize..part.bytes.end as usize;
                ContentPart {
                    from: part.bytes.start,
                    until: part.bytes.end,
                    text: String::from_utf8_lossy(&content[bytes]).into_owned(),
                    sources: self.names(&part.ends),
                    source_ids: part.ends.keys().map(|id| item_id(*id)).collect(),
                }
            })
            .collect()
    }

    /// Returns the names and bytes of items, in order of their names.
    fn names(&self, items: &BytesByItem) -> Vec<String> {
        let names = items.iter().map(|(id, bytes)| {
            let name = self.get(*id).map_or("", |info| info.name);
            match name {
                "" => format!("{} {bytes}", item_id(*id)),
                name => format!("{name} {bytes}"),
            }
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl ProvenanceReport {
    /// Creates the report of an answer. Leaves out items that `only` does not accept, and flows
    /// from them (`Backward`) or to them (`Forward`).
    pub(super) fn of(
        mut answer: ProvenanceAnswer,
        logs: &ProvenanceLogs<'_>,
        (direction, id): (Direction, u64),
        only: &ItemFilters<'_>,
        top: usize,
    ) -> Self {
        let known = KnownItems::of(logs, |id| answer.items.contains_key(&id));
        let content = match direction {
            Direction::Backward => known.content(id, &answer),
            Direction::Forward => Vec::new(),
        };
        let item = answer.items.remove(&id).unwrap_or_default();
        let items = answer.items.len();
        answer.items.retain(|id, _| known.are_accepted(only, *id));
        let items_left_out = (items - answer.items.len()) as u64;
        if items_left_out > 0 {
            answer.flows.retain(|flow| match direction {
                Direction::Backward => answer.items.contains_key(&flow.source),
                Direction::Forward => answer.items.contains_key(&flow.output),
            });
        }
        let (mut ends, mut through) = (Vec::new(), Vec::new());
        for (id, item) in answer.items {
            match item.ends.bytes() {
                0 => through.push(known.with_bytes(id, item.bytes)),
                _ => ends.push(known.with_bytes(id, item.ends)),
            }
        }
        let flow = |flow: ByteFlow| Flow {
            log: logs[flow.log].name.clone(),
            output: item_id(flow.output),
            output_from: flow.output_bytes.0,
            output_until: flow.output_bytes.1,
            source: item_id(flow.source),
            source_from: flow.source_bytes.0,
            source_until: flow.source_bytes.1,
            copy: flow.is_copy,
        };
        Self {
            direction: match direction {
                Direction::Backward => "backward",
                Direction::Forward => "forward",
            },
            item: known.with_bytes(id, item.bytes),
            content,
            ends,
            through,
            items_left_out,
            flows: Top {
                rows: answer.flows.into_iter().map(flow).collect(),
                top,
            },
            flows_left_out: answer.left_out,
            unknown_inputs: answer.unknown,
            logs_read: logs.len() as u64,
            logs: LogGaps::of_all(logs),
            notes: Notes::default(),
        }
    }

    pub(super) fn show(&self, doc: &mut Doc) {
        let (ends, none) = match self.direction {
            "backward" => ("made by", "It depends on no input."),
            _ => ("reached", "They reached no output."),
        };
        let ItemBytes { item, ranges, .. } = &self.item;
        let name = match &*item.name {
            "" => String::new(),
            name => format!(" {name} of {}", item.log),
        };
        doc.heading(format!("{}{name}, bytes {ranges}", item.id));
        let all = self.ends.len() + self.through.len();
        if self.items_left_out > 0 {
            let items = counted(self.items_left_out, "item");
            doc.sentence(format!("--only leaves out {items}."));
        } else if all == 0 {
            doc.sentence(none);
        }
        if !self.content.is_empty() {
            doc.passage(self.passage());
            doc.table("content", &self.content, self.content.len());
        }
        doc.table(ends, &self.ends, self.ends.len());
        if !self.through.is_empty() {
            doc.table("through", &self.through, self.through.len());
        }
        if !self.flows.rows.is_empty() {
            doc.table("flows", &self.flows.rows, self.flows.shown());
        }
        if self.flows_left_out > 0 {
            let left_out = self.flows_left_out;
            let of_content = match self.content.is_empty() {
                true => "",
                false => ", but parts of the content may lack some",
            };
            doc.sentence(format!(
                "{left_out} more flows are not listed; the items are complete{of_content}."
            ));
        }
        if self.unknown_inputs > 0 {
            doc.sentence("Some inputs have no known source, because a log reached a limit.");
        }
        LogGaps::show_all(&self.logs, doc);
    }

    pub(super) fn status(&self, read: Status) -> Status {
        LogGaps::status(&self.logs, self.flows_left_out, read)
    }

    /// Returns the content as a text whose stretches have the items that made them.
    fn passage(&self) -> Passage {
        let mut numbers: HashMap<&[String], usize> = HashMap::new();
        let mut origins = Vec::new();
        let stretch = |part: &'_ ContentPart, origin| Stretch {
            text: part.text.clone(),
            origin,
            details: part.sources.join(", "),
        };
        let stretches = self.content.iter().map(|part| {
            if part.source_ids.is_empty() {
                return stretch(part, None);
            }
            let number = *numbers.entry(&part.source_ids).or_insert_with(|| {
                let things = part.source_ids.iter().map(|id| {
                    let end = self.ends.iter().find(|end| end.item.id == *id);
                    let name = end.map_or("", |end| &*end.item.name);
                    let name = if name.is_empty() { id } else { name };
                    (name.to_owned(), item_path(id, ""))
                });
                origins.push(Origin {
                    things: things.collect(),
                });
                origins.len() - 1
            });
            stretch(part, Some(number))
        });
        let stretches = stretches.collect();
        Passage {
            title: "Content by what made it".to_owned(),
            stretches,
            origins,
        }
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_query::ByteRanges;
    use stroboscope_render::show::TextView;

    use super::super::known::NamedItem;
    use super::*;

    #[test]
    fn answers_without_some_flows_are_partial() {
        let item = NamedItem {
            id: "0000000000000001".to_owned(),
            name: "page".to_owned(),
            log: "web".to_owned(),
            service: None,
            trace: None,
            span: None,
        };
        let mut report = ProvenanceReport {
            direction: "backward",
            item: ItemBytes {
                item,
                bytes: 0,
                ranges: ByteRanges::default(),
            },
            content: Vec::new(),
            ends: Vec::new(),
            through: Vec::new(),
            items_left_out: 0,
            flows: Top {
                rows: Vec::new(),
                top: 0,
            },
            flows_left_out: 0,
            unknown_inputs: 0,
            logs_read: 1,
            logs: Vec::new(),
            notes: Notes::default(),
        };
        assert_eq!(report.status(Status::Done), Status::Done);
        report.flows_left_out = 3;
        report.content.push(ContentPart {
            from: 0,
            until: 1,
            text: "a".to_owned(),
            sources: Vec::new(),
            source_ids: Vec::new(),
        });
        assert_eq!(report.status(Status::Done), Status::Partly);
        let mut doc = Doc::new();
        report.show(&mut doc);
        let text = TextView::default().render(&doc);
        let note = "3 more flows are not listed; the items are complete, but parts of the content may lack some.";
        assert!(text.contains(note), "{text}");
    }
}
