//! Consistent listings of objects, even while another process replaces and deletes them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use super::delta::is_of_delta_log;
use super::objects::{Store, StoreError, replaced};
use super::partition::{Hour, StoreTable};
use super::segments::{Segments, covered};

/// Directory of the objects that a writer changes before it moves files (see [`Store::announce`]).
const GENERATIONS: &str = "generations";
/// Object that contains the directory of the last hour that retention began to delete.
const DELETED: &str = "generations/deleted";
/// Object that contains the paths of the files being deleted, one per line. Readers ignore the
/// files that it lists.
const DELETING: &str = "generations/deleting";
/// Object that contains the paths of the thinned files of one hour, one per line, while they are
/// written. Readers ignore the files that it lists.
const THINNING: &str = "generations/thinning";

/// Covered object and the object that covers it, each with its path and its size in bytes.
#[derive(Clone, Debug)]
pub struct CoveredObject {
    /// Covered object, which readers ignore.
    pub file: (Path, u64),
    /// Object that covers `file`.
    pub by: (Path, u64),
}

impl Store {
    /// Lists the Parquet objects of a table that readers should read, without covered ones. Returns
    /// their paths and sizes in bytes, in the order of paths.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn list(&self, table: StoreTable) -> Result<Vec<(Path, u64)>, StoreError> {
        let mut listed = self.list_together(&[table])?;
        Ok(listed.pop().unwrap_or_default())
    }

    /// Lists the objects of several tables consistently (see [`Store::snapshots`]).
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn list_together(
        &self,
        tables: &[StoreTable],
    ) -> Result<Vec<Vec<(Path, u64)>>, StoreError> {
        let object = |meta: ObjectMeta| (meta.location, meta.size);
        let objects = |files: Vec<ObjectMeta>| files.into_iter().map(object).collect();
        Ok(self.snapshots(tables)?.into_iter().map(objects).collect())
    }

    /// Lists the objects of a table with all their metadata.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn snapshot(&self, table: StoreTable) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut listed = self.snapshots(&[table])?;
        Ok(listed.pop().unwrap_or_default())
    }

    /// Lists the objects of several tables with their metadata. A file and the file that covers it
    /// are never both missing, unless they are deleted or repaired. A deletion of files is visible
    /// in all tables or in none. Files that are added during the listing may be missing.
    ///
    /// A plain listing is no snapshot. While it walks a directory, a compacted file may appear
    /// behind its position, and the files that it covers may vanish ahead of it. Then neither would
    /// be listed. A process that replaces files therefore changes the table's generation after the
    /// compacted file has appeared, and before it moves the first covered file
    /// ([`Store::announce`]). A listing is valid only if the generation was the same before and
    /// after it.
    ///
    /// Proof: suppose a covered file is missing from a valid listing. It was moved before the
    /// listing ended, and the generation changed before that, but not during the listing, so before
    /// the listing began. By then, the compacted file existed. The listing therefore contains that
    /// file, unless it was itself replaced, and then the same argument applies to it. A crash
    /// between any of these steps leaves listings valid, too.
    ///
    /// Files that are deleted permanently have no replacement. A deletion first names all its files
    /// in one object (`Store::begin_deletion`), and from then on no listing contains them. A
    /// listing in progress is then invalid, because this object differs before and after it. A
    /// listing during which a whole deletion took place is invalid, because the generations differ.
    ///
    /// Thinned files of an hour appear in all tables together. They are named in one object before
    /// the first of them is written (`Store::begin_thinning`), and no listing contains them while
    /// that object exists. The generations change before it is removed, so the argument for
    /// deletions applies.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn snapshots(&self, tables: &[StoreTable]) -> Result<Vec<Vec<ObjectMeta>>, StoreError> {
        loop {
            let before = self.state(tables)?;
            let mut listed = Vec::with_capacity(tables.len());
            for table in tables {
                listed.push(self.list_all(*table, &paths_in(before.thinning.as_ref()))?);
            }
            if self.state(tables)? != before {
                continue;
            }
            let deleting = paths_in(before.deleting.as_ref());
            for files in &mut listed {
                let out = covered(files.iter().map(|meta| &meta.location));
                let out = out.into_keys().chain(&deleting).cloned();
                let out: BTreeSet<Path> = out.collect();
                files.retain(|meta| !out.contains(&meta.location));
            }
            return Ok(listed);
        }
    }

    /// Returns the state that must not change during a listing. Reads the generations last, because
    /// they change before the other objects are removed.
    fn state(&self, tables: &[StoreTable]) -> Result<ListingState, StoreError> {
        let generations = tables.iter().map(|table| self.generation(*table));
        Ok(ListingState {
            deleting: self.known(&Path::from(DELETING))?,
            thinning: self.known(&Path::from(THINNING))?,
            generations: generations.collect::<Result<_, _>>()?,
        })
    }

    /// Begins the permanent deletion of files: names them durably in one object. From then on, no
    /// listing contains them, even after a crash.
    pub(crate) fn begin_deletion(&self, files: &[Path]) -> Result<(), StoreError> {
        self.put_paths(DELETING, files)
    }

    /// Writes the paths of files to an object durably, one per line.
    fn put_paths(&self, at: &str, files: &[Path]) -> Result<(), StoreError> {
        let lines: String = files.iter().map(|path| format!("{path}\n")).collect();
        let at = Path::from(at);
        self.put(&at, lines.into_bytes())?;
        self.make_durable(&[at])
    }

    /// Returns the files of a deletion in progress.
    pub(crate) fn begun_deletion(&self) -> Result<Vec<Path>, StoreError> {
        Ok(paths_in(self.known(&Path::from(DELETING))?.as_ref()))
    }

    /// Ends a deletion. The caller must have moved or deleted all its files.
    pub(crate) fn end_deletion(&self) -> Result<(), StoreError> {
        self.delete(&Path::from(DELETING))
    }

    /// Begins to thin an hour: durably names the files that will be written, in one object. No
    /// listing contains them until [`Store::end_thinning`], even after a crash.
    pub(crate) fn begin_thinning(&self, files: &[Path]) -> Result<(), StoreError> {
        self.put_paths(THINNING, files)
    }

    /// Returns the files of a thinning in progress.
    pub(crate) fn begun_thinning(&self) -> Result<Vec<Path>, StoreError> {
        Ok(paths_in(self.known(&Path::from(THINNING))?.as_ref()))
    }

    /// Makes the files of a thinning visible, all in one step. They cover the files that they
    /// replace. The caller must have written all of them, or deleted all of them. It must move no
    /// covered file before this method has returned without an error.
    pub(crate) fn end_thinning(&self) -> Result<(), StoreError> {
        for table in StoreTable::OF_REQUESTS {
            self.announce(table)?;
        }
        self.delete(&Path::from(THINNING))?;
        self.make_thinning_durable()
    }

    /// Makes the end of a thinning durable. Until then, a power cut may undo it.
    pub(crate) fn make_thinning_durable(&self) -> Result<(), StoreError> {
        self.make_absence_durable(&[Path::from(THINNING)])
    }

    /// Returns the covered objects of a table, with the objects that cover them. Covered objects
    /// exist only during a compaction or a thinning, or after a crash or an error interrupted one.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn covered(&self, table: StoreTable) -> Result<Vec<CoveredObject>, StoreError> {
        let files = self.list_all(table, &self.begun_thinning()?)?;
        let bytes = files.iter().map(|meta| (&meta.location, meta.size));
        let bytes: BTreeMap<&Path, u64> = bytes.collect();
        let object = |path: &Path| (path.clone(), bytes.get(path).copied().unwrap_or(0));
        let covered = covered(files.iter().map(|meta| &meta.location)).into_iter();
        let objects = covered.map(|(file, by)| CoveredObject {
            file: object(file),
            by: object(by),
        });
        Ok(objects.collect())
    }

    /// Returns the objects in `replaced/` that `file` replaced. Omits those that another of these
    /// objects covers.
    pub(crate) fn replaced_by(&self, file: &Path) -> Result<Vec<Path>, StoreError> {
        let Some(segments) = Segments::of(file) else {
            return Ok(Vec::new());
        };
        let Some((directory, _)) = file.as_ref().rsplit_once('/') else {
            return Ok(Vec::new());
        };
        let listed = self.list_under(&replaced(&Path::from(directory)))?;
        let mut found: Vec<Path> = listed.into_iter().map(|meta| meta.location).collect();
        found.retain(|path| Segments::of(path).is_some_and(|of| segments.covers(of)));
        let out: BTreeSet<Path> = covered(found.iter()).into_keys().cloned().collect();
        found.retain(|path| !out.contains(path));
        Ok(found)
    }

    /// Lists the Parquet objects of a table, also covered ones, except those in `hidden`.
    fn list_all(&self, table: StoreTable, hidden: &[Path]) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut files = self.list_under(&Path::from(table.name()))?;
        files.retain(|meta| {
            meta.location.extension() == Some("parquet")
                && !is_of_delta_log(&meta.location)
                && !hidden.contains(&meta.location)
        });
        files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(files)
    }

    fn generation_path(table: StoreTable) -> Path {
        Path::from(format!("{GENERATIONS}/{}", table.name()))
    }

    /// Returns the content of the object that changes before files of the table are moved; `None`
    /// if it does not exist.
    fn generation(&self, table: StoreTable) -> Result<Option<Bytes>, StoreError> {
        self.known(&Self::generation_path(table))
    }

    /// Reads a whole object; `None` if it does not exist.
    pub(super) fn known(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        if let Some((root, disk)) = self.local_root().zip(self.local_disk()) {
            let path = root.join(path.as_ref());
            return match disk.read(&path) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(StoreError::Directory { path, source }),
            };
        }
        let read = async { self.objects().get(path).await?.bytes().await };
        match self.runtime().block_on(read) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Invalidates listings in progress (see [`Store::snapshots`]). The caller must do this before
    /// it moves files of the table, and must hold the lock of the data directory.
    ///
    /// # Errors
    /// Returns an error if the generation cannot be read or written. The caller must not move files
    /// in this case.
    pub fn announce(&self, table: StoreTable) -> Result<(), StoreError> {
        let known = self.generation(table)?;
        let number = known.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse::<u64>().ok());
        let next = match number {
            Some(number) => number + 1,
            // Unless the clock was set back, the time differs from all values that listings may
            // have seen, even if someone deleted the file.
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as u64),
        };
        self.put(&Self::generation_path(table), next.to_string().into_bytes())
    }

    /// Records that this hour is being deleted intentionally.
    pub(crate) fn note_deleted(&self, hour: Hour) -> Result<(), StoreError> {
        self.put(&Path::from(DELETED), hour.directory().into_bytes())
    }

    /// Reports whether retention ever began to delete an hour.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn has_deleted(&self) -> Result<bool, StoreError> {
        let found = self.list_under(&Path::from(GENERATIONS))?;
        Ok(found.iter().any(|meta| meta.location.as_ref() == DELETED))
    }
}

/// State of a store that must not change during a listing.
#[derive(PartialEq, Eq)]
struct ListingState {
    /// Content of the objects [`DELETING`] and [`THINNING`]; `None` if they do not exist.
    deleting: Option<Bytes>,
    thinning: Option<Bytes>,
    /// Generations of the tables.
    generations: Vec<Option<Bytes>>,
}

/// Parses the paths in an object that names files.
fn paths_in(said: Option<&Bytes>) -> Vec<Path> {
    let text = said.and_then(|bytes| std::str::from_utf8(bytes).ok());
    let lines = text.into_iter().flat_map(str::lines);
    lines.map(Path::from).collect()
}
