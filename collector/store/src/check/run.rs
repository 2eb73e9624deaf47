//! Reads all parts of a data directory in a safe order, and collects findings.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::path::Path;

use super::finding::{CheckReport, Finding, FindingKind, TableSize};
use super::ledger::{RecordCounts, StoredBatches, is_below};
use crate::data_dir::{DataDir, DataDirError};
use crate::ledger::{Checkpoint, CheckpointError};
use crate::maintenance::MaintenanceError;
use crate::tables::{
    Flaw, Hour, Recorder, Segments, Store, StoreError, StoreTable, is_of_delta_log, is_part,
    is_unpublished, verify_file,
};
use crate::wal::{list_segments_on, read_segment_on, segment_path};

/// Reason why a check or a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Data(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Care(#[from] MaintenanceError),
    /// The log cannot be read, or a damaged checkpoint cannot be renamed: the path, and the error.
    #[error("cannot use {0}: {1}")]
    Disk(String, std::io::Error),
}

/// Age at which a temporary file counts as left by a crash. A younger one may be in use: imports,
/// like kernel recordings, write theirs without the lock of the data directory.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(600);

/// Check of a data directory, with the findings so far.
#[derive(Debug)]
pub struct Check {
    pub(super) data: DataDir,
    pub(super) store: Store,
    pub(super) report: CheckReport,
    /// Checkpoint; `None` if it is damaged or not read yet.
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) damaged: Vec<(StoreTable, Path)>,
    /// Temporary files of interrupted writes.
    pub(super) unpublished: Vec<Path>,
    pub(super) log: Vec<u64>,
}

impl Check {
    /// Reads the checkpoint, the log and all tables. `is_in_use` states that another process, such
    /// as a collector, holds the lock of the data directory.
    ///
    /// # Errors
    /// Returns an error if the checkpoint or the log cannot be read, or if the store fails. Damaged
    /// content is a finding, not an error.
    pub fn run(data: &DataDir, store: &Store, is_in_use: bool) -> Result<Self, CheckError> {
        let mut check = Self {
            data: data.clone(),
            store: store.clone(),
            report: CheckReport {
                is_in_use,
                ..CheckReport::default()
            },
            checkpoint: None,
            damaged: Vec::new(),
            unpublished: Vec::new(),
            log: Vec::new(),
        };
        // Reads the checkpoint before the tables, so that batches that are stored during the check
        // are not reported as missing.
        check.read_checkpoint()?;
        check.read_log()?;
        let mut counts = RecordCounts::default();
        for table in StoreTable::ALL {
            check.read_table(table, &mut counts)?;
            if !is_in_use {
                check.find_leftovers(table)?;
            }
        }
        check.hold_ledger_against_batches(&counts)?;
        Ok(check)
    }

    /// Returns the report.
    #[must_use]
    pub fn report(&self) -> &CheckReport {
        &self.report
    }

    pub(super) fn find(
        &mut self,
        kind: FindingKind,
        at: impl Into<String>,
        detail: impl Into<String>,
    ) {
        self.report.findings.push(Finding::new(kind, at, detail));
    }

