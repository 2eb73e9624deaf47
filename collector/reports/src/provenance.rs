//! The `provenance` subcommand.

mod list;
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
use tokio::runtime::Runtime;

pub use self::list::ProvenanceList;
pub use self::report::ProvenanceReport;
use crate::arguments::{DataArguments, ShowArguments};
use crate::memory_limit::{of_verb, parse_reading_limit};
use crate::verb::{Form, Report, give_as};
use crate::{Failure, Status};

/// Trace bytes through services: the inputs of an output, or the outputs of an input
///
/// Services record the bytes that they read, compute and write: with the SDK's module `tracked`,
/// which ships them with the spans, or with the crate `stroboscope-provenance`, each in a file. An
/// output of one log and a source of another with the same id are the same bytes, so queries
/// continue there.
///
///   stroboscope provenance list --data DIR                 outputs and sources of the store
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
    /// List outputs and sources
    List(ListArguments),
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

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    logs: LogArguments,
    /// Only items whose names contain this text
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Maximum number of items to show; 0 shows all
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
            Provenance::List(list) => {
                return list.logs.read(runtime, &list.show, |logs, notes| {
                    let list = ProvenanceList::of(logs, notes, list.name.as_deref(), list.top);
                    Ok(ProvenanceSays::List(Box::new(list)))
                });
            }
        };
        let QueryArguments { item, top, .. } = &query;
        query.logs.read(runtime, &query.show, |logs, notes| {
            let answer = logs.query(direction, item.id, item.bytes.clone());
            let answer = answer.map_err(Failure::of)?;
            let report = ProvenanceReport::of(answer, logs, notes, (direction, item.id), *top);
            Ok(ProvenanceSays::Answer(Box::new(report)))
        })
    }
}

/// Answer of a query across provenance logs, or the list of their items.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ProvenanceSays {
    Answer(Box<ProvenanceReport>),
    List(Box<ProvenanceList>),
}

impl Report for ProvenanceSays {
    fn notes(&self) -> &Notes {
        match self {
            Self::Answer(report) => &report.notes,
            Self::List(list) => &list.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::Answer(report) => report.show(doc),
            Self::List(list) => list.show(doc),
        }
    }

    fn status(&self, read: Status) -> Status {
        match self {
            Self::Answer(report) => report.status(read),
            Self::List(_) => read,
        }
    }
}

impl LogArguments {
    /// Reads the logs, and gives the report that `answer` makes of them.
    fn read(
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
        let readable = data.to_read(runtime.handle())?;
        let trace = self.trace.as_deref().map(trace_id);
        let memory = of_verb(self.memory_limit);
        let handle = runtime.handle().clone();
        let stored = StoredLogs::read(readable.directory(), handle, trace, &memory);
        let stored = stored.map_err(Failure::of)?;
        let logs = stored.logs.iter().map(|log| {
            let name = format!("{} {:032x}", log.service, log.trace_id);
            ProvenanceLog::parse(name, &log.log)
        });
        let mut notes = Notes {
            damage: stored.damage.clone(),
            unflushed_bytes: stored.unflushed_bytes,
            ..Notes::default()
        };
        let (mut readable_logs, mut unreadable) = (Vec::new(), 0);
        for log in logs {
            match log {
                Ok(log) => readable_logs.push(log),
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            notes
                .diagnostics
                .insert("unreadable_provenance_log".into(), unreadable);
        }
        give_as(
            &answer(&readable_logs.into(), notes)?,
            &self.form(&data.data),
            show,
        )
    }

    fn form<'a>(&self, data: &'a Path) -> Form<'a> {
        Form {
            data,
            is_json: self.json,
            out: None,
        }
    }
}
