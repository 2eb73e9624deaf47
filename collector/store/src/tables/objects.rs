//! Objects by path: the seam to `object_store`, made synchronous and, on a local disk, durable.
//!
//! Files of the tables are never changed. They are replaced: compaction puts one that covers others ([`Segments`](super::Segments)), and
//! only then moves those to `replaced/`, under the same path. Whoever listed them before goes on reading them there.

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

/// Where files are moved that another one covers, or that were kept for long enough.
pub const REPLACED: &str = "replaced";

/// What can go wrong with the store as a whole. A single damaged file is [`super::Damage`] instead.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data folder cannot be used.
    #[error("cannot use the data folder {path}: {source}")]
    Folder {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The object store failed.
    #[error("store: {0}")]
    Object(#[from] object_store::Error),
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file could not be made durable.
    #[error("cannot make {path} durable: {source}")]
    Sync {
        path: PathBuf,
        source: std::io::Error,
    },
    /// There are too many files to read side by side, and they could not be merged first.
    #[error(
        "cannot write temporary files to {folder}: {reason}; the store has very many files, of which `stroboscope store compact` \
         makes few"
    )]
    Temporary { folder: PathBuf, reason: String },
    /// As there, for what is in them.
    #[error("cannot merge files to read them: {0}")]
    Run(String),
    /// Rows could not be put into Parquet.
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Rows could not be put into columns.
    #[error("cannot build columns: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
}

/// The store's objects. Its methods block, and must be called outside of async code (`spawn_blocking`).
#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    runtime: Handle,
    /// Set when the objects are files, which then are synced; other stores are durable when they answer.
    local: Option<Folder>,
    /// Files that were held against their checksums: they never change.
    held: Arc<Mutex<BTreeSet<Path>>>,
}

/// A folder whose files are objects.
#[derive(Clone, Debug)]
struct Folder {
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Store {
    /// The store in a local folder, created if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be created or is not a folder.
    pub fn local(folder: &FsPath, runtime: Handle) -> Result<Self, StoreError> {
        let unusable = |source| StoreError::Folder {
            path: folder.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let local = folder.canonicalize().map_err(unusable)?;
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&local)?);
        Ok(Self {
            objects,
            runtime,
            local: Some(Folder {
                root: local,
                disk: Arc::new(LocalDisk),
            }),
            held: Arc::default(),
        })
    }