    fn read_checkpoint(&mut self) -> Result<(), CheckError> {
        match Checkpoint::load(&**self.data.disk(), self.data.root()) {
            Ok(checkpoint) => {
                self.report.holes = checkpoint.ledger.holes();
                self.checkpoint = Some(checkpoint);
            }
            Err(CheckpointError::Damaged { path, reason }) => {
                let at = path.display().to_string();
                self.find(FindingKind::DamagedCheckpoint, at, reason);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn read_log(&mut self) -> Result<(), CheckError> {
        let directory = self.data.wal();
        let failed = |source| CheckError::Disk(directory.display().to_string(), source);
        let disk = Arc::clone(self.data.disk());
        self.log = list_segments_on(&*disk, &directory).map_err(failed)?;
        let next = self.next_segment();
        self.report.log_segments = self.log.iter().filter(|&&number| number >= next).count() as u64;
        for number in self.log.clone() {
            let path = segment_path(&directory, number);
            match read_segment_on(&*disk, &path) {
                Ok(scan) => {
                    for note in scan.notes.iter().filter(|note| note.is_damage()) {
                        let at = path.display().to_string();
                        self.find(FindingKind::DamagedLog, at, note.to_string());
                    }
                }
                // The collector flushed and deleted the segment in the meantime.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(CheckError::Disk(path.display().to_string(), error)),
            }
        }
        Ok(())
    }

    fn read_table(
        &mut self,
        table: StoreTable,
        counts: &mut RecordCounts,
    ) -> Result<(), CheckError> {
        let files = self.store.list(table)?;
        let mut size = TableSize {
            table,
            files: files.len() as u64,
            rows: 0,
            bytes: files.iter().map(|(_, bytes)| bytes).sum(),
        };
        if table == StoreTable::Spans {
            let thinned = files.iter().filter(|(path, _)| Segments::are_thinned(path));
            let hours: BTreeSet<Hour> = thinned
                .filter_map(|(path, _)| Hour::of_object(path.as_ref()))
                .collect();
            self.report.thinned_hours = hours.len() as u64;
        }
        let mut unknown = None;
        let next = self.next_known();
        for object in &files {
            let at = self.store.display(&object.0);
            let last = Segments::of(&object.0).map(|of| of.last);
            let is_known = |last: u64| last < self.next_segment() || self.log.contains(&last);
            unknown = unknown.or(last.filter(|&last| !is_known(last)));
            let is_counted = is_below(&object.0, next)
                && match table {
                    StoreTable::Spans => true,
                    // Imported events have no batches.
                    StoreTable::Events => last.is_some(),
                    StoreTable::Batches | StoreTable::Kernel | StoreTable::Provenance => false,
                };
            if Hour::of_object(object.0.as_ref()).is_none() {
                let detail = "it is not in an hour's directory";
                self.find(FindingKind::StrangeFile, at.clone(), detail);
            }
            let mut visit = |recorder: Recorder<'_>, rows| {
                if is_counted {
                    counts.add(recorder, rows);
                }
            };
            match verify_file(&self.store, table, object, &mut visit) {
                Ok(rows) => size.rows += rows,
                Err(Flaw::Newer(reason)) => self.find(FindingKind::NewerFile, at, reason),
                Err(Flaw::Foreign(reason)) => self.find(FindingKind::StrangeFile, at, reason),
                Err(Flaw::Damaged(reason)) => {
                    self.damaged.push((table, object.0.clone()));
                    self.find(FindingKind::DamagedFile, at, reason);
                }
            }
        }
        self.report.tables.push(size);
        if let Some(segment) = unknown {
            self.find_unknown_segment(table, segment);
        }
        Ok(())
    }

    fn next_segment(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |of| of.next_segment)
    }

    /// Returns the log segment below which the check counts batches and records. Without a usable
    /// checkpoint, or while a collector is running, it counts all of them.
    fn next_known(&self) -> u64 {
        match self.next_segment() {
            0 => u64::MAX,
            _ if self.report.is_in_use => u64::MAX,
            next => next,
        }
    }

    /// Adds a finding for a segment in the store that is neither below the checkpoint's next
    /// segment nor in the log. Adds none while a collector is running, or if the checkpoint is
    /// damaged. Reports a missing checkpoint only once.
    fn find_unknown_segment(&mut self, table: StoreTable, segment: u64) {
        if self.report.is_in_use || self.checkpoint.is_none() {
            return;
        }
        let path = self.data.root().join("checkpoint.json");
        let at = path.display().to_string();
        let next = self.next_segment();
        if next > 0 {
            let table = table.name();
            let detail = format!("it ends before segment {next}; {table} has segment {segment}");
            self.find(FindingKind::CheckpointBehind, at, detail);
        } else if !self.has_found(FindingKind::MissingCheckpoint) {
            self.find(FindingKind::MissingCheckpoint, at, "the store is not empty");
        }
    }

    pub(super) fn has_found(&self, kind: FindingKind) -> bool {
        let mut findings = self.report.findings.iter();
        findings.any(|finding| finding.kind == kind)
    }

    fn find_leftovers(&mut self, table: StoreTable) -> Result<(), CheckError> {
        for path in self.store.begun_thinning()? {
            if path.as_ref().starts_with(&format!("{}/", table.name())) {
                let at = self.store.display(&path);
                let detail = "its hour was not thinned completely";
                self.find(FindingKind::InterruptedCompaction, at, detail);
            }
        }
        for of in self.store.covered(table)? {
            let (at, detail) = (
                self.store.display(&of.file.0),
                format!("{} replaces it", of.by.0),
            );
            self.find(FindingKind::InterruptedCompaction, at, detail);
        }
        for meta in self.store.list_under(&Path::from(table.name()))? {
            let at = self.store.display(&meta.location);
            let unfinished = "it was not written completely";
            if is_part(&meta.location) {
                self.find(FindingKind::InterruptedCompaction, at, unfinished);
            } else if is_unpublished(&meta.location) {
                let age = SystemTime::now().duration_since(meta.last_modified.into());
                if age.is_ok_and(|age| age >= INTERRUPTED_AFTER) {
                    self.find(FindingKind::InterruptedWrite, at, unfinished);
                    self.unpublished.push(meta.location);
                }
            } else if !is_of_delta_log(&meta.location)
                && meta.location.extension() != Some("parquet")
            {
                let detail = "it is not a Parquet file and is never read";
                self.find(FindingKind::StrangeFile, at, detail);
            }
        }
        Ok(())
    }

    fn hold_ledger_against_batches(&mut self, counts: &RecordCounts) -> Result<(), CheckError> {
        let stored = StoredBatches::read_below(&self.store, self.next_known())?;
        // If a file is unreadable or was deleted, the first batches of a process may be missing.
        let is_whole = self.damaged.is_empty()
            && !self.has_found(FindingKind::NewerFile)
            && !self.store.has_deleted()?;
        let is_in_use = self.report.is_in_use;
        if let Some(checkpoint) = &self.checkpoint
            && !self.has_found(FindingKind::MissingCheckpoint)
        {
            let findings = stored.compare(checkpoint, is_whole, is_in_use);
            self.report.findings.extend(findings);
        }
        self.report.findings.extend(stored.doubled());
        // Batches also count the records that thinning dropped.
        let is_thinned = self.report.thinned_hours > 0;
        if is_whole && !is_thinned && !is_in_use {
            self.report.findings.extend(stored.span_counts(counts));
            self.report.findings.extend(stored.event_counts(counts));
        }
        Ok(())
    }
}
