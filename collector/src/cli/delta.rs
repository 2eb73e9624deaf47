//! The `store delta` subcommand.

use std::sync::Arc;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Runtime;

use stroboscope_render::humanise::counted;
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::output::{print, say};
use stroboscope_reports::{Failure, Status};
use stroboscope_store::data_dir::{DataDir, DataDirError};
use stroboscope_store::flush::{Counters, Flusher, now_ns};
use stroboscope_store::tables::{DELTA_LOG, DeltaCommit, DeltaLog, Store, StoreTable};

/// Write Delta Lake logs, so that other engines read the store as tables
///
/// Spark, Trino, ClickHouse, Polars and others then read DIR/spans, DIR/events and so on as Delta
/// tables: with the columns of all files, and each row once, also while a collector merges files.
/// From then on, `collect` and `store compact` update the logs. Run this again after a collector
/// stops, or after `import` or `kernel record` without one. To end that, delete the directories
/// `_delta_log`.
#[derive(Debug, Args)]
pub(super) struct Delta {
    #[command(flatten)]
    data: DataArguments,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Delta logs of a data directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DeltaReport {
    /// True if another process, taken for a collector, uses the directory; a collector writes the
    /// logs within a minute.
    by_collector: bool,
    /// Tables with a log version or damaged files; empty if a collector writes the logs.
    tables: Vec<DeltaTable>,
}

/// Delta log of one table.
#[derive(Debug, Serialize, JsonSchema)]
struct DeltaTable {
    table: &'static str,
    /// Newest version of the log; absent if the table has no readable file yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    files: usize,
    added_files: usize,
    removed_files: usize,
    /// Columns of attributes that Delta cannot have because of their names.
    left_out_columns: Vec<String>,
    /// Files that cannot be read, and why.
    damaged_files: Vec<String>,
}

impl Delta {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let data = DataDir::existing(self.data.local()?).map_err(Failure::of)?;
        let store = Store::local(data.root(), runtime.handle().clone()).map_err(Failure::of)?;
        for table in StoreTable::ALL {
            DeltaLog::begin(&store, table).map_err(Failure::of)?;
        }
        let (by_collector, mut tables) = match data.lock() {
            Ok(_lock) => {
                let flushed = Arc::new(Counters::default());
                let mut flusher =
                    Flusher::load(&data, store.clone(), flushed).map_err(Failure::of)?;
                flusher.recover().map_err(Failure::of)?;
                let update = |table| {
                    let commit = DeltaLog::of(table).update(&store, now_ns() / 1_000_000);
                    commit.map(|commit| DeltaTable::new(table, commit))
                };
                let tables: Result<Vec<_>, _> = StoreTable::ALL.into_iter().map(update).collect();
                (false, tables.map_err(Failure::of)?)
            }
            Err(DataDirError::InUse(_)) => (true, Vec::new()),
            Err(error) => return Err(Failure::of(error)),
        };
        tables.retain(|table| table.version.is_some() || !table.damaged_files.is_empty());
        let report = DeltaReport {
            by_collector,
            tables,
        };
        for table in &report.tables {
            for damage in &table.damaged_files {
                say!("{damage}");
            }
        }
        if self.json {
            print(&serde_json::to_string_pretty(&report).map_err(Failure::of)?)?;
        } else {
            print(&report.text())?;
        }
        let is_partial = |table: &DeltaTable| !table.damaged_files.is_empty();
        Ok(if report.tables.iter().any(is_partial) {
            Status::Partly
        } else {
            Status::Done
        })
    }
}

impl DeltaTable {
    fn new(table: StoreTable, commit: DeltaCommit) -> Self {
        Self {
            table: table.name(),
            version: commit.version,
            files: commit.files,
            added_files: commit.added,
            removed_files: commit.removed,
            left_out_columns: commit.left_out_columns.into_iter().collect(),
            damaged_files: commit.damage.iter().map(ToString::to_string).collect(),
        }
    }

    fn text(&self) -> String {
        let Self {
            table,
            files,
            added_files,
            removed_files,
            left_out_columns,
            ..
        } = self;
        let version = self.version.unwrap_or(0);
        let files = counted(*files as u64, "file");
        let mut text = format!("{table}: version {version}, {files}");
        if added_files + removed_files > 0 {
            text += &format!(" ({added_files} added, {removed_files} removed)");
        }
        if !left_out_columns.is_empty() {
            let names = left_out_columns.join("`, `");
            text += &format!("; without the columns `{names}`, whose names Delta does not allow");
        }
        text
    }
}

impl DeltaReport {
    fn text(&self) -> String {
        if self.by_collector {
            return format!(
                "the collector that uses this directory writes {DELTA_LOG} of each table within a minute, and keeps \
                 it up to date"
            );
        }
        if self.tables.is_empty() {
            return "the store has no files yet".to_owned();
        }
        let lines: Vec<String> = self.tables.iter().map(DeltaTable::text).collect();
        lines.join("\n")
    }
}
