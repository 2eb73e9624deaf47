//! Thins old hours: drops some of their requests, and increases the weights of others (see
//! [`stroboscope_analysis::thinning`]).
//!
//! The hour's files of spans, events and provenance, except imports, are written again without the
//! dropped requests, as `NAME-thinned`. A crash may come between any two of these steps:
//!
//! 1. The decisions to drop or reweight requests are written to a temporary file.
//! 2. One object names all new files durably. No listing contains these files while it exists.
//! 3. The new files are written, synced and renamed.
//! 4. Listings in progress are invalidated, and the object is removed durably. From then on, the
//!    new files cover the others, in all tables at once.
//! 5. The covered files are moved to `replaced/`, as after a merge.
//!
//! After a crash before step 4, the first round deletes the new files, and the hour is thinned
//! again. After step 4, it completes step 5.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use object_store::path::Path;
use stroboscope_analysis::thinning::ThinningRule;

use super::policy::SETTLED;
use super::round::{Care, MaintenanceError, ThinningSettings};
use crate::tables::{
    Hour, MergeError, Segments, StoreError, StoreTable, ThinningLog, ThinningTask, thin_file,
};

/// Files of the tables [`StoreTable::OF_REQUESTS`], each list in the order of paths.
type RequestFiles = Vec<Vec<(Path, u64)>>;

