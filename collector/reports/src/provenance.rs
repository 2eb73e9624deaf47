//! The `provenance` subcommand.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{
    ByteFlow, ByteRanges, Direction, Notes, ProvenanceAnswer, ProvenanceError, ProvenanceLog,
    item_id, provenance,
};
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::Doc;
use tokio::runtime::Runtime;

use crate::arguments::ShowArguments;
use crate::verb::{Form, Report, Top, give_as};
use crate::{Failure, Status};

/// Trace bytes through services: the inputs of an output, or the outputs of an input
///
/// Services record the bytes that they read, compute and write with the crate
/// `stroboscope-provenance`, each in a file. An output of one file and a source of another with the
/// same id are the same bytes: queries continue there, so pass the files of all services.
///
///   stroboscope provenance why 7 web.log store.log         which bytes made output 7
///   stroboscope provenance why 7:0..20 web.log store.log   which bytes made its first 20
///   stroboscope provenance of 1:5 web.log store.log        which outputs byte 5 of 1 reached
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
    Why(ProvenanceArguments),
    /// Show which outputs bytes of a source reached
    Of(ProvenanceArguments),
}

#[derive(Debug, Args)]
struct ProvenanceArguments {
    /// Output or source, as ID, ID:BYTE or ID:FROM..UNTIL
    #[arg(value_name = "ID[:BYTES]", value_parser = parse_item)]
    item: Item,
    /// Files of logs
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Maximum number of flows to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    top: usize,
    #[command(flatten)]
    show: ShowArguments,
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
    pub fn run(self, _: &Runtime) -> Result<Status, Failure> {
        match self.verb {
            Provenance::Why(arguments) => arguments.run(Direction::Backward),
            Provenance::Of(arguments) => arguments.run(Direction::Forward),
        }
    }
}

impl ProvenanceArguments {
    fn run(self, direction: Direction) -> Result<Status, Failure> {
        let mut files = Vec::new();
        for path in &self.logs {
            files.push(std::fs::read(path).map_err(|error| {
                let path = path.clone();
                Failure::of(ProvenanceError::Unreadable { path, error })
            })?);
        }
        let logs = self.logs.iter().zip(&files);
        let logs = logs.map(|(path, file)| ProvenanceLog::parse(path, file));
        let logs: Vec<ProvenanceLog<'_>> = logs.collect::<Result<_, _>>().map_err(Failure::of)?;
        let answer = provenance(&logs, direction, self.item.id, self.item.bytes);
        let answer = answer.map_err(Failure::of)?;
        let report = ProvenanceReport::of(answer, &logs, direction, self.item.id, self.top);
        let form = Form {
            data: &self.logs[0],
            is_json: self.json,
            out: None,
        };
        give_as(&report, &form, &self.show)
    }
}

/// Bytes that made an output, or outputs that bytes reached.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvenanceReport {
    /// `backward`: from an output to its sources; `forward`: from a source to outputs.
    direction: &'static str,
    /// Queried item.
    item: ItemBytes,
    /// Items at which the query ended: no log has an output with these bytes (`backward`), or a
    /// source (`forward`).
    ends: Vec<ItemBytes>,
    /// Items between the queried one and the ends.
    through: Vec<ItemBytes>,
    /// Flows in order of log and output.
    flows: Top<Flow>,
    /// Number of flows that are not listed, because there are too many.
    flows_left_out: u64,
    /// Number of ranges of inputs without a known source, because a log reached a limit.
    unknown_inputs: u64,
    logs: Vec<Log>,
    #[serde(skip)]
    notes: Notes,
}

