//! Care itself: the steps of [`super`], one method each, and a round of all that is to be done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use object_store::path::Path;

use super::counters::CareCounters;
use super::policy::{Job, next_job};
use crate::publishing::PublishCounters;
use crate::tables::{
    MergeError, MergedFile, Retried, Segments, Store, StoreError, StoreTable, merge_files,
};

/// Time for which replaced files are kept: longer than a query takes.
const GRACE: Duration = Duration::from_secs(3_600);
/// Most bytes of replaced files.
const REPLACED_BYTES_MAX: u64 = 4 << 30;

/// Retried spans that are remembered until their events come; more are not, and their events stay double.
const RETRIED_MAX: usize = 1 << 20;
/// The tables whose files are merged, spans before events. Not the kernel's: a chunk is found by its name, and
/// understood by itself.
const TABLES: [StoreTable; 3] = [StoreTable::Spans, StoreTable::Events, StoreTable::Batches];

/// How a store is cared for.
#[derive(Clone, Debug)]
pub struct CareSettings {
    /// Whether small files become large ones.
    pub compacts: bool,
    /// Whether every hour is taken for one to which nothing comes any more: of a store at rest.
    pub is_at_rest: bool,
    /// Hours are deleted when they ended longer ago than this,
    pub keep: Option<Duration>,
    /// and, where all is published, are published.
    pub publishing: Option<Arc<PublishCounters>>,
    /// The oldest are deleted as long as the tables have more bytes than this.
    pub keep_bytes: Option<u64>,
    /// How long files are kept that were replaced.
    pub grace: Duration,
    /// How many bytes of them at most.
    pub replaced_bytes_max: u64,
}

impl Default for CareSettings {
    fn default() -> Self {
        Self {
            compacts: true,
            is_at_rest: false,
            keep: None,
            publishing: None,
            keep_bytes: None,
            grace: GRACE,
            replaced_bytes_max: REPLACED_BYTES_MAX,
        }
    }
}

/// Why care was not taken.
#[derive(Debug, thiserror::Error)]
pub enum CareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Files were not merged.
    #[error("cannot compact: {0}")]
    Merge(#[from] MergeError),
}

/// Files that were merged into one, which nobody sees yet.
#[derive(Debug)]
pub struct Merged {
    table: StoreTable,
    job: Job,
    file: MergedFile,
}

/// Takes care of a store. Who has one holds the data folder's lock.
#[derive(Debug)]
pub struct Care {
    store: Store,
    pub(super) settings: CareSettings,
    pub(super) counters: Arc<CareCounters>,
    retried: Retried,
    /// Files that cannot be merged, as they are damaged: nothing is merged over them.
    damaged: BTreeSet<Path>,
    is_tidy: bool,
}

