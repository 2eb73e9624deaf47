//! The `import` subcommand.

use std::path::{Path, PathBuf};
use stroboscope_reports::output::say;

use clap::Args;
use tokio::runtime::Runtime;

use stroboscope_import::{
    BadLine, FieldMapping, Format, ImportError, ImportOutcome, ImportSummary, Importer, NotTaken,
    TimeUnit,
};
use stroboscope_render::humanise::counted;
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::output::print;
use stroboscope_reports::progress::on_stderr;
use stroboscope_reports::{Failure, Status};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::limits::IMPORT_BAD_LINES_SHOWN;
use stroboscope_store::tables::Store;

/// Maximum number of names in the output for valid data that has no place in the store. The receipt
/// in the data directory has up to 256, and one for all others.
const NAMES_SHOWN: usize = 40;

/// Import event logs, spans of OpenTelemetry, Jaeger, Tempo and Zipkin, Chrome traces, KUtrace, perf and strace
///
/// The format is detected from the content, record by record, also inside .gz and .zst. Event logs
/// are JSON lines, one event a line: {"trace": "4bf9…", "host": "web1", "ts_ns":
/// 1767322800000000000, "event": "begin", "task": "server", "attrs": {"user": 7}}; `attrs` is
/// optional. A trace of 1 to 32 hex digits, not all 0, is used as the trace id; any other name gets
/// a stable id and keeps its name. Lines or records that cannot be used are reported with file and
/// line (20 of each file), and the rest is imported; then the exit status is 1, or 2 if nothing was
/// imported. Valid data that has no place in the store (a key, a log record, a counter) is counted
/// by name. Importing the same content again does nothing, and has the same exit status.
///
/// Instead of `ts_ns`, a line may have `ts`: a date and time of RFC 3339 (UTC without an offset),
/// or a number, with or without a fraction. The size of the number gives its unit: s from 100
/// million, ms from 10^11, us from 10^14, ns from 10^17. The first number of a file decides the
/// unit; a number of another unit is reported.
///
/// A mapping file (--map) describes the logs of other systems. For lines of JSON:
///
///   trace = "{request.id}"               # fields in braces; a path with points, or $.request.id
///   host = "{host|hostname}"             # the first field that exists; optional
///   task = "{service}/{thread}"
///   event = "{msg}"
///   time = "{time}"                      # detected as `ts` is; or set
///   time_unit = "ms"                     # s, ms, us, ns, or instead
///   time_format = "%d/%b/%Y:%H:%M:%S %z"
///   attributes = ["user.id", "items"]    # or "*": all fields that are not used otherwise
///   absent = ["-"]                       # texts that mean "no value"
///   ignore = '"level":"debug"'           # a regular expression for lines that are not events
///   lines_without_trace = "ignore"       # or "report" them as bad lines
///
/// For records that are spans, write a section instead of `task`, `event` and `time`:
///
///   [span]
///   id = "{span_id}"
///   parent = "{parent_id}"               # optional, like service and kind
///   name = "{operation}"
///   service = "{service}"
///   kind = "{kind}"                      # client, server, …
///   start = "{start}"                    # two of start, end and duration
///   duration = "{took}"
///   duration_unit = "ms"
///
/// Records are lines of JSON, unless one of these settings changes that:
///
///   csv = ","                            # CSV; the first line names the columns
///   records = "$.result.spans"           # a list in JSON documents; "$": the documents themselves
///   # a regular expression whose named groups are the fields
///   pattern = '^(?<time>\S+) (?<trace>\S+) (?<what>.*)$'
///
/// A section [interval] turns a line that reports a beginning and an end into two events,
/// `EVENT begin` and `EVENT end`, with duration = "{seconds}", duration_unit = "s", and time_is =
/// "end" or "start".
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Import {
    #[command(flatten)]
    data: DataArguments,
    /// Format of all files
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Mapping file for lines of other systems; see --help
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    map: Option<PathBuf>,
    /// Unit of the times in event logs, regardless of their field or size, and with --map, instead
    /// of the mapping's time_unit or time_format. Other formats reject it
    #[arg(long, value_enum, value_name = "UNIT")]
    time_unit: Option<TimeUnit>,
    /// Files to import; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Import {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let mapping = self
            .map
            .as_deref()
            .map(FieldMapping::read)
            .transpose()
            .map_err(Failure::of)?;
        let directory = self.data.local()?;
        DataDir::refuse_foreign(directory).map_err(Failure::of)?;
        let data = DataDir::create(directory).map_err(Failure::of)?;
        let store = Store::local(&self.data.data, runtime.handle().clone()).map_err(Failure::of)?;
        let mut importer = Importer::new(data, store).with_observer(on_stderr());
        if let Some(format) = self.format {
            importer = importer.with_format(format);
        }
        if let Some(mapping) = mapping {
            importer = importer.with_mapping(mapping);
        }
        if let Some(unit) = self.time_unit {
            importer = importer.with_time_unit(unit);
        }
        let (mut any_read, mut all_good) = (false, true);
        for file in &self.files {
            match import_one(&importer, file) {
                Ok(One {
                    is_good,
                    was_useful,
                }) => {
                    any_read |= was_useful;
                    all_good &= is_good;
                }
                Err(error) => {
                    say!("error: {error}");
                    all_good = false;
                }
            }
        }
        match (any_read, all_good) {
            (false, _) => Err(Failure::new(
                "nothing could be imported; see above".to_owned(),
            )),
            (true, true) => Ok(Status::Done),
            (true, false) => Ok(Status::Partly),
        }
    }
}

