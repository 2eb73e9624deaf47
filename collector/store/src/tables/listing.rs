//! Which objects there are, as of one moment, while others replace and delete them.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use super::objects::{Store, StoreError, replaced};
use super::partition::{Hour, StoreTable};
use super::segments::{Segments, covered};

/// What is changed before files are moved, see [`Store::announce`],
const GENERATIONS: &str = "generations";
/// the last hour that was deleted for its age or for want of room,
const DELETED: &str = "generations/deleted";
/// and the paths of the files that are being deleted, a line each: they are gone for readers as soon as they are in here.
const DELETING: &str = "generations/deleting";

/// An object that another one stands for; each with its bytes.
#[derive(Clone, Debug)]
pub struct Covered {
    /// It.
    pub file: (Path, u64),
    /// The other.
    pub by: (Path, u64),
}

impl Store {
    /// The Parquet objects of a table that are to be read, those that another one covers left out: path and size in
    /// bytes, in order of path.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn list(&self, table: StoreTable) -> Result<Vec<(Path, u64)>, StoreError> {
        let mut listed = self.list_together(&[table])?;
        Ok(listed.pop().unwrap_or_default())
    }

    /// The same of several tables, all as of one moment.
    ///
    /// # Errors
    /// When the store cannot be listed.
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

    /// The same, with all that is known of each object.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn snapshot(&self, table: StoreTable) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut listed = self.snapshots(&[table])?;
        Ok(listed.pop().unwrap_or_default())
    }

    /// Those of several tables, all as of one moment.
    ///
    /// A listing is no snapshot: while it goes through a folder, a compacted file may appear behind it and those that it
    /// covers vanish before it. Then neither would be in it. So whoever replaces files changes the table's generation
    /// after the compacted file has appeared and before the first covered one goes ([`Store::announce`]), and a listing
    /// counts if the generation was the same before and after it. For let a covered file be missing in it. Then it was
    /// moved before the listing's end, and the generation changed before that: not during the listing, as the generation
    /// would have told, so before it began. By then the compacted file was there, and is in the listing, unless it was
    /// replaced itself, of which the same holds. A crash between any of these steps leaves a listing that holds, too.
    ///
    /// Files that are deleted for good have no other one. They are named in one object first (`Store::begin_deletion`):
    /// from then on no listing has any of them, and one that was under way does not count, as that object is another after
    /// it; nor does one through which all of a deletion passed, as the generations are others then.
    ///
    /// # Errors
    /// When the store cannot be listed.
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

    /// What is another before and after a listing that does not count.
    fn state(
        &self,
        tables: &[StoreTable],
    ) -> Result<(Option<Bytes>, Vec<Option<Bytes>>), StoreError> {
        let deleting = self.known(&Path::from(DELETING))?;
        let generations = tables.iter().map(|table| self.generation(*table));
        Ok((deleting, generations.collect::<Result<_, _>>()?))
    }

    /// Names files that will be moved away for good: no listing has them from here on, after a crash either. Durable when
    /// this returns.
    pub(crate) fn begin_deletion(&self, files: &[Path]) -> Result<(), StoreError> {
        let lines: String = files.iter().map(|path| format!("{path}\n")).collect();
        let at = Path::from(DELETING);
        self.put(&at, lines.into_bytes())?;
        self.make_durable(&[at])
    }

    /// Those that were named, where that was not ended.
    pub(crate) fn begun_deletion(&self) -> Result<Vec<Path>, StoreError> {
        Ok(deletion(self.known(&Path::from(DELETING))?.as_ref()))
    }

    /// They are all gone.
    pub(crate) fn end_deletion(&self) -> Result<(), StoreError> {
        self.delete(&Path::from(DELETING))
    }

    /// Those of its objects that another one covers, as a crash leaves them behind, and that one, each with its bytes.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn covered(&self, table: StoreTable) -> Result<Vec<Covered>, StoreError> {
        let files = self.list_all(table)?;
        let bytes: std::collections::BTreeMap<&Path, u64> = files
            .iter()
            .map(|meta| (&meta.location, meta.size))
            .collect();
        let object = |path: &Path| (path.clone(), bytes.get(path).copied().unwrap_or(0));
        let out = covered(files.iter().map(|meta| &meta.location));
        Ok(out
            .into_iter()
            .map(|(file, by)| Covered {
                file: object(file),
                by: object(by),
            })
            .collect())
    }

    /// Those that were replaced by this file, and are still there; those that one of them covers left out.
    pub(crate) fn replaced_by(&self, file: &Path) -> Result<Vec<Path>, StoreError> {
        let Some(segments) = Segments::of(file) else {
            return Ok(Vec::new());
        };
        let Some((folder, _)) = file.as_ref().rsplit_once('/') else {
            return Ok(Vec::new());
        };
        let mut found: Vec<Path> = self
            .list_under(&replaced(&Path::from(folder)))?
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

    /// What changes when files of the table are about to be moved away.
    fn generation(&self, table: StoreTable) -> Result<Option<Bytes>, StoreError> {
        self.known(&Self::generation_path(table))
    }

    /// An object that is read whole, if it is there.
    fn known(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        if let Some((root, disk)) = self.local_root().zip(self.local_disk()) {
            return match disk.read(&root.join(path.as_ref())) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(StoreError::Folder {
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

    /// Says, before files of a table are moved away, that listings which are under way do not count: see
    /// [`Store::snapshot`]. Only who holds the data folder's lock may.
    ///
    /// # Errors
    /// When it cannot be written; then nothing may be moved.
    pub fn announce(&self, table: StoreTable) -> Result<(), StoreError> {
        let known = self.generation(table)?;
        let number = known.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse::<u64>().ok());
        let next = match number {
            Some(number) => number + 1,
            // Never one that a listing may have seen, also where somebody deleted the file.
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as u64),
        };
        self.put(&Self::generation_path(table), next.to_string().into_bytes())
    }

    /// Notes that this hour was deleted on purpose.
    pub(crate) fn note_deleted(&self, hour: Hour) -> Result<(), StoreError> {
        self.put(&Path::from(DELETED), hour.folder().into_bytes())
    }

    /// Whether any hour ever was.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn has_deleted(&self) -> Result<bool, StoreError> {
        let found = self.list_under(&Path::from(GENERATIONS))?;
        Ok(found.iter().any(|meta| meta.location.as_ref() == DELETED))
    }
}

/// The paths that the object of a deletion names.
fn deletion(said: Option<&Bytes>) -> Vec<Path> {
    let lines = said.and_then(|bytes| std::str::from_utf8(bytes).ok());
    lines
        .into_iter()
        .flat_map(str::lines)
        .map(Path::from)
        .collect()
}
