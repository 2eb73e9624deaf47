//! Objects of the store by path: a synchronous interface to `object_store`, with durable writes on
//! a local disk.
//!
//! Files of the tables are never modified. The flusher may replace the files of a segment that the
//! checkpoint does not cover. Compaction adds a file that covers others
//! ([`Segments`](super::Segments)), and only then moves the covered files to the same path under
//! `replaced/`. Readers that listed them earlier find them there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::runtime::Handle;

use crate::disk::{Disk, DiskFile, IfThere, LocalDisk, remove_if_there};

/// Directory to which covered files and files that retention deletes are moved.
pub const REPLACED: &str = "replaced";

/// Error of the store, except damage of a single file, which is [`super::Damage`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory, or a file in it, cannot be used.
    #[error("cannot use the data directory {path}: {source}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The object store failed.
    #[error("store: {0}")]
    Object(#[from] object_store::Error),
    /// A file or directory could not be created, written, renamed or deleted.
    #[error("cannot write {path}: {source}")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file or directory could not be made durable.
    #[error("cannot make {path} durable: {source}")]
    Sync {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Temporary files could not be written or read. Readers merge many files into them, and
    /// thinning writes its decisions there.
    #[error(
        "cannot write temporary files to {directory}: {reason}; if the store has very many files, merge them with \
         `stroboscope store compact`"
    )]
    Temporary { directory: PathBuf, reason: String },
    /// Files to be read together could not be merged first.
    #[error("cannot merge files to read them: {0}")]
    Run(String),
    /// Rows could not be written as Parquet.
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Rows could not be converted to columns.
    #[error("cannot build columns: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
}

/// Objects of a store. Methods may block, so async code must call them in `spawn_blocking`.
#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    runtime: Handle,
    /// Directory of the objects if they are local files, which need explicit syncs. `None` for
    /// other stores, where an object is durable once its write returns.
    local: Option<Directory>,
    /// Files that `is_held` found intact, and does not verify again.
    held: Arc<Mutex<BTreeSet<Path>>>,
}

/// Local directory whose files are objects.
#[derive(Clone, Debug)]
struct Directory {
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Store {
    /// Opens the store in a local directory, and creates the directory if it is missing.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, or if the path is not a directory.
    pub fn local(directory: &FsPath, runtime: Handle) -> Result<Self, StoreError> {
        let unusable = |source| StoreError::Directory {
            path: directory.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(unusable)?;
        let local = directory.canonicalize().map_err(unusable)?;
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&local)?);
        Ok(Self {
            objects,
            runtime,
            local: Some(Directory {
                root: local,
                disk: Arc::new(LocalDisk),
            }),
            held: Arc::default(),
        })
    }

    /// Opens the store in a directory of another disk. `objects` must read from the same directory.
    #[must_use]
    pub fn on(
        disk: Arc<dyn Disk>,
        root: &FsPath,
        objects: Arc<dyn ObjectStore>,
        runtime: Handle,
    ) -> Self {
        let root = root.to_owned();
        Self {
            objects,
            runtime,
            local: Some(Directory { root, disk }),
            held: Arc::default(),
        }
    }

    /// Opens the store over an object store that is not a local directory.
    #[must_use]
    pub fn over(objects: Arc<dyn ObjectStore>, runtime: Handle) -> Self {
        Self {
            objects,
            runtime,
            local: None,
            held: Arc::default(),
        }
    }

    /// Reports whether a file is intact. Calls `holds` to verify a local file, until the file was
    /// found intact once. Does not verify remote files, because their transport has checksums of
    /// its own.
    pub(super) fn is_held(
        &self,
        path: &Path,
        holds: impl FnOnce() -> Result<bool, String>,
    ) -> Result<bool, String> {
        let known = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if self.local.is_none() || known().contains(path) {
            return Ok(true);
        }
        let is_held = holds()?;
        if is_held {
            known().insert(path.clone());
        }
        Ok(is_held)
    }

