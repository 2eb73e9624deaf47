//! Consistent listings of objects, while other processes replace and delete them.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use super::objects::{Store, StoreError, replaced};
use super::partition::{Hour, StoreTable};
use super::segments::{Segments, covered};

/// Directory of the objects that change before files are moved, see [`Store::announce`].
const GENERATIONS: &str = "generations";
/// Object with the last hour that was deleted for its age or the size limit.
const DELETED: &str = "generations/deleted";
/// Object with the paths of the files being deleted, one per line. Readers ignore a file as soon as
/// it is listed here.
const DELETING: &str = "generations/deleting";

/// An object that another one covers; each with its size in bytes.
#[derive(Clone, Debug)]
pub struct CoveredObject {
    /// The covered object.
    pub file: (Path, u64),
    /// The object that covers it.
    pub by: (Path, u64),
}

impl Store {
    /// Lists the Parquet objects of a table that are to be read, without covered ones. Returns path
    /// and size in bytes, in the order of paths.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn list(&self, table: StoreTable) -> Result<Vec<(Path, u64)>, StoreError> {
        let mut listed = self.list_together(&[table])?;
        Ok(listed.pop().unwrap_or_default())
    }

    /// Lists the objects of several tables, all as of one moment.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn list_together(
        &self,
        tables: &[StoreTable],
    ) -> Result<Vec<Vec<(Path, u64)>>, StoreError> {
        let object = |meta: ObjectMeta| (meta.location, meta.size);
        let listed = self.snapshots(tables)?.into_iter();
        Ok(listed
            .map(|files| files.into_iter().map(object).collect())
            .collect())
    }

    /// Lists the objects of a table with all their metadata.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn snapshot(&self, table: StoreTable) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut listed = self.snapshots(&[table])?;
        Ok(listed.pop().unwrap_or_default())
    }

    /// Lists the objects of several tables with their metadata, all as of one moment.
    ///
    /// A plain listing is no snapshot. While it walks a directory, a compacted file may appear
    /// behind its position, and the files that it covers may vanish ahead of it. Then neither would
    /// be listed. So a process that replaces files changes the table's generation after the
    /// compacted file has appeared, and before the first covered one goes ([`Store::announce`]). A
    /// listing is valid if the generation was the same before and after it.
    ///
    /// Proof: suppose a covered file is missing from a valid listing. It was moved before the
    /// listing ended, and the generation changed before that. It did not change during the listing,
    /// so it changed before the listing began. By then the compacted file existed, and is in the
    /// listing, unless it was itself replaced, to which the same argument applies. A crash between
    /// any of these steps leaves listings valid, too.
    ///
    /// Files that are deleted permanently have no replacement. They are first named in one object
    /// (`Store::begin_deletion`). From then on no listing contains any of them. A listing in
    /// progress at that time is invalid, as that object differs after it. A listing during which a
    /// whole deletion passed is invalid, as the generations differ then.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn snapshots(&self, tables: &[StoreTable]) -> Result<Vec<Vec<ObjectMeta>>, StoreError> {
        loop {
            let before = self.state(tables)?;
            let mut listed = Vec::with_capacity(tables.len());
            for table in tables {
                listed.push(self.list_all(*table)?);
            }
            if self.state(tables)? != before {
                continue;
            }
            let deleting = deletion(before.0.as_ref());
            for files in &mut listed {
                let mut out: std::collections::BTreeSet<Path> =
                    covered(files.iter().map(|meta| &meta.location))
                        .into_keys()
                        .cloned()
                        .collect();
                out.extend(deleting.iter().cloned());
                files.retain(|meta| !out.contains(&meta.location));
            }
            return Ok(listed);
        }
    }

    /// Returns the state that changes during an invalid listing.
    fn state(
        &self,
        tables: &[StoreTable],
    ) -> Result<(Option<Bytes>, Vec<Option<Bytes>>), StoreError> {
        let deleting = self.known(&Path::from(DELETING))?;
        let generations = tables.iter().map(|table| self.generation(*table));
        Ok((deleting, generations.collect::<Result<_, _>>()?))
    }

    /// Names files that will be deleted permanently, and makes that durable. From here on no
    /// listing contains them, even after a crash.
    pub(crate) fn begin_deletion(&self, files: &[Path]) -> Result<(), StoreError> {
        let lines: String = files.iter().map(|path| format!("{path}\n")).collect();
        let at = Path::from(DELETING);
        self.put(&at, lines.into_bytes())?;
        self.make_durable(&[at])
    }

    /// Returns the files of a deletion that has begun and not ended.
    pub(crate) fn begun_deletion(&self) -> Result<Vec<Path>, StoreError> {
        Ok(deletion(self.known(&Path::from(DELETING))?.as_ref()))
    }

    /// Ends a deletion, once all its files are gone.
    pub(crate) fn end_deletion(&self) -> Result<(), StoreError> {
        self.delete(&Path::from(DELETING))
    }

    /// Returns the covered objects of a table, which a crash leaves behind, with the objects that
    /// cover them.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn covered(&self, table: StoreTable) -> Result<Vec<CoveredObject>, StoreError> {
        let files = self.list_all(table)?;
        let bytes: std::collections::BTreeMap<&Path, u64> = files
            .iter()
            .map(|meta| (&meta.location, meta.size))
            .collect();
        let object = |path: &Path| (path.clone(), bytes.get(path).copied().unwrap_or(0));
        let out = covered(files.iter().map(|meta| &meta.location));
        Ok(out
            .into_iter()
            .map(|(file, by)| CoveredObject {
                file: object(file),
                by: object(by),
            })
            .collect())
    }

    /// Returns the objects that this file replaced and that still exist, without those that another
    /// of them covers.
    pub(crate) fn replaced_by(&self, file: &Path) -> Result<Vec<Path>, StoreError> {
        let Some(segments) = Segments::of(file) else {
            return Ok(Vec::new());
        };
        let Some((directory, _)) = file.as_ref().rsplit_once('/') else {
            return Ok(Vec::new());
        };
        let mut found: Vec<Path> = self
            .list_under(&replaced(&Path::from(directory)))?
            .into_iter()
            .map(|meta| meta.location)
            .collect();
        found.retain(|path| Segments::of(path).is_some_and(|of| segments.covers(of)));
        let out: std::collections::BTreeSet<Path> =
            covered(found.iter()).into_keys().cloned().collect();
        found.retain(|path| !out.contains(path));
        Ok(found)
    }

    fn list_all(&self, table: StoreTable) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut files = self.list_under(&Path::from(table.name()))?;
        files.retain(|meta| meta.location.extension() == Some("parquet"));
        files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(files)
    }

    fn generation_path(table: StoreTable) -> Path {
        Path::from(format!("{GENERATIONS}/{}", table.name()))
    }

    /// Returns the object that changes before files of the table are moved away.
    fn generation(&self, table: StoreTable) -> Result<Option<Bytes>, StoreError> {
        self.known(&Self::generation_path(table))
    }

    /// Reads a whole object, if it exists.
    fn known(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        if let Some((root, disk)) = self.local_root().zip(self.local_disk()) {
            return match disk.read(&root.join(path.as_ref())) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(StoreError::Directory {
                    path: root.join(path.as_ref()),
                    source,
                }),
            };
        }
        let read = async { self.objects().get(path).await?.bytes().await };
        match self.runtime().block_on(read) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Invalidates listings in progress before files of a table are moved away: see
    /// [`Store::snapshot`]. The caller must hold the lock of the data directory.
    ///
    /// # Errors
    /// Returns an error if this cannot be written. No file may be moved then.
    pub fn announce(&self, table: StoreTable) -> Result<(), StoreError> {
        let known = self.generation(table)?;
        let number = known.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse::<u64>().ok());
        let next = match number {
            Some(number) => number + 1,
            // Never reuses a value that a listing may have seen, even if the file was deleted by
            // hand.
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as u64),
        };
        self.put(&Self::generation_path(table), next.to_string().into_bytes())
    }

    /// Records that this hour was deleted intentionally.
    pub(crate) fn note_deleted(&self, hour: Hour) -> Result<(), StoreError> {
        self.put(&Path::from(DELETED), hour.directory().into_bytes())
    }

    /// Reports whether any hour was ever deleted.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn has_deleted(&self) -> Result<bool, StoreError> {
        let found = self.list_under(&Path::from(GENERATIONS))?;
        Ok(found.iter().any(|meta| meta.location.as_ref() == DELETED))
    }
}

/// Parses the paths in the object of a deletion.
fn deletion(said: Option<&Bytes>) -> Vec<Path> {
    let lines = said.and_then(|bytes| std::str::from_utf8(bytes).ok());
    lines
        .into_iter()
        .flat_map(str::lines)
        .map(Path::from)
        .collect()
}
