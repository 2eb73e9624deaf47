//! The `provenance` subcommand.

mod filter;
mod gaps;
mod items;
mod known;
mod map;
mod reading;
mod report;

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{Direction, Notes, StoredLogs};
use stroboscope_render::show::{Doc, Row as _};
use tokio::runtime::Runtime;

use self::filter::ItemFilter;
use self::gaps::LogGaps;
pub use self::items::ProvenanceItems;
use self::map::ItemPair;
pub use self::map::ProvenanceMapReport;
use self::reading::{LogArguments, QueriedLogs};
pub use self::report::{ItemProvenance, ProvenanceReport};
use crate::arguments::ShowArguments;
use crate::study::{NamedStudy, Reader};
use crate::verb::{PageVerb, Report, Tables, TakeReport, write_file};
use crate::{Failure, Status};

/// Trace bytes through services: the inputs of an output, or the outputs of an input
///
/// Services record the bytes that they read, compute and write: with the SDK's module `tracked`,
/// which ships them with the spans, or with the crate `stroboscope-provenance`, each in a file. An
/// output of one log and a source of another with the same id are the same bytes, so queries
/// continue there.
///
///   stroboscope provenance show --data DIR                 outputs and sources of the store
///   stroboscope provenance why 7 --data DIR                which bytes made output 7
///   stroboscope provenance why 7:0..20 web.log store.log   which bytes made its first 20, by files
///   stroboscope provenance of 1:5 --data DIR               which outputs byte 5 of 1 reached
///   stroboscope provenance map --source 'row of *'         which outputs depend on which rows
///
/// An id is a decimal number, or 16 hexadecimal digits as in the output and in ids of spans.
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    verbatim_doc_comment
)]
pub struct ProvenanceVerb {
    #[command(subcommand)]
    verb: Provenance,
}

#[derive(Debug, Subcommand)]
enum Provenance {
    /// Show which bytes made an output
    Why(QueryArguments),
    /// Show which outputs bytes of a source reached
    Of(QueryArguments),
    /// List outputs and sources, or show both directions of one
    Show(ItemsVerb),
    /// Show the bytes of each source on which each output depends
    ///
    /// Outputs are items that no log read, and sources are bytes that no log wrote; --between adds
    /// the items between them. A filter is a name, or a condition on the span in which the item was
    /// written (or read, if no log wrote it), in the language of `search`:
    ///
    ///   --source 'row of *'                                    * stands for any text
    ///   --output '{ service = "web" && .tenant = "t1" }'       by service and attribute
    ///   --source '{ name = "checkout" }'                       by operation
    ///
    /// --parquet writes all pairs to a file. The table `provenance_map` of `sql` has those of this
    /// command without options.
    #[command(verbatim_doc_comment)]
    Map(MapArguments),
}

#[derive(Debug, Args)]
struct MapArguments {
    #[command(flatten)]
    logs: LogArguments,
    #[command(flatten)]
    choice: MapChoice,
    /// Maximum number of pairs to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    /// Also write all pairs as a graph for Graphviz to this file
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArguments,
}

/// Outputs and sources of a map.
#[derive(Debug, Default, Args)]
struct MapChoice {
    /// Only outputs that match this filter; repeatable, all must match
    #[arg(long, value_name = "FILTER")]
    output: Vec<ItemFilter>,
    /// Only sources that match this filter; repeatable, all must match
    #[arg(long, value_name = "FILTER")]
    source: Vec<ItemFilter>,
    /// Also choose items that one log wrote and another read, as outputs and as sources
    #[arg(long)]
    between: bool,
}

#[derive(Debug, Args)]
struct QueryArguments {
    /// Output or source, as ID, ID:BYTE or ID:FROM..UNTIL
    #[arg(value_name = "ID[:BYTES]", value_parser = parse_item)]
    item: Item,
    #[command(flatten)]
    logs: LogArguments,
    /// Only items that match this filter of `provenance map`; repeatable, all must match
    #[arg(long, value_name = "FILTER")]
    only: Vec<ItemFilter>,
    /// Maximum number of flows to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    #[command(flatten)]
    show: ShowArguments,
}

/// Show outputs and the bytes of sources that made them
///
/// Without an item, lists all outputs and sources. With one, shows the bytes that made it if it is
/// an output, and the outputs that it reached if it is a source.
#[derive(Debug, Args)]
pub struct ItemsVerb {
    /// Output or source to show, as ID, ID:BYTE or ID:FROM..UNTIL
    #[arg(long, value_name = "ID[:BYTES]", value_parser = parse_item)]
    item: Option<Item>,
    #[command(flatten)]
    logs: LogArguments,
    /// Only items whose names contain this text
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Only items that match this filter of `provenance map`; repeatable, all must match
    #[arg(long, value_name = "FILTER")]
    only: Vec<ItemFilter>,
    /// Maximum number of items or flows to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    #[command(flatten)]
    show: ShowArguments,
}

/// Queried item, or some of its bytes.
#[derive(Clone, Debug)]
struct Item {
    id: u64,
    bytes: Option<Range<u64>>,
}

