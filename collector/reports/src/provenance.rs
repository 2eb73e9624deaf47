//! The `provenance` subcommand.

mod items;
mod report;

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_otlp::trace_id;
use stroboscope_query::{
    Direction, Notes, ProvenanceError, ProvenanceLog, ProvenanceLogs, StoredLogs,
};
use stroboscope_render::show::Doc;
use stroboscope_store::query_memory::QueryMemory;
use tokio::runtime::{Handle, Runtime};

pub use self::items::ProvenanceItems;
pub use self::report::{ItemProvenance, ProvenanceReport};
use crate::arguments::{DataArguments, ShowArguments};
use crate::memory_limit::{of_verb, parse_reading_limit};
use crate::study::Reader;
use crate::verb::{Form, PageVerb, Report, TakeReport, give_as};
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
}

#[derive(Debug, Args)]
struct QueryArguments {
    /// Output or source, as ID, ID:BYTE or ID:FROM..UNTIL
    #[arg(value_name = "ID[:BYTES]", value_parser = parse_item)]
    item: Item,
    #[command(flatten)]
    logs: LogArguments,
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
    /// Maximum number of items or flows to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    #[command(flatten)]
    show: ShowArguments,
}

/// Arguments for the logs to read.
#[derive(Debug, Args)]
struct LogArguments {
    /// Files of logs, in place of those in the data directory
    #[arg(value_name = "LOG")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    data: DataArguments,
    /// Only logs of this request
    #[arg(long, value_name = "TRACE", conflicts_with = "files")]
    trace: Option<String>,
    /// Memory for the logs of the data directory [default: 60 % of the control group's limit, or of
    /// the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    memory_limit: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Item of which a query is, or some of its bytes.
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
                return logs.give(runtime, show, |logs, notes| items.answer(logs, notes));
            }
        };
        let QueryArguments { item, top, .. } = &query;
        query.logs.give(runtime, &query.show, |logs, notes| {
            let report = item.query(direction, logs, notes, *top)?;
            Ok(ProvenanceSays::Answer(Box::new(report)))
        })
    }
}

impl Item {
    fn query(
        &self,
        direction: Direction,
        logs: &ProvenanceLogs<'_>,
        notes: Notes,
        top: usize,
    ) -> Result<ProvenanceReport, Failure> {
        let answer = logs.query(direction, self.id, self.bytes.clone());
        let answer = answer.map_err(Failure::of)?;
        let asked = (direction, self.id);
        Ok(ProvenanceReport::of(answer, logs, notes, asked, top))
    }
}

impl ItemsVerb {
    fn answer(&self, logs: &ProvenanceLogs<'_>, notes: Notes) -> Result<ProvenanceSays, Failure> {
        let Some(item) = &self.item else {
            let items = ProvenanceItems::of(logs, notes, self.name.as_deref(), self.top);
            return Ok(ProvenanceSays::Items(Box::new(items)));
        };
        let query = |direction| item.query(direction, logs, Notes::default(), self.top);
        let (why, of) = (query(Direction::Backward), query(Direction::Forward));
        let (why, of) = match (why, of) {
            (Err(error), Err(_)) => return Err(error),
            (why, of) => (why.ok(), of.ok()),
        };
        let item = ItemProvenance { why, of, notes };
        Ok(ProvenanceSays::Item(Box::new(item)))
    }
}

impl PageVerb for ItemsVerb {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let own = self.logs.memory();
        let memory = reader.memory.as_ref().unwrap_or(&own);
        let read = self.logs.of_data(&self.logs.data, &reader.runtime, memory);
        take(&read?.answer(|logs, notes| self.answer(logs, notes))?)
    }
}

/// Answer of a query across provenance logs, of the queries of an item in both directions, or the
/// list of items.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ProvenanceSays {
    Answer(Box<ProvenanceReport>),
    Item(Box<ItemProvenance>),
    Items(Box<ProvenanceItems>),
}

impl Report for ProvenanceSays {
    fn notes(&self) -> &Notes {
        match self {
            Self::Answer(report) => &report.notes,
            Self::Item(item) => &item.notes,
            Self::Items(items) => &items.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::Answer(report) => report.show(doc),
            Self::Item(item) => item.show(doc),
            Self::Items(items) => items.show(doc),
        }
    }

    fn status(&self, read: Status) -> Status {
        match self {
            Self::Answer(report) => report.status(read),
            Self::Item(item) => item.status(read),
            Self::Items(_) => read,
        }
    }
}

impl LogArguments {
    /// Reads the logs, and gives the report that `answer` makes of them.
    fn give(
        &self,
        runtime: &Runtime,
        show: &ShowArguments,
        answer: impl FnOnce(&ProvenanceLogs<'_>, Notes) -> Result<ProvenanceSays, Failure>,
    ) -> Result<Status, Failure> {
        if !self.files.is_empty() {
            let mut files = Vec::new();
            for path in &self.files {
                files.push(std::fs::read(path).map_err(|error| {
                    let path = path.clone();
                    Failure::of(ProvenanceError::Unreadable { path, error })
                })?);
            }
            let logs = self.files.iter().zip(&files);
            let logs = logs.map(|(path, file)| {
                ProvenanceLog::parse(path.display().to_string(), file).map_err(Failure::of)
            });
            let report = answer(
                &logs.collect::<Result<Vec<_>, _>>()?.into(),
                Notes::default(),
            )?;
            return give_as(&report, &self.form(&self.files[0]), show);
        }
        let data = self.data.clone().or_newest_demo();
        let read = self.of_data(&data, runtime.handle(), &self.memory())?;
        give_as(&read.answer(answer)?, &self.form(&data.data), show)
    }

    fn memory(&self) -> QueryMemory {
        of_verb(self.memory_limit)
    }

    /// Reads the logs of a data directory.
    fn of_data(
        &self,
        data: &DataArguments,
        runtime: &Handle,
        memory: &QueryMemory,
    ) -> Result<LogsOfData, Failure> {
        let readable = data.to_read(runtime)?;
        let trace = self.trace.as_deref().map(trace_id);
        let stored = StoredLogs::read(readable.directory(), runtime.clone(), trace, memory);
        Ok(LogsOfData(stored.map_err(Failure::of)?))
    }

    fn form<'a>(&self, data: &'a Path) -> Form<'a> {
        Form {
            data,
            is_json: self.json,
            out: None,
        }
    }
}

/// Logs that were read from a data directory.
struct LogsOfData(StoredLogs);

impl LogsOfData {
    /// Returns the report that `answer` makes of the logs. Logs that cannot be parsed are left out,
    /// which its notes count.
    fn answer(
        &self,
        answer: impl FnOnce(&ProvenanceLogs<'_>, Notes) -> Result<ProvenanceSays, Failure>,
    ) -> Result<ProvenanceSays, Failure> {
        let Self(stored) = self;
        let mut notes = Notes {
            damage: stored.damage.clone(),
            unflushed_bytes: stored.unflushed_bytes,
            ..Notes::default()
        };
        let (mut logs, mut unreadable) = (Vec::new(), 0);
        for log in &stored.logs {
            let name = format!("{} {:032x}", log.service, log.trace_id);
            match ProvenanceLog::parse(name, &log.log) {
                Ok(mut parsed) => {
                    parsed.trace = Some(log.trace_id);
                    logs.push(parsed);
                }
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let notes = &mut notes.diagnostics;
            notes.insert("unreadable_provenance_log".into(), unreadable);
        }
        answer(&logs.into(), notes)
    }
}
