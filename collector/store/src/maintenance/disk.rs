//! Removes files that no listing contains.

use std::collections::BTreeSet;
use std::path::Path as FsPath;
use std::sync::atomic::Ordering::Relaxed;

use object_store::path::Path;

use super::round::{Care, MaintenanceError};
use crate::tables::{REPLACED, Store, StoreTable, is_part, is_readable};

impl Care {
    /// Cleans up after a crash. Moves covered files, and the files of an interrupted deletion, to
    /// `replaced/`. Deletes files of unfinished merges and thinnings. Keeps files that an
    /// unreadable file covers.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn tidy(&self) -> Result<(), MaintenanceError> {
        self.end_deletion()?;
        self.abandon_thinning()?;
        for table in StoreTable::ALL {
            for meta in self.store().list_under(&Path::from(table.name()))? {
                if is_part(&meta.location) {
                    self.store().delete(&meta.location)?;
                }
            }
            let covered = self.store().covered(table)?.into_iter();
            // Keeps the files that an unreadable file covers, because they can still replace it.
            let readable = covered.filter(|of| is_readable(self.store(), table, &of.by));
            let (covered, by): (Vec<Path>, Vec<Path>) =
                readable.map(|of| (of.file.0, of.by.0)).unzip();
            // A crash may have made the covering files visible but not durable.
            self.store().make_durable(&by)?;
            self.replace(table, &covered)?;
        }
        Ok(())
    }

    /// Deletes replaced files after their grace period, and the oldest ones earlier if all together
    /// exceed the size limit.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn purge(&self, now_ns: i64) -> Result<(), MaintenanceError> {
        let mut files = self.store().list_under(&Path::from(REPLACED))?;
        files.sort_by_key(|meta| meta.last_modified);
        let mut bytes: u64 = files.iter().map(|meta| meta.size).sum();
        let grace_ns = i64::try_from(self.settings.grace.as_nanos()).unwrap_or(i64::MAX);
        let mut gone = Vec::new();
        for meta in files {
            let since_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or(0);
            let is_old = now_ns.saturating_sub(since_ns) >= grace_ns;
            if is_old || bytes > self.settings.replaced_bytes_max {
                self.store().delete(&meta.location)?;
                bytes -= meta.size;
                gone.push(meta.location);
            }
        }
        self.counters.replaced_bytes.store(bytes, Relaxed);
        remove_empty_directories(self.store(), &gone);
        Ok(())
    }
}

/// Removes directories that the removal of these files has left empty, except directories directly
/// in the store's root.
pub(super) fn remove_empty_directories(store: &Store, files: &[Path]) {
    let Some(root) = store.local_root() else {
        return;
    };
    let mut directories = BTreeSet::new();
    for file in files {
        let file = root.join(file.as_ref());
        let above = file.ancestors().skip(1);
        // Keeps the directories of the tables, and `replaced/`.
        let within = |directory: &&FsPath| {
            let above = directory.parent();
            above.is_some_and(|above| above != root && above.starts_with(root))
        };
        directories.extend(above.take_while(within).map(FsPath::to_owned));
    }
    // Removes inner directories first. A directory that still has files is not removed, so errors
    // are ignored.
    for directory in directories.iter().rev() {
        let _ = std::fs::remove_dir(directory);
    }
}