fn parse_item(text: &str) -> Result<Item, String> {
    let (id, bytes) = match text.split_once(':') {
        Some((id, bytes)) => (id, Some(bytes)),
        None => (text, None),
    };
    let is_hex = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = match is_hex {
        true => u64::from_str_radix(id, 16).ok(),
        false => id.parse().ok(),
    };
    let id = id.ok_or("the id must be a decimal number or 16 hexadecimal digits")?;
    let bytes = bytes.map(|bytes| {
        let number = |text: &str| text.parse::<u64>().ok();
        let range = match bytes.split_once("..") {
            Some((from, until)) => number(from).zip(number(until)).map(|(a, b)| a..b),
            None => number(bytes).and_then(|byte| Some(byte..byte.checked_add(1)?)),
        };
        range
            .filter(|range| !range.is_empty())
            .ok_or("bytes must be a number, or a range such as 0..20")
    });
    Ok(Item {
        id,
        bytes: bytes.transpose()?,
    })
}

impl ProvenanceVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (query, direction) = match self.verb {
            Provenance::Why(query) => (query, Direction::Backward),
            Provenance::Of(query) => (query, Direction::Forward),
            Provenance::Show(items) => {
                let (logs, show) = (&items.logs, &items.show);
                return logs.give(runtime, show, |logs| items.answer(logs));
            }
            Provenance::Map(map) => {
                let (logs, show) = (&map.logs, &map.show);
                return logs.give(runtime, show, |logs| map.answer(logs));
            }
        };
        query.logs.give(runtime, &query.show, |mut logs| {
            let QueryArguments {
                item, only, top, ..
            } = &query;
            let mut report = item.query(direction, &mut logs, only, *top)?;
            report.notes = logs.notes;
            Ok(ProvenanceSays::Answer(Box::new(report)))
        })
    }
}

impl Item {
    fn query(
        &self,
        direction: Direction,
        queried: &mut QueriedLogs<'_>,
        only: &[ItemFilter],
        top: usize,
    ) -> Result<ProvenanceReport, Failure> {
        let only = queried.filters(only)?;
        let logs = &queried.logs;
        let answer = logs.query(direction, self.id, self.bytes.clone());
        let answer = answer.map_err(Failure::of)?;
        let asked = (direction, self.id);
        Ok(ProvenanceReport::of(answer, logs, asked, &only, top))
    }
}

impl ItemsVerb {
    fn answer(&self, mut logs: QueriedLogs<'_>) -> Result<ProvenanceSays, Failure> {
        let (only, top) = (&self.only, self.top);
        let Some(item) = &self.item else {
            let items = ProvenanceItems::of(logs, self.name.as_deref(), only, top)?;
            return Ok(ProvenanceSays::Items(Box::new(items)));
        };
        let mut query = |direction| item.query(direction, &mut logs, only, top);
        let (why, of) = match (query(Direction::Backward), query(Direction::Forward)) {
            (Err(error), Err(_)) => return Err(error),
            (why, of) => (why.ok(), of.ok()),
        };
        let notes = logs.notes;
        let item = ItemProvenance { why, of, notes };
        Ok(ProvenanceSays::Item(Box::new(item)))
    }
}

impl MapArguments {
    fn answer(&self, logs: QueriedLogs<'_>) -> Result<ProvenanceSays, Failure> {
        let map = ProvenanceMapReport::of(logs, &self.choice, self.top)?;
        if let Some(path) = &self.dot {
            write_file(path, map.dot().as_bytes())?;
        }
        Ok(ProvenanceSays::Map(Box::new(map)))
    }
}

/// SQL table of `provenance map`.
pub(crate) const TABLES: Tables = Tables {
    specs: &[ItemPair::TABLE],
    document: |_: &Path, study: &NamedStudy| {
        let source = study.source();
        let stored = StoredLogs::of_source(source).map_err(Failure::of)?;
        let logs = QueriedLogs::of(&stored, source.share());
        let map = ProvenanceMapReport::of(logs, &MapChoice::default(), 0)?;
        let mut doc = Doc::new();
        map.show(&mut doc);
        match map.flows_left_out {
            0 => Ok(doc),
            left_out => Err(Failure::new(format!(
                "outputs have {left_out} more flows than queries follow, so pairs may be missing; `provenance map` \
                 shows those that are known"
            ))),
        }
    },
};

impl PageVerb for ItemsVerb {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let own = self.logs.memory();
        let memory = reader.memory.as_ref().unwrap_or(&own);
        let read = self.logs.of_data(&self.logs.data, &reader.runtime, memory);
        take(&read?.answer(|logs| self.answer(logs))?)
    }
}

/// Answer of a query across provenance logs, answers for one item in both directions, a list of
/// items, or the sources of outputs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ProvenanceSays {
    Answer(Box<ProvenanceReport>),
    Item(Box<ItemProvenance>),
    Items(Box<ProvenanceItems>),
    Map(Box<ProvenanceMapReport>),
}

impl Report for ProvenanceSays {
    fn notes(&self) -> &Notes {
        match self {
            Self::Answer(report) => &report.notes,
            Self::Item(item) => &item.notes,
            Self::Items(items) => &items.notes,
            Self::Map(map) => &map.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::Answer(report) => report.show(doc),
            Self::Item(item) => item.show(doc),
            Self::Items(items) => items.show(doc),
            Self::Map(map) => map.show(doc),
        }
    }

    fn status(&self, read: Status) -> Status {
        match self {
            Self::Answer(report) => report.status(read),
            Self::Item(item) => item.status(read),
            Self::Items(items) => LogGaps::status(&items.logs, 0, read),
            Self::Map(map) => LogGaps::status(&map.logs, map.flows_left_out, read),
        }
    }
}