impl Care {
    /// Thins the hours that are due, the oldest first. In a running collector, thins at most one
    /// hour in a round, so that merges of recent hours do not wait. Skips hours with files of
    /// segment `next_segment` or later, and those in `unthinnable`. Stops when `goes_on` returns
    /// false.
    ///
    /// # Errors
    /// Returns an error if the store fails. The hour is then thinned in all tables or in none.
    pub(super) fn thin(
        &mut self,
        next_segment: u64,
        now_ns: i64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), MaintenanceError> {
        let Some(settings) = self.settings.thinning else {
            return Ok(());
        };
        let after_ns = settings.after.max(SETTLED).as_nanos();
        let after_ns = i64::try_from(after_ns).unwrap_or(i64::MAX);
        let files = self.store().list_together(&StoreTable::OF_REQUESTS)?;
        let spans = files.first().into_iter().flatten();
        let unthinned = spans.filter(|(path, _)| is_thinnable(path));
        let hours: BTreeSet<Hour> = unthinned
            .filter_map(|(path, _)| Hour::of_object(path.as_ref()))
            .collect();
        let is_growing = |hour: Hour| {
            let mut files = files.iter().flatten();
            files.any(|(path, _)| {
                let is_new = Segments::of(path).is_some_and(|of| of.last >= next_segment);
                is_new && Hour::of_object(path.as_ref()) == Some(hour)
            })
        };
        for hour in hours {
            let is_due = now_ns.saturating_sub(hour.end_ns()) >= after_ns;
            if !is_due || self.unthinnable.contains(&hour) || is_growing(hour) {
                continue;
            }
            match self.thin_hour(hour, &settings, goes_on) {
                Ok(true) if self.settings.is_at_rest => {}
                Ok(true) => return Ok(()),
                Ok(false) => _ = self.unthinnable.insert(hour),
                Err(MaintenanceError::Merge(MergeError::Stopped)) => {
                    return self.abandon_thinning().map_err(Into::into);
                }
                Err(error) => {
                    self.counters.thinning_failures.fetch_add(1, Relaxed);
                    self.is_tidy = false;
                    self.abandon_thinning()?;
                    if let MaintenanceError::Merge(MergeError::Damaged(damage)) = &error {
                        tracing::error!(path = %hour.directory(), "cannot thin an hour: {damage}");
                        self.unthinnable.insert(hour);
                        continue;
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Performs all steps for one hour. Returns false if all its requests stay unchanged.
    fn thin_hour(
        &self,
        hour: Hour,
        settings: &ThinningSettings,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, MaintenanceError> {
        let store = self.store();
        let ns = |slow: Duration| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX);
        let slow_ns = settings.slow.map(ns);
        let of = ThinningTask {
            hour,
            rule: ThinningRule::new(settings.ratio, slow_ns),
            ratio: settings.ratio,
        };
        let files = store.list_together(&StoreTable::OF_REQUESTS)?;
        let (thinned, others) = divided(files, hour);
        let of_traces = |files: &RequestFiles| files.iter().take(2).cloned().collect::<Vec<_>>();
        let (kept, near) = (of_traces(&thinned), of_traces(&others));
        let mut log = ThinningLog::create(store, &of, kept, near, goes_on)?;
        if log.is_empty {
            return Ok(false);
        }
        let new_files = thinned.iter().flatten();
        let new_files = new_files.filter_map(|(path, _)| thinned_path(path));
        store.begin_thinning(&new_files.collect::<Vec<_>>())?;
        let (mut spans, mut bytes_before, mut bytes_after) = (0, 0, 0);
        for (table, files) in StoreTable::OF_REQUESTS.into_iter().zip(&thinned) {
            for file in files {
                let Some(path) = thinned_path(&file.0) else {
                    continue;
                };
                let written = thin_file(store, table, file, &path, (&of, &mut log), goes_on)?;
                bytes_before += file.1;
                bytes_after += written.bytes;
                if table == StoreTable::Spans {
                    spans += written.dropped_rows;
                }
            }
        }
        store.end_thinning()?;
        let counters = &self.counters;
        counters.hours_thinned.fetch_add(1, Relaxed);
        counters.requests_thinned.fetch_add(log.dropped, Relaxed);
        counters.spans_thinned.fetch_add(spans, Relaxed);
        let saved = u64::saturating_sub(bytes_before, bytes_after);
        counters.thinned_bytes.fetch_add(saved, Relaxed);
        tracing::info!(
            path = %hour.directory(),
            ratio = settings.ratio,
            requests = log.dropped,
            spans,
            bytes_before,
            bytes_after,
            "thinned an hour"
        );
        for (table, files) in StoreTable::OF_REQUESTS.into_iter().zip(thinned) {
            let covered: Vec<Path> = files.into_iter().map(|(path, _)| path).collect();
            self.replace(table, &covered)?;
        }
        Ok(true)
    }

    /// Deletes the files of a thinning that is not visible yet. If none is in progress, makes the
    /// end of the last thinning durable, so that the covered files can be moved.
    pub(super) fn abandon_thinning(&self) -> Result<(), StoreError> {
        let files = self.store().begun_thinning()?;
        if files.is_empty() {
            return self.store().make_thinning_durable();
        }
        for path in &files {
            self.store().delete(path)?;
        }
        self.store().end_thinning()
    }
}

/// Determines by a file's name whether it is thinned with its hour. Imported files and files that
/// are already thinned are not.
fn is_thinnable(path: &Path) -> bool {
    Segments::of(path).is_some_and(|of| !of.is_thinned)
}

/// Returns the path of the thinned file; `None` for a file without log segments in its name.
fn thinned_path(path: &Path) -> Option<Path> {
    let (directory, _) = path.as_ref().rsplit_once('/')?;
    let segments = Segments {
        is_thinned: true,
        ..Segments::of(path)?
    };
    let name = segments.name();
    Some(Path::from(format!("{directory}/{name}.parquet")))
}

/// Divides files into those that are thinned with an hour, and those that may have further records
/// of the hour's requests. The latter are the hour's other files, and the files of adjacent hours.
fn divided(files: RequestFiles, hour: Hour) -> (RequestFiles, RequestFiles) {
    let near: RangeInclusive<i64> = hour.begin_ns() - 1..=hour.end_ns();
    let is_near = |of: Hour| near.contains(&(of.end_ns() - 1)) || near.contains(&of.begin_ns());
    let of_table = |mut files: Vec<(Path, u64)>| {
        files.retain(|(path, _)| Hour::of_object(path.as_ref()).is_some_and(is_near));
        let is_it =
            |path: &Path| Hour::of_object(path.as_ref()) == Some(hour) && is_thinnable(path);
        files.into_iter().partition(|(path, _)| is_it(path))
    };
    files.into_iter().map(of_table).unzip()
}