impl Care {
    /// Of this store.
    #[must_use]
    pub fn of(store: Store, settings: CareSettings, counters: Arc<CareCounters>) -> Self {
        Self {
            store,
            settings,
            counters,
            retried: Retried::default(),
            damaged: BTreeSet::new(),
            is_tidy: false,
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Files that cannot be merged.
    #[must_use]
    pub fn damaged(&self) -> &BTreeSet<Path> {
        &self.damaged
    }

    /// All that is to be done now. `next_segment` is the checkpoint's; `goes_on` is asked again and again.
    ///
    /// # Errors
    /// When the store fails. A damaged file is no error: it is left alone, counted and told.
    pub fn round(
        &mut self,
        next_segment: u64,
        now_ns: i64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), CareError> {
        if !self.is_tidy {
            self.tidy()?;
            self.is_tidy = true;
        }
        self.retain(next_segment, now_ns)?;
        if self.settings.compacts {
            for table in TABLES {
                if !self.compact_table(table, next_segment, now_ns, goes_on)? {
                    break;
                }
            }
        }
        if self.retried.len() > RETRIED_MAX {
            self.retried = Retried::default();
        }
        self.purge(now_ns)
    }

    /// The files of a table that may be merged, as stretches of neighbours.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn stretches(
        &self,
        table: StoreTable,
        next_segment: u64,
    ) -> Result<Vec<Vec<(Path, u64)>>, StoreError> {
        let mut folders: BTreeMap<String, Vec<(Path, u64)>> = BTreeMap::new();
        for file in self.store.list(table)? {
            if Segments::of(&file.0).is_some_and(|of| of.last < next_segment) {
                let folder = file.0.as_ref().rsplit_once('/').map_or("", |parts| parts.0);
                folders.entry(folder.to_owned()).or_default().push(file);
            }
        }
        let mut stretches = Vec::new();
        for mut files in folders.into_values() {
            files.sort_by_key(|(path, _)| Segments::of(path));
            let parts = files.split(|(path, _)| self.damaged.contains(path));
            stretches.extend(parts.filter(|part| part.len() > 1).map(<[_]>::to_vec));
        }
        Ok(stretches)
    }

    /// Whether it came to its end.
    fn compact_table(
        &mut self,
        table: StoreTable,
        next_segment: u64,
        now_ns: i64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, CareError> {
        for mut files in self.stretches(table, next_segment)? {
            while let Some(job) = next_job(&files, now_ns, self.settings.is_at_rest) {
                if !goes_on() {
                    return Ok(false);
                }
                match self.compact(table, job.clone(), goes_on) {
                    Ok(bytes) => {
                        let begin = files
                            .iter()
                            .position(|file| Some(file) == job.inputs.first());
                        let begin = begin.unwrap_or(0);
                        files.splice(begin..begin + job.inputs.len(), [(job.output, bytes)]);
                    }
                    Err(CareError::Merge(MergeError::Stopped)) => return Ok(false),
                    Err(error @ CareError::Merge(MergeError::Damaged(_))) => {
                        tracing::error!("{error}");
                        // The rest of the stretch comes in the next round.
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }

    /// All steps of one merge; the bytes of its file.
    ///
    /// # Errors
    /// At the step that fails; all rows are there then, once.
    pub fn compact(
        &mut self,
        table: StoreTable,
        job: Job,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, CareError> {
        let inputs: Vec<Path> = job.inputs.iter().map(|(path, _)| path.clone()).collect();
        let merged = self.merge(table, job, goes_on)?;
        let bytes = merged.file.bytes;
        self.publish(merged)?;
        self.replace(table, &inputs)?;
        Ok(bytes)
    }

    /// Step 1.
    ///
    /// # Errors
    /// When an input is damaged or the store fails; then there is no file.
    pub fn merge(
        &mut self,
        table: StoreTable,
        job: Job,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Merged, CareError> {
        let (store, retried) = (&self.store, &mut self.retried);
        match merge_files(store, table, &job.inputs, &job.output, retried, goes_on) {
            Ok(file) => Ok(Merged { table, job, file }),
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

    /// Step 2. The file stands for its inputs from here on.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn publish(&self, merged: Merged) -> Result<(), CareError> {
        let Merged { table, job, file } = merged;
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
        tracing::debug!(
            "{}: {rows} rows of {} files of {}",
            job.output,
            job.inputs.len(),
            table.name()
        );
        Ok(())
    }

    /// Steps 3 and 4, of files that another one covers.
    ///
    /// # Errors
    /// When the disk fails; those that are still there are covered.
    pub fn replace(&self, table: StoreTable, covered: &[Path]) -> Result<(), CareError> {
        self.move_away(table, covered)?;
        let count = covered.len() as u64;
        self.counters.files_replaced.fetch_add(count, Relaxed);
        Ok(())
    }

    pub(super) fn move_away(&self, table: StoreTable, files: &[Path]) -> Result<(), CareError> {
        if files.is_empty() {
            return Ok(());
        }
        self.store.announce(table)?;
        files.iter().try_for_each(|path| self.store.retire(path))?;
        Ok(())
    }
}