/// Bytes of an item.
#[derive(Debug, Serialize, JsonSchema)]
struct ItemBytes {
    /// Id, as 16 hexadecimal digits.
    id: String,
    bytes: u64,
    /// Ranges of offsets: the first one, and the one after the last one.
    ranges: ByteRanges,
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

/// A log, and its gaps.
#[derive(Debug, Serialize, JsonSchema)]
struct Log {
    path: String,
    /// Number of merges whose result names more inputs than were merged; null if the log is
    /// unfinished.
    coarse_merges: Option<u64>,
    /// Number of bytes that share one input.
    shared_inputs: Option<u64>,
    /// Number of outputs that were not recorded.
    dropped_outputs: Option<u64>,
    /// Problem at which the reading ended; null if the log is whole.
    problem: Option<String>,
}

rows! {
    ItemBytes as row, "provenance_items": "Items that a query across merge logs reached.";
    item: Text, "item" = row.id.as_str();
    bytes: Count, "bytes" = row.bytes;
    ranges: Text, "ranges" = row.ranges.to_string().as_str();
}

rows! {
    Flow as row, "provenance_flows": "Bytes of outputs, and bytes of sources on which they depend.";
    log: Text, "log" = row.log.as_str();
    output: Text, "output" = row.output.as_str();
    output_from: Count, "output from" = row.output_from;
    output_until: Count, "output until" = row.output_until;
    source: Text, "source" = row.source.as_str();
    source_from: Count, "source from" = row.source_from;
    source_until: Count, "source until" = row.source_until;
    copy: Flag, "copy" = row.copy;
}

impl ItemBytes {
    fn of(id: u64, ranges: ByteRanges) -> Self {
        Self {
            id: item_id(id),
            bytes: ranges.bytes(),
            ranges,
        }
    }
}

impl Log {
    fn of(log: &ProvenanceLog<'_>) -> Self {
        let losses = log.losses();
        Self {
            path: log.path.display().to_string(),
            coarse_merges: losses.map(|losses| losses.coarse_merges),
            shared_inputs: losses.map(|losses| losses.shared_inputs),
            dropped_outputs: losses.map(|losses| losses.dropped_outputs),
            problem: log.problem.map(|problem| problem.to_string()),
        }
    }

    /// Describes the gaps of the log; `None` if it has none.
    fn gaps(&self) -> Option<String> {
        let gaps = [
            (self.coarse_merges, "coarse merge"),
            (self.shared_inputs, "shared input"),
            (self.dropped_outputs, "dropped output"),
        ];
        let gaps = gaps.into_iter().filter_map(|(count, one)| {
            let count = count.filter(|count| *count > 0)?;
            Some(counted(count, one))
        });
        let gaps: Vec<String> = self.problem.clone().into_iter().chain(gaps).collect();
        (!gaps.is_empty()).then(|| format!("{}: {}", self.path, gaps.join("; ")))
    }
}

impl ProvenanceReport {
    fn of(
        mut answer: ProvenanceAnswer,
        logs: &[ProvenanceLog<'_>],
        direction: Direction,
        id: u64,
        top: usize,
    ) -> Self {
        let item = answer.items.remove(&id).unwrap_or_default();
        let (mut ends, mut through) = (Vec::new(), Vec::new());
        for (id, item) in answer.items {
            match item.ends.bytes() {
                0 => through.push(ItemBytes::of(id, item.bytes)),
                _ => ends.push(ItemBytes::of(id, item.ends)),
            }
        }
        let flow = |flow: ByteFlow| Flow {
            log: logs[flow.log].path.display().to_string(),
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
            item: ItemBytes::of(id, item.bytes),
            ends,
            through,
            flows: Top {
                rows: answer.flows.into_iter().map(flow).collect(),
                top,
            },
            flows_left_out: answer.left_out,
            unknown_inputs: answer.unknown,
            logs: logs.iter().map(Log::of).collect(),
            notes: Notes::default(),
        }
    }
}

impl Report for ProvenanceReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let (ends, none) = match self.direction {
            "backward" => ("made by", "It depends on no input."),
            _ => ("reached", "They reached no output."),
        };
        let item = &self.item;
        doc.heading(format!("{}, bytes {}", item.id, item.ranges));
        let all = self.ends.len() + self.through.len();
        if all == 0 {
            doc.sentence(none);
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
            doc.sentence(format!(
                "{left_out} more flows are not listed; the items are complete."
            ));
        }
        if self.unknown_inputs > 0 {
            doc.sentence("Some inputs have no known source, because a log reached a limit.");
        }
        for gaps in self.logs.iter().filter_map(Log::gaps) {
            doc.sentence(gaps);
        }
    }

    fn status(&self, read: Status) -> Status {
        let is_whole = self.logs.iter().all(|log| log.problem.is_none());
        if is_whole { read } else { Status::Partly }
    }
}
