//! Logs that the subcommand reads: those of a data directory, or files.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use stroboscope_otlp::trace_id;
use stroboscope_query::{
    Notes, ProvenanceError, ProvenanceLog, ProvenanceLogs, Source, StoredLogs,
};
use stroboscope_store::query_memory::{QueryMemory, QueryShare};
use tokio::runtime::{Handle, Runtime};

use super::ProvenanceSays;
use super::filter::{ItemFilter, ItemFilters};
use crate::arguments::{DataArguments, Readable, ShowArguments};
use crate::memory_limit::{of_verb, parse_reading_limit};
use crate::verb::give_as;
use crate::{Failure, FailureCode, Status};

/// Number of bytes of a file that are read before their memory is counted.
const PART_BYTES: u64 = 1 << 20;

/// Arguments for the logs to read.
#[derive(Debug, Args)]
pub(super) struct LogArguments {
    /// Files of logs, in place of those in the data directory
    #[arg(value_name = "LOG")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) data: DataArguments,
    /// Only logs of this request
    #[arg(long, value_name = "TRACE", conflicts_with = "files")]
    trace: Option<String>,
    /// Memory for the logs [default: 60 % of the control group's limit or the machine's memory; at
    /// least 256 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    memory_limit: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) struct QueriedLogs<'a> {
    pub(super) logs: ProvenanceLogs<'a>,
    /// Notes about the data.
    pub(super) notes: Notes,
    /// Memory for results.
    pub(super) share: QueryShare,
    /// Data directory, for the spans of items; `None` for files, and for the SQL table, which needs
    /// no spans.
    directory: Option<DataToRead<'a>>,
}

/// Data directory, and how to read it.
#[derive(Clone, Copy)]
struct DataToRead<'a> {
    path: &'a Path,
    runtime: &'a Handle,
    memory: &'a QueryMemory,
}

impl<'a> QueriedLogs<'a> {
    /// Parses stored logs. The notes count those that cannot be parsed, which are left out.
    pub(super) fn of(stored: &'a StoredLogs, share: QueryShare) -> Self {
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
                    parsed.service = Some(log.service.to_string());
                    logs.push(parsed);
                }
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let notes = &mut notes.diagnostics;
            notes.insert("unreadable_provenance_log".into(), unreadable);
        }
        Self {
            logs: logs.into(),
            notes,
            share,
            directory: None,
        }
    }

    /// Reads the spans that filters need.
    pub(super) fn filters<'b>(
        &mut self,
        filters: &'b [ItemFilter],
    ) -> Result<ItemFilters<'b>, Failure> {
        let filters = filters.iter().map(|filter| {
            let spans = match (filter, self.directory) {
                (ItemFilter::Name(_), _) => HashSet::new(),
                (ItemFilter::Span(text, _), None) => {
                    return Err(Failure::asked(format!(
                        "files of logs have no spans for {text}: give a name, or read a data directory (--data)"
                    )));
                }
                (ItemFilter::Span(_, formula), Some(data)) => {
                    let source = Source::open_any(data.path, data.runtime.clone());
                    let source = source.map_err(Failure::of)?.with_memory(data.memory);
                    let traces: HashSet<u128> =
                        self.logs.iter().filter_map(|log| log.trace).collect();
                    let traces = traces.into_iter().collect();
                    let spans = source.matching_spans(traces, formula, &mut self.notes);
                    spans.map_err(Failure::of)?
                }
            };
            Ok((filter, spans))
        });
        Ok(ItemFilters(filters.collect::<Result<_, Failure>>()?))
    }
}

/// Reads a file. Fails if its bytes, and copies of its records, do not fit into the memory.
fn read_log(path: &Path, share: &mut QueryShare) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| {
        let path = path.to_owned();
        Failure::of(ProvenanceError::Unreadable { path, error })
    };
    let (mut file, mut bytes) = (File::open(path).map_err(unreadable)?, Vec::new());
    loop {
        let part = file.by_ref().take(PART_BYTES).read_to_end(&mut bytes);
        match part.map_err(unreadable)? {
            0 => return Ok(bytes),
            // The buffer may have twice the size that it needs.
            read => share.take(3 * read).map_err(|lack| {
                let cause = format!("{}: {lack}; give fewer files at a time", path.display());
                Failure::coded(FailureCode::TooLarge, cause)
            })?,
        }
    }
}

impl LogArguments {
    /// Reads the logs, and prints the report that `answer` makes of them.
    pub(super) fn give(
        &self,
        runtime: &Runtime,
        show: &ShowArguments,
        answer: impl FnOnce(QueriedLogs<'_>) -> Result<ProvenanceSays, Failure>,
    ) -> Result<Status, Failure> {
        let memory = self.memory();
        if !self.files.is_empty() {
            let mut of_files = memory.share();
            let files = self.files.iter().map(|path| read_log(path, &mut of_files));
            let files = files.collect::<Result<Vec<_>, _>>()?;
            let logs = self.files.iter().zip(&files);
            let logs = logs.map(|(path, file)| {
                ProvenanceLog::parse(path.display().to_string(), file).map_err(Failure::of)
            });
            let report = answer(QueriedLogs {
                logs: logs.collect::<Result<Vec<_>, _>>()?.into(),
                notes: Notes::default(),
                share: memory.share(),
                directory: None,
            })?;
            return give_as(&report, &self.files[0], self.json, None, show);
        }
        let data = self.data.clone().or_newest_demo();
        let read = self.of_data(&data, runtime.handle(), &memory)?;
        let report = read.answer(answer)?;
        give_as(&report, &data.data, self.json, None, show)
    }

    pub(super) fn memory(&self) -> QueryMemory {
        of_verb(self.memory_limit)
    }

    pub(super) fn of_data<'a>(
        &self,
        data: &DataArguments,
        runtime: &'a Handle,
        memory: &'a QueryMemory,
    ) -> Result<LogsOfData<'a>, Failure> {
        let directory = data.to_read(runtime)?;
        let trace = self.trace.as_deref().map(trace_id);
        let stored = StoredLogs::read(directory.directory(), runtime.clone(), trace, memory);
        Ok(LogsOfData {
            stored: stored.map_err(Failure::of)?,
            directory,
            runtime,
            memory,
        })
    }
}

pub(super) struct LogsOfData<'a> {
    stored: StoredLogs,
    directory: Readable,
    runtime: &'a Handle,
    memory: &'a QueryMemory,
}

impl LogsOfData<'_> {
    /// Returns the report that `answer` makes of the logs.
    pub(super) fn answer(
        &self,
        answer: impl FnOnce(QueriedLogs<'_>) -> Result<ProvenanceSays, Failure>,
    ) -> Result<ProvenanceSays, Failure> {
        answer(QueriedLogs {
            directory: Some(DataToRead {
                path: self.directory.directory(),
                runtime: self.runtime,
                memory: self.memory,
            }),
            ..QueriedLogs::of(&self.stored, self.memory.share())
        })
    }
}