    /// The store in a folder of another disk; `objects` reads what is there.
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
            local: Some(Folder { root, disk }),
            held: Arc::default(),
        }
    }

    /// The store over any other object store.
    #[must_use]
    pub fn over(objects: Arc<dyn ObjectStore>, runtime: Handle) -> Self {
        Self {
            objects,
            runtime,
            local: None,
            held: Arc::default(),
        }
    }

    /// Whether a file that is going to be read as a whole is as `holds` says, which is asked once. A file on another machine is not
    /// fetched for that alone: what carries it has checksums of its own.
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

    /// Puts an object, replacing one of that path; on a local disk its contents are durable then, and
    /// [`Store::make_durable`] makes its name so.
    ///
    /// # Errors
    /// When it cannot be written; then there is no half-written object of that path.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<(), StoreError> {
        let Some(folder) = &self.local else {
            self.runtime
                .block_on(self.objects.put(path, PutPayload::from(bytes)))?;
            return Ok(());
        };
        let path = folder.root.join(path.as_ref());
        let published = folder.publish(&path, &bytes);
        published.map_err(|source| StoreError::Write { path, source })
    }

    /// Makes objects durable: on a local disk, syncs the folders above them. Their contents are durable since they were put.
    ///
    /// # Errors
    /// When the disk fails; then none of them may be relied on.
    pub fn make_durable(&self, paths: &[Path]) -> Result<(), StoreError> {
        self.sync_above(paths, &|_| false)
    }

    /// Makes the absence of objects durable, whose folders may be gone as well.
    ///
    /// # Errors
    /// When the disk fails; then they may come back.
    pub(crate) fn make_absence_durable(&self, paths: &[Path]) -> Result<(), StoreError> {
        self.sync_above(paths, &|error| error.kind() == io::ErrorKind::NotFound)
    }

    fn sync_above(
        &self,
        paths: &[Path],
        is_fine: &dyn Fn(&io::Error) -> bool,
    ) -> Result<(), StoreError> {
        let Some(Folder { root, disk }) = &self.local else {
            return Ok(());
        };
        let mut folders = std::collections::BTreeSet::new();
        for path in paths {
            let file = root.join(path.as_ref());
            folders.extend(
                file.ancestors()
                    .skip(1)
                    .take_while(|folder| folder.starts_with(root))
                    .map(FsPath::to_owned),
            );
        }
        folders
            .into_iter()
            .try_for_each(|path| match disk.sync(&path) {
                Err(source) if !is_fine(&source) => Err(StoreError::Sync { path, source }),
                _ => Ok(()),
            })
    }

    /// Removes objects; durable when this returns. That one is gone already is fine.
    ///
    /// # Errors
    /// When one is there and cannot be removed; those before it are removed.
    pub fn remove(&self, paths: &[Path]) -> Result<(), StoreError> {
        paths.iter().try_for_each(|path| self.delete(path))?;
        self.make_absence_durable(paths)
    }

    /// All objects under a path, of whatever kind. On a local disk, one that vanishes meanwhile is left out.
    pub(crate) fn list_under(&self, prefix: &Path) -> Result<Vec<ObjectMeta>, StoreError> {
        let listing = self.objects.list(Some(prefix)).try_collect();
        Ok(self.runtime.block_on(listing)?)
    }

    /// Moves an object to `replaced/`, where those find it who listed it before.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn retire(&self, path: &Path) -> Result<(), StoreError> {
        if let Some(Folder { root, .. }) = &self.local {
            // How long it is there already, as renaming changes no time that all file systems keep. That it cannot be set
            // costs a running query its file, at worst.
            let touched = File::open(root.join(path.as_ref()))
                .and_then(|file| file.set_modified(std::time::SystemTime::now()));
            if let Err(error) = touched {
                tracing::debug!("cannot set the time of {path}: {error}");
            }
        }
        self.rename(path, &replaced(path))
    }

    /// The same, of one that may be gone already.
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
        let Some(Folder { root, disk }) = &self.local else {
            return Ok(self.runtime.block_on(self.objects.rename(from, to))?);
        };
        let [path, to] = [from, to].map(|path| root.join(path.as_ref()));
        let rename = || match disk.rename(&path, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = to.parent().filter(|above| disk.names(above).is_err());
                above.map_or(Err(error), |above| disk.create_folders(above))?;
                disk.rename(&path, &to)
            }
            renamed => renamed,
        };
        rename().map_err(|source| StoreError::Write { path, source })
    }

    /// Deletes an object, which may be gone already.
    pub(crate) fn delete(&self, path: &Path) -> Result<(), StoreError> {
        let Some(Folder { root, disk }) = &self.local else {
            return match self.runtime.block_on(self.objects.delete(path)) {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        let path = root.join(path.as_ref());
        let removed = remove_if_there(&**disk, &path);
        removed.map_err(|source| StoreError::Write { path, source })
    }

    /// Its folder on a local disk.
    pub(crate) fn local_root(&self) -> Option<&FsPath> {
        self.local.as_ref().map(|folder| &*folder.root)
    }

    /// Its local disk.
    pub(super) fn local_disk(&self) -> Option<&dyn Disk> {
        self.local.as_ref().map(|folder| &*folder.disk)
    }

    /// The objects themselves, for engines that read them their own way.
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Bytes `range` of an object, also of one that was replaced since it was listed.
    ///
    /// # Errors
    /// When they cannot be read.
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

    /// The object as a file, if it is one: reading that directly spares a trip through the runtime's threads each time.
    pub(super) fn file(&self, path: &Path) -> Option<File> {
        let folder = self.local.as_ref()?;
        let open = |path: &Path| File::open(folder.root.join(path.as_ref())).ok();
        open(path).or_else(|| open(&replaced(path)))
    }

    /// How a person finds the object: its file on a local disk.
    #[must_use]
    pub fn display(&self, path: &Path) -> String {
        self.local.as_ref().map_or_else(
            || path.to_string(),
            |folder| folder.root.join(path.as_ref()).display().to_string(),
        )
    }
}

/// Where an object is after it was replaced.
#[must_use]
pub fn replaced(path: &Path) -> Path {
    Path::from(format!("{REPLACED}/{path}"))
}

/// Creates an empty file, and the folders above it.
pub(super) fn create(disk: &dyn Disk, path: &FsPath) -> io::Result<Box<dyn DiskFile>> {
    match disk.create(path, IfThere::Empty) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent()
                .map_or(Ok(()), |above| disk.create_folders(above))?;
            disk.create(path, IfThere::Empty)
        }
        created => created,
    }
}

impl Folder {
    /// Writes a file beside its place, and moves it there when its contents are durable: nobody ever sees half of it, not
    /// after a power cut either. The name beside is always the same, so that what a crash leaves is written over by the
    /// next try, and hidden, so that others who read the whole folder leave it out.
    fn publish(&self, path: &FsPath, bytes: &[u8]) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}.new"));
        let write = || {
            let mut file = create(&*self.disk, &beside)?;
            file.append(bytes)?;
            file.sync()?;
            self.disk.rename(&beside, path)
        };
        write().inspect_err(|_| _ = remove_if_there(&*self.disk, &beside))
    }
}