struct One {
    is_good: bool,
    was_useful: bool,
}

fn import_one(importer: &Importer, file: &Path) -> Result<One, ImportError> {
    let is_stdin = file.as_os_str() == "-";
    let name = if is_stdin {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    let mut bad_lines = 0;
    let mut tell = |line: u64, reason: &BadLine| {
        bad_lines += 1;
        if bad_lines <= IMPORT_BAD_LINES_SHOWN {
            say!("{name}:{line}: {reason}");
        }
    };
    let imported = if is_stdin {
        importer.stream(&name, std::io::stdin().lock(), &mut tell)?
    } else {
        importer.file(file, &mut tell)?
    };
    if bad_lines > IMPORT_BAD_LINES_SHOWN {
        say!(
            "{name}: {} more lines could not be used",
            bad_lines - IMPORT_BAD_LINES_SHOWN
        );
    }
    Ok(match imported {
        ImportOutcome::Before(receipt) => {
            say!(
                "{name}: the same content was imported before, from {} ({}, {}); nothing done",
                receipt.source,
                records_text(receipt.spans, receipt.events),
                counted(receipt.bad_lines, "bad line")
            );
            One {
                is_good: receipt.bad_lines == 0,
                was_useful: true,
            }
        }
        ImportOutcome::Now(summary) => {
            // A closed standard output does not fail the import.
            let _ = print(&format!("{name}: {}", summary_text(&summary)));
            tell_not_taken(&name, &summary.not_taken);
            let was_useful = summary.spans + summary.events > 0;
            if !was_useful {
                say!("{name}: holds no span and no event that can be used");
            }
            if let Some(unit) = summary.doubtful_unit() {
                say!(
                    "note: {name}: all times lie before March 1973; if they are in {unit}, import it into another \
                     directory with --time-unit {unit}"
                );
            }
            One {
                is_good: summary.bad_lines == 0,
                was_useful,
            }
        }
    })
}

/// Prints up to [`NAMES_SHOWN`] names of valid data that has no place in the store, with counts.
fn tell_not_taken(name: &str, not_taken: &[NotTaken]) {
    for NotTaken {
        name: what,
        count,
        first,
    } in not_taken.iter().take(NAMES_SHOWN)
    {
        say!("note: {name}:{first}: not taken: {what}, {}", times(*count));
    }
    if let Some(more) = not_taken
        .len()
        .checked_sub(NAMES_SHOWN)
        .filter(|more| *more > 0)
    {
        say!("note: {name}: not taken: {more} more names");
    }
}

fn times(count: u64) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
    }
}

fn records_text(spans: u64, events: u64) -> String {
    if spans == 0 {
        counted(events, "event")
    } else {
        format!("{}, {}", counted(spans, "span"), counted(events, "event"))
    }
}

fn summary_text(summary: &ImportSummary) -> String {
    let duplicates = match summary.duplicates {
        0 => String::new(),
        duplicates => format!(", {} left out", counted(duplicates, "duplicate")),
    };
    let ignored = match summary.ignored_lines {
        0 => String::new(),
        ignored => format!(", {} ignored", counted(ignored, "line")),
    };
    let records = records_text(summary.spans, summary.events);
    format!(
        "{records}, {}{duplicates}{ignored}",
        counted(summary.bad_lines, "bad line")
    )
}
