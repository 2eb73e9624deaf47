//! Maintenance rounds. Methods of [`Care`] perform the steps of a merge (see the [module](super)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::path::Path;

use super::counters::MaintenanceCounters;
use super::policy::{Job, next_job};
use crate::publishing::PublishCounters;
use crate::tables::{
    DeltaLog, Hour, MergeError, MergedFile, RetriedSpans, Segments, Store, StoreError, StoreTable,
    merge_files,
};

/// Default time for which replaced files are kept, which is longer than queries usually take.
const GRACE: Duration = Duration::from_secs(3_600);
/// Default maximum size of all replaced files, in bytes.
const REPLACED_BYTES_MAX: u64 = 4 << 30;

/// Maximum number of retried spans that are remembered after a successful round, to drop their
/// events as well. If there are more, all are forgotten, and their events may stay duplicated.
const RETRIED_MAX: usize = 1 << 20;

/// Settings by which old hours are thinned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThinningSettings {
    /// Time from the end of an hour until it is thinned. Less than [`SETTLED`](super::SETTLED)
    /// counts as `SETTLED`, because records may arrive until then.
    pub after: Duration,
    /// Share that is kept of the requests that may be dropped, above 0 and at most 1.
    pub ratio: f64,
    /// Duration of a root span from which on its request stays unchanged; `None` for no such rule.
    pub slow: Option<Duration>,
}

/// Settings of store maintenance.
#[derive(Clone, Debug)]
pub struct MaintenanceSettings {
    /// True if small files are merged.
    pub compacts: bool,
    /// True to merge every hour as if no more records arrived for it, and to thin all due hours in
    /// one round, for a store without a collector.
    pub is_at_rest: bool,
    /// Time from the end of an hour until it is deleted; `None` for no limit.
    pub keep: Option<Duration>,
    /// State of publishing; `None` if nothing is published. An hour with files that wait to be
    /// published is not deleted because of its age.
    pub publishing: Option<Arc<PublishCounters>>,
    /// Maximum size of the tables in bytes, above which the oldest hours are deleted; `None` for no
    /// limit.
    pub keep_bytes: Option<u64>,
    /// Settings by which old hours are thinned; `None` disables thinning.
    pub thinning: Option<ThinningSettings>,
    /// Time for which replaced files are kept for queries in progress.
    pub grace: Duration,
    /// Maximum size of all replaced files, in bytes.
    pub replaced_bytes_max: u64,
}

impl Default for MaintenanceSettings {
    fn default() -> Self {
        Self {
            compacts: true,
            is_at_rest: false,
            keep: None,
            publishing: None,
            keep_bytes: None,
            thinning: None,
            grace: GRACE,
            replaced_bytes_max: REPLACED_BYTES_MAX,
        }
    }
}

/// Reason why maintenance failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Files were not merged or thinned.
    #[error("cannot compact: {0}")]
    Merge(#[from] MergeError),
}

/// Finished merge, whose file is not visible yet.
#[derive(Debug)]
pub struct MergeResult {
    table: StoreTable,
    job: Job,
    file: MergedFile,
}

/// Maintenance of a store. Its owner must hold the lock of the data directory.
#[derive(Debug)]
pub struct Care {
    store: Store,
    pub(super) settings: MaintenanceSettings,
    pub(super) counters: Arc<MaintenanceCounters>,
    retried: RetriedSpans,
    /// Files that merges reported as damaged. In later rounds, no merge includes one of them, or
    /// files on both sides of one.
    damaged: BTreeSet<Path>,
    /// Hours that are not thinned, because a file is damaged or all their requests stay unchanged.
    pub(super) unthinnable: BTreeSet<Hour>,
    pub(super) is_tidy: bool,
    pub(super) delta: Mutex<BTreeMap<StoreTable, DeltaLog>>,
}

