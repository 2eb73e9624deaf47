//! The `store check` subcommand.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Runtime;

use stroboscope_render::humanise::{are, counted};
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, TextView};
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::output::{print_as_is, print_json, terminal_view};
use stroboscope_reports::{Failure, Status};
use stroboscope_store::check::{Check, CheckReport, Finding, TableSize};
use stroboscope_store::data_dir::{DataDir, DataDirError};
use stroboscope_store::tables::Store;

/// Maximum number of findings in the text output.
const SHOWN: usize = 50;

/// Check the integrity of a data directory
///
/// Reads all files of the store to their end, scans the log, and compares the checkpoint's list of
/// batches with the batches in the store. Exit status 0: no problem found, or all repaired; 1:
/// other problems found and printed. Works while a collector is running, and then skips everything
/// that the collector is about to change.
#[derive(Debug, Args)]
pub(super) struct CheckVerb {
    #[command(flatten)]
    data: DataArguments,
    /// Repair everything that can be repaired without losing data. Moves damaged files to
    /// `damaged/`, and restores the files that they were compacted from if these still exist.
    /// Finishes interrupted compactions, removes the temporary files of interrupted writes, and
    /// rebuilds a wrong checkpoint. Does not work while a collector is running
    #[arg(long)]
    repair: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Result of checking a data directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CheckedDirectory {
    /// True if nothing is wrong, or everything wrong was repaired.
    is_clean: bool,
    /// True if another process, such as a collector, uses the directory.
    is_in_use: bool,
    tables: Vec<CheckedTable>,
    /// Number of log segments that are not in the store yet.
    log_segments: u64,
    /// Number of hours that were thinned: their requests are a sample.
    thinned_hours: u64,
    /// Number of batches that are missing although later ones arrived: they are counted as losses,
    /// and are not findings.
    holes: u64,
    findings: Vec<DefectRow>,
}

/// Sums of one table of the store.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckedTable {
    table: &'static str,
    files: u64,
    rows: u64,
    bytes: u64,
}

/// One problem of a data directory.
#[derive(Debug, Serialize, JsonSchema)]
struct DefectRow {
    kind: &'static str,
    /// Path of a file, id of a process, or service and host.
    at: String,
    detail: String,
    /// Repair that was made, if any.
    repair: Option<String>,
}

impl CheckVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let data = DataDir::existing(self.data.local()?).map_err(Failure::of)?;
        let store = Store::local(data.root(), runtime.handle().clone()).map_err(Failure::of)?;
        let lock = match data.lock() {
            Ok(lock) => Some(lock),
            Err(DataDirError::InUse(_)) if !self.repair => None,
            Err(error) => return Err(Failure::of(error)),
        };
        let check = Check::run(&data, &store, lock.is_none()).map_err(Failure::of)?;
        let report = if self.repair {
            check.repair().map_err(Failure::of)?
        } else {
            check.report().clone()
        };
        let checked = CheckedDirectory::of(&report);
        if self.json {
            print_json(&checked)?;
        } else {
            let view = TextView {
                full_names: true,
                ..terminal_view()
            };
            print_as_is(&view.render(&checked.doc()))?;
        }
        Ok(if report.is_clean() {
            Status::Done
        } else {
            Status::Partly
        })
    }
}

impl CheckedDirectory {
    fn of(report: &CheckReport) -> Self {
        let table = |size: &TableSize| CheckedTable {
            table: size.table.name(),
            files: size.files,
            rows: size.rows,
            bytes: size.bytes,
        };
        let found = |finding: &Finding| DefectRow {
            kind: finding.kind.name(),
            at: finding.at.clone(),
            detail: finding.detail.clone(),
            repair: finding.repair.clone(),
        };
        Self {
            is_clean: report.is_clean(),
            is_in_use: report.is_in_use,
            tables: report.tables.iter().map(table).collect(),
            log_segments: report.log_segments,
            thinned_hours: report.thinned_hours,
            holes: report.holes,
            findings: report.findings.iter().map(found).collect(),
        }
    }

    fn doc(&self) -> Doc {
        let mut doc = Doc::new();
        doc.table("The store", &self.tables, self.tables.len());
        if self.thinned_hours > 0 {
            doc.sentence(format!(
                "{} of spans {} thinned: of their requests, a sample remains.",
                counted(self.thinned_hours, "hour"),
                are(self.thinned_hours)
            ));
        }
        if self.log_segments > 0 {
            doc.sentence(format!(
                "{} of the log {} not in the store yet.",
                counted(self.log_segments, "segment"),
                are(self.log_segments)
            ));
        }
        if self.holes > 0 {
            doc.sentence(format!(
                "{} batches never arrived; they count as losses.",
                self.holes
            ));
        }
        if self.is_in_use {
            doc.sentence("A collector is running; its pending changes were not checked.");
        }
        if self.findings.is_empty() {
            doc.sentence("No problems found.");
        } else {
            doc.table("Problems", &self.findings, SHOWN);
        }
        doc
    }
}

rows! {
    CheckedTable as row, "checked_tables": "A table of a store, as far as it is readable.";
    table: Text, "table" = Cell::Text(row.table.to_owned());
    files: Count, "files" = Cell::Count(row.files);
    rows: Count, "rows" = Cell::Count(row.rows);
    bytes: Count, "bytes" = Cell::Count(row.bytes);
}

rows! {
    DefectRow as row, "findings": "A problem of a data directory.";
    kind: Text, "kind" = Cell::Text(row.kind.to_owned());
    at: Text, "at" = Cell::Text(row.at.clone());
    detail: Text, "detail" = Cell::Text(row.detail.clone());
    repair: Text, "repair" = row.repair.clone().map_or(Cell::None, Cell::Text);
}