    /// Writes an object, and replaces an existing one. On a local disk, this makes its contents
    /// durable, and [`Store::make_durable`] makes its name durable.
    ///
    /// # Errors
    /// Returns an error if the object cannot be written. No partial object is visible then.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<(), StoreError> {
        let Some(directory) = &self.local else {
            let put = self.objects.put(path, PutPayload::from(bytes));
            return Ok(self.runtime.block_on(put).map(drop)?);
        };
        let path = directory.root.join(path.as_ref());
        let published = directory.publish(&path, &bytes);
        published.map_err(|source| StoreError::Write { path, source })
    }

    /// Makes the names of objects durable by syncing the directories above them on a local disk.
    /// Their contents have been durable since they were written.
    ///
    /// # Errors
    /// Returns an error if the disk fails. The caller must then treat none of the objects as
    /// durable.
    pub fn make_durable(&self, paths: &[Path]) -> Result<(), StoreError> {
        self.sync_above(paths, &|_| false)
    }

    /// Makes the removal of objects durable, even if their directories are gone as well.
    ///
    /// # Errors
    /// Returns an error if the disk fails. The objects may then reappear after a crash.
    pub(crate) fn make_absence_durable(&self, paths: &[Path]) -> Result<(), StoreError> {
        self.sync_above(paths, &|error| error.kind() == io::ErrorKind::NotFound)
    }

    fn sync_above(
        &self,
        paths: &[Path],
        is_fine: &dyn Fn(&io::Error) -> bool,
    ) -> Result<(), StoreError> {
        let Some(Directory { root, disk }) = &self.local else {
            return Ok(());
        };
        let mut directories = BTreeSet::new();
        for path in paths {
            let file = root.join(path.as_ref());
            let above = file.ancestors().skip(1);
            let within = above.take_while(|directory| directory.starts_with(root));
            directories.extend(within.map(FsPath::to_owned));
        }
        let mut directories = directories.into_iter();
        directories.try_for_each(|path| match disk.sync(&path) {
            Err(source) if !is_fine(&source) => Err(StoreError::Sync { path, source }),
            _ => Ok(()),
        })
    }

    /// Removes objects durably. A missing object is no error.
    ///
    /// # Errors
    /// Returns an error if an existing object cannot be removed durably. Some objects may be
    /// removed nevertheless.
    pub fn remove(&self, paths: &[Path]) -> Result<(), StoreError> {
        paths.iter().try_for_each(|path| self.delete(path))?;
        self.make_absence_durable(paths)
    }

    /// Lists all objects under a path, not only Parquet files. On a local disk, omits objects that
    /// vanish during the listing.
    pub(crate) fn list_under(&self, prefix: &Path) -> Result<Vec<ObjectMeta>, StoreError> {
        let listing = self.objects.list(Some(prefix)).try_collect();
        Ok(self.runtime.block_on(listing)?)
    }

    /// Moves an object to `replaced/`, where readers that listed it earlier find it.
    ///
    /// # Errors
    /// Returns an error if the object cannot be moved.
    pub fn retire(&self, path: &Path) -> Result<(), StoreError> {
        if let Some(Directory { root, .. }) = &self.local {
            // Records the time of the move in the modification time, because not all file systems
            // record the time of a rename. If this fails, the file may be deleted too early, and a
            // query that reads it may fail.
            let touched = File::open(root.join(path.as_ref()))
                .and_then(|file| file.set_modified(std::time::SystemTime::now()));
            if let Err(error) = touched {
                tracing::debug!("cannot set the time of {path}: {error}");
            }
        }
        self.rename(path, &replaced(path))
    }

    /// Moves an object to `replaced/`, unless it is already gone.
    pub(crate) fn retire_if_there(&self, path: &Path) -> Result<(), StoreError> {
        match self.retire(path) {
            Err(StoreError::Object(object_store::Error::NotFound { .. })) => Ok(()),
            Err(StoreError::Write { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            retired => retired,
        }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let Some(Directory { root, disk }) = &self.local else {
            return Ok(self.runtime.block_on(self.objects.rename(from, to))?);
        };
        let [path, to] = [from, to].map(|path| root.join(path.as_ref()));
        let rename = || match disk.rename(&path, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = to.parent().filter(|above| disk.names(above).is_err());
                above.map_or(Err(error), |above| disk.create_directories(above))?;
                disk.rename(&path, &to)
            }
            renamed => renamed,
        };
        rename().map_err(|source| StoreError::Write { path, source })
    }

    /// Deletes an object. A missing object is no error.
    pub(crate) fn delete(&self, path: &Path) -> Result<(), StoreError> {
        let Some(Directory { root, disk }) = &self.local else {
            return match self.runtime.block_on(self.objects.delete(path)) {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        let path = root.join(path.as_ref());
        let removed = remove_if_there(&**disk, &path);
        removed.map_err(|source| StoreError::Write { path, source })
    }

    /// Returns the directory of the objects; `None` if they are not local files.
    pub(crate) fn local_root(&self) -> Option<&FsPath> {
        self.local.as_ref().map(|directory| &*directory.root)
    }

    /// Returns the local disk; `None` if the objects are not local files.
    pub(super) fn local_disk(&self) -> Option<&dyn Disk> {
        self.local.as_ref().map(|directory| &*directory.disk)
    }

    /// Returns the underlying object store, for other engines that read it themselves.
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Reads the bytes in `range` of an object, even if it was moved to `replaced/`.
    ///
    /// # Errors
    /// Returns an error if the bytes cannot be read.
    pub fn range(&self, path: &Path, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
        let read = async {
            match self.objects.get_range(path, range.clone()).await {
                Err(object_store::Error::NotFound { .. }) => {
                    self.objects.get_range(&replaced(path), range).await
                }
                read => read,
            }
        };
        Ok(self.runtime.block_on(read)?)
    }

    /// Opens an object as a local file; `None` if it is not a local file or cannot be opened.
    /// Reading the file directly avoids a detour through the runtime's threads.
    pub(super) fn file(&self, path: &Path) -> Option<File> {
        let directory = self.local.as_ref()?;
        let open = |path: &Path| File::open(directory.root.join(path.as_ref())).ok();
        open(path).or_else(|| open(&replaced(path)))
    }

    /// Returns the path of an object for messages. On a local disk, this is the path of its file.
    #[must_use]
    pub fn display(&self, path: &Path) -> String {
        self.local.as_ref().map_or_else(
            || path.to_string(),
            |directory| directory.root.join(path.as_ref()).display().to_string(),
        )
    }
}

/// Returns the path of an object in `replaced/`.
#[must_use]
pub fn replaced(path: &Path) -> Path {
    Path::from(format!("{REPLACED}/{path}"))
}

/// End of the name of a temporary file.
const UNPUBLISHED: &str = ".new";

/// Reports whether an object is the temporary file of a write that is in progress or was
/// interrupted.
#[must_use]
pub fn is_unpublished(path: &Path) -> bool {
    let name = path.filename().unwrap_or_default();
    let path = name.strip_suffix(UNPUBLISHED);
    name.starts_with('.') && path.is_some_and(|path| path.ends_with(".parquet"))
}

/// Creates or empties a file, and creates missing directories above it.
pub(super) fn create(disk: &dyn Disk, path: &FsPath) -> io::Result<Box<dyn DiskFile>> {
    match disk.create(path, IfThere::Empty) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent();
            above.map_or(Ok(()), |above| disk.create_directories(above))?;
            disk.create(path, IfThere::Empty)
        }
        created => created,
    }
}

impl Directory {
    /// Writes a temporary file, and renames it once its contents are durable. A partial file is
    /// therefore never visible, even after a power cut. The temporary name depends only on the
    /// path, so the next attempt overwrites a file that a crash left. The temporary file is hidden,
    /// so that other programs that read the directory ignore it.
    fn publish(&self, path: &FsPath, bytes: &[u8]) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}{UNPUBLISHED}"));
        let write = || {
            let mut file = create(&*self.disk, &beside)?;
            file.append(bytes)?;
            file.sync()?;
            self.disk.rename(&beside, path)
        };
        write().inspect_err(|_| _ = remove_if_there(&*self.disk, &beside))
    }
}
