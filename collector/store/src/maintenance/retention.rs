//! Deletes data because of its age or the size limit, hour by hour in all tables, the oldest first.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use object_store::path::Path;

use super::disk::remove_empty_directories;
use super::round::{Care, MaintenanceError};
use crate::tables::{Hour, Segments, StoreTable};

impl Care {
    /// Deletes hours that are too old, and the oldest hours while the tables exceed the size limit.
    /// Never deletes an hour that is not over, nor a file of segment `next_segment` or later, which
    /// the flusher may be writing. An hour that waits to be published does not count as too old.
    /// Deleted files are moved to `replaced/`, so queries in progress can still read them.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn retain(&self, next_segment: u64, now_ns: i64) -> Result<(), MaintenanceError> {
        let (keep, keep_bytes) = (self.settings.keep, self.settings.keep_bytes);
        if keep.is_none() && keep_bytes.is_none() {
            return Ok(());
        }
        self.end_deletion()?;
        let mut hours: BTreeMap<Hour, Vec<(StoreTable, Path, u64)>> = BTreeMap::new();
        let mut bytes = 0;
        for table in StoreTable::ALL {
            for (path, size) in self.store().list(table)? {
                bytes += size;
                let is_flushed = Segments::of(&path).is_none_or(|of| of.last < next_segment);
                if let Some(hour) = Hour::of_object(path.as_ref()).filter(|_| is_flushed) {
                    hours.entry(hour).or_default().push((table, path, size));
                }
            }
        }
        let keep_ns = keep.map(|keep| i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX));
        for (hour, files) in hours {
            let since_end_ns = now_ns.saturating_sub(hour.end_ns());
            if since_end_ns < 0 {
                break;
            }
            let publishing = self.settings.publishing.as_ref();
            let is_waiting = publishing.is_some_and(|counters| counters.is_waiting(hour));
            let is_old = !is_waiting && keep_ns.is_some_and(|keep_ns| since_end_ns > keep_ns);
            let is_too_much = keep_bytes.is_some_and(|most| bytes > most);
            let (cause, count) = if is_old {
                ("its age", &self.counters.hours_deleted_for_age)
            } else if is_too_much {
                ("lack of space", &self.counters.hours_deleted_for_size)
            } else if is_waiting {
                continue;
            } else {
                break;
            };
            let of_hour: u64 = files.iter().map(|(_, _, size)| size).sum();
            self.store().note_deleted(hour)?;
            let paths: Vec<Path> = files.iter().map(|(_, path, _)| path.clone()).collect();
            self.store().begin_deletion(&paths)?;
            self.end_deletion()?;
            bytes -= of_hour;
            count.fetch_add(1, Relaxed);
            self.counters.deleted_bytes.fetch_add(of_hour, Relaxed);
            tracing::info!(
                cause,
                path = %hour.directory(),
                count = files.len(),
                bytes = of_hour,
                "deleted an hour"
            );
        }
        Ok(())
    }

    /// Moves the files of a deletion in progress to `replaced/`. The caller began this deletion, or
    /// a crash or an error interrupted it. Readers already ignore these files.
    pub(super) fn end_deletion(&self) -> Result<(), MaintenanceError> {
        let files = self.store().begun_deletion()?;
        if files.is_empty() {
            return Ok(());
        }
        self.log_tables(&StoreTable::ALL);
        // Announces the change for all tables, because a listing of several tables is valid only if
        // none of them has changed.
        StoreTable::ALL
            .into_iter()
            .try_for_each(|table| self.store().announce(table))?;
        for path in &files {
            self.store().retire_if_there(path)?;
        }
        // Without this, a power cut might restore some of the files after the deletion is recorded
        // as complete.
        self.store().make_absence_durable(&files)?;
        self.store().end_deletion()?;
        remove_empty_directories(self.store(), &files);
        Ok(())
    }
}