impl Care {
    /// Creates the maintenance of a store.
    #[must_use]
    pub fn of(
        store: Store,
        settings: MaintenanceSettings,
        counters: Arc<MaintenanceCounters>,
    ) -> Self {
        Self {
            store,
            settings,
            counters,
            retried: RetriedSpans::default(),
            damaged: BTreeSet::new(),
            unthinnable: BTreeSet::new(),
            is_tidy: false,
            delta: Mutex::default(),
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the files that merges reported as damaged. Later rounds do not merge them.
    #[must_use]
    pub fn damaged(&self) -> &BTreeSet<Path> {
        &self.damaged
    }

    /// Performs maintenance that is due. `next_segment` is that of the checkpoint. Merging and
    /// thinning stop when `goes_on` returns false.
    ///
    /// # Errors
    /// Returns an error if the store fails. A damaged file is no error: merging and thinning leave
    /// it unchanged, and count and log their failure.
    pub fn round(
        &mut self,
        next_segment: u64,
        now_ns: i64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), MaintenanceError> {
        if !self.is_tidy {
            self.tidy()?;
            self.is_tidy = true;
        }
        self.retain(next_segment, now_ns)?;
        if self.settings.compacts {
            for table in StoreTable::OF_SEGMENTS {
                if !self.compact_table(table, next_segment, now_ns, goes_on)? {
                    break;
                }
            }
        }
        self.thin(next_segment, now_ns, goes_on)?;
        if self.retried.len() > RETRIED_MAX {
            self.retried = RetriedSpans::default();
        }
        self.log_tables(&StoreTable::ALL);
        self.purge(now_ns)
    }

    /// Returns the files of a table that may be merged, as runs of neighbours in one directory.
    /// Omits files of segment `next_segment` or later, files without segments in their names, such
    /// as imports, and runs of a single file. A damaged or a thinned file ends a run.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn stretches(
        &self,
        table: StoreTable,
        next_segment: u64,
    ) -> Result<Vec<Vec<(Path, u64)>>, StoreError> {
        let mut directories: BTreeMap<String, Vec<(Path, u64)>> = BTreeMap::new();
        for file in self.store.list(table)? {
            if Segments::of(&file.0).is_some_and(|of| of.last < next_segment) {
                let directory = file.0.as_ref().rsplit_once('/').map_or("", |parts| parts.0);
                let files = directories.entry(directory.to_owned()).or_default();
                files.push(file);
            }
        }
        let mut stretches = Vec::new();
        for mut files in directories.into_values() {
            files.sort_by_key(|(path, _)| Segments::of(path));
            let ends_run = |path: &Path| self.damaged.contains(path) || Segments::are_thinned(path);
            let parts = files.split(|(path, _)| ends_run(path));
            stretches.extend(parts.filter(|part| part.len() > 1).map(<[_]>::to_vec));
        }
        Ok(stretches)
    }

    /// Performs due merges of a table. Returns false if `goes_on` stopped it.
    fn compact_table(
        &mut self,
        table: StoreTable,
        next_segment: u64,
        now_ns: i64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, MaintenanceError> {
        for mut files in self.stretches(table, next_segment)? {
            while let Some(job) = next_job(&files, now_ns, self.settings.is_at_rest) {
                if !goes_on() {
                    return Ok(false);
                }
                match self.compact(table, job.clone(), goes_on) {
                    Ok(bytes) => {
                        let is_first = |file: &(Path, u64)| Some(file) == job.inputs.first();
                        let begin = files.iter().position(is_first).unwrap_or(0);
                        files.splice(begin..begin + job.inputs.len(), [(job.output, bytes)]);
                    }
                    Err(MaintenanceError::Merge(MergeError::Stopped)) => return Ok(false),
                    Err(error @ MaintenanceError::Merge(MergeError::Damaged(_))) => {
                        tracing::error!("{error}");
                        // The next round continues with the rest of the run.
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }

    /// Performs steps 1 to 4 of one merge. Returns the size of the merged file, in bytes.
    ///
    /// # Errors
    /// Returns the error of the step that fails. Readers then still see either the inputs or the
    /// merged file.
    pub fn compact(
        &mut self,
        table: StoreTable,
        job: Job,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, MaintenanceError> {
        let inputs: Vec<Path> = job.inputs.iter().map(|(path, _)| path.clone()).collect();
        let merged = self.merge(table, job, goes_on)?;
        let bytes = merged.file.bytes;
        self.publish(merged)?;
        self.replace(table, &inputs)?;
        Ok(bytes)
    }

    /// Writes the merged file (step 1).
    ///
    /// # Errors
    /// Returns an error if an input is damaged, if the store fails, or if `goes_on` returned false.
    /// There is then no merged file.
    pub fn merge(
        &mut self,
        table: StoreTable,
        job: Job,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<MergeResult, MaintenanceError> {
        let (store, retried) = (&self.store, &mut self.retried);
        match merge_files(store, table, &job.inputs, &job.output, retried, goes_on) {
            Ok(file) => Ok(MergeResult { table, job, file }),
            Err(error) => {
                if let MergeError::Damaged(damage) = &error {
                    let is_it = |path: &&Path| self.store.display(path) == damage.file;
                    let paths = || job.inputs.iter().map(|(path, _)| path);
                    self.damaged
                        .extend(paths().find(is_it).or_else(|| paths().next()).cloned());
                }
                if !matches!(error, MergeError::Stopped) {
                    self.counters.compaction_failures.fetch_add(1, Relaxed);
                }
                Err(error.into())
            }
        }
    }

    /// Publishes the merged file (step 2). From then on, it covers its inputs.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn publish(&self, merged: MergeResult) -> Result<(), MaintenanceError> {
        let MergeResult { table, job, file } = merged;
        let (rows, bytes, retries) = (file.rows, file.bytes, file.retries);
        if let Err(error) = file.publish() {
            self.counters.compaction_failures.fetch_add(1, Relaxed);
            return Err(error.into());
        }
        let counters = &self.counters;
        let read: u64 = job.inputs.iter().map(|(_, bytes)| bytes).sum();
        counters.compactions.fetch_add(1, Relaxed);
        counters.compaction_read_bytes.fetch_add(read, Relaxed);
        counters.compaction_written_bytes.fetch_add(bytes, Relaxed);
        counters.compacted_rows.fetch_add(rows, Relaxed);
        counters.otlp_retries_dropped.fetch_add(retries, Relaxed);
        let (output, files, table) = (job.output, job.inputs.len(), table.name());
        tracing::debug!("{output}: {rows} rows of {files} files of {table}");
        Ok(())
    }

    /// Moves files that another file covers to `replaced/` (steps 3 and 4).
    ///
    /// # Errors
    /// Returns an error if the disk fails. Readers ignore the files that were not moved, because
    /// they are still covered.
    pub fn replace(&self, table: StoreTable, covered: &[Path]) -> Result<(), MaintenanceError> {
        if covered.is_empty() {
            return Ok(());
        }
        self.log_tables(&[table]);
        self.store.announce(table)?;
        covered
            .iter()
            .try_for_each(|path| self.store.retire(path))?;
        let count = covered.len() as u64;
        self.counters.files_replaced.fetch_add(count, Relaxed);
        Ok(())
    }
}
