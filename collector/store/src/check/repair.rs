//! Repairs findings. Keeps damaged files in `damaged/`.

use std::sync::Arc;

use object_store::path::Path;

use super::finding::{CheckReport, FindingKind};
use super::ledger::StoredBatches;
use super::run::{Check, CheckError};
use crate::ledger::Checkpoint;
use crate::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use crate::tables::{REPLACED, Segments, StoreTable};

/// Directory that damaged files of the tables are moved to.
const DAMAGED: &str = "damaged";

impl Check {
    /// Moves damaged files to `damaged/`, and restores the files that they replaced, if those still
    /// exist. Completes or undoes interrupted compactions and thinnings. Removes the temporary
    /// files of interrupted writes. Rebuilds a missing, damaged or outdated checkpoint from the
    /// table of batches. Updates the Delta logs. The caller must hold the lock of the data
    /// directory.
    ///
    /// # Errors
    /// Returns an error if the store or the disk fails.
    pub fn repair(mut self) -> Result<CheckReport, CheckError> {
        let counters = Arc::new(MaintenanceCounters::default());
        let care = Care::of(self.store.clone(), MaintenanceSettings::default(), counters);
        for (table, path) in std::mem::take(&mut self.damaged) {
            let done = self.set_aside(table, &path)?;
            let at = self.store.display(&path);
            for finding in &mut self.report.findings {
                if finding.kind == FindingKind::DamagedFile && finding.at == at {
                    finding.repair = Some(done.clone());
                }
            }
        }
        // A log cannot drop a damaged file earlier: the table lists it until it is moved.
        care.log_tables(&StoreTable::ALL);
        if self.has_found(FindingKind::InterruptedCompaction) {
            care.tidy()?;
            let is_tidy = |table| (self.store.covered(table)).is_ok_and(|found| found.is_empty());
            if StoreTable::ALL.into_iter().all(is_tidy) {
                let done = "the compaction was completed";
                self.repaired(&[FindingKind::InterruptedCompaction], done);
            }
        }
        // `tidy` keeps these files, because the collector calls it while it writes others.
        self.store.remove(&self.unpublished)?;
        self.repaired(&[FindingKind::InterruptedWrite], "removed");
        let of_checkpoint = [
            FindingKind::MissingCheckpoint,
            FindingKind::DamagedCheckpoint,
            FindingKind::CheckpointBehind,
            FindingKind::UnknownBatch,
        ];
        if of_checkpoint.iter().any(|kind| self.has_found(*kind)) {
            let segment = self.rebuild_checkpoint()?;
            let done = format!(
                "the checkpoint was rebuilt from the table of batches; the log continues at segment {segment}"
            );
            self.repaired(&of_checkpoint, &done);
        }
        Ok(self.report)
    }

    fn repaired(&mut self, kinds: &[FindingKind], done: &str) {
        for finding in &mut self.report.findings {
            if kinds.contains(&finding.kind) {
                finding.repair = Some(done.to_owned());
            }
        }
    }

    /// Moves a damaged file to `damaged/`, and restores the files from which it was compacted.
    /// Returns a description of the repair.
    fn set_aside(&self, table: StoreTable, path: &Path) -> Result<String, CheckError> {
        let back = self.store.replaced_by(path)?;
        self.store.announce(table)?;
        // Moves the damaged file first, because it covers the restored files as long as it exists.
        let aside = Path::from(format!("{DAMAGED}/{path}"));
        self.store.rename(path, &aside)?;
        for from in &back {
            let to = from.as_ref().trim_start_matches(REPLACED);
            self.store
                .rename(from, &Path::from(to.trim_start_matches('/')))?;
        }
        let mut done = format!("moved to {}", self.store.display(&aside));
        if !back.is_empty() {
            done += &format!("; its {} input files were restored", back.len());
        }
        Ok(done)
    }

    /// Rebuilds the checkpoint from the table of batches. Returns the number of its next segment.
    ///
    /// The collector will repeat the flush of segments that are still in the log, to files with the
    /// same names. The ledger therefore omits the batches of these segments, except those in
    /// compacted files, which are not written again.
    fn rebuild_checkpoint(&self) -> Result<u64, CheckError> {
        let mut after = 0;
        for table in StoreTable::ALL {
            let files = self.store.list(table)?;
            let found = files.iter().filter_map(|(path, _)| Segments::of(path));
            after = found.fold(after, |after, of| after.max(of.last + 1));
        }
        let next_segment = self.log.first().copied().unwrap_or(after);
        let stored = StoredBatches::read_below(&self.store, next_segment)?;
        let damaged = self.data.root().join("checkpoint.json");
        if self.has_found(FindingKind::DamagedCheckpoint) {
            let aside = self.data.root().join("checkpoint.json.damaged");
            let moved = self.data.disk().rename(&damaged, &aside);
            moved.map_err(|source| CheckError::Disk(damaged.display().to_string(), source))?;
        }
        let mut ledger = stored.ledger();
        if let Some(known) = &self.checkpoint {
            ledger.keep_forgotten_losses(&known.ledger);
        }
        let fresh = Checkpoint {
            next_segment,
            ledger,
        };
        fresh.save(&**self.data.disk(), self.data.root())?;
        Ok(next_segment)
    }
}
