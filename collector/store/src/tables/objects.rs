//! Objects by path: the seam to `object_store`, made synchronous and, on a local disk, durable.

use std::fs::File;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::runtime::Handle;

use super::StoreTable;

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
    /// A file could not be made durable.
    #[error("cannot make {path} durable: {source}")]
    Sync {
        path: PathBuf,
        source: std::io::Error,
    },
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
    local: Option<PathBuf>,
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
            local: Some(local),
        })
    }

    /// The store over any other object store.
    #[must_use]
    pub fn over(objects: Arc<dyn ObjectStore>, runtime: Handle) -> Self {
        Self {
            objects,
            runtime,
            local: None,
        }
    }

    /// Puts an object, replacing one of that path; [`Store::make_durable`] makes it durable.
    ///
    /// # Errors
    /// When it cannot be written; then there is no half-written object of that path.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.runtime
            .block_on(self.objects.put(path, PutPayload::from(bytes)))?;
        Ok(())
    }

    /// Makes objects durable: on a local disk, syncs the files and all folders above them.
    ///
    /// # Errors
    /// When the disk fails; then none of them may be relied on.
    pub fn make_durable(&self, paths: &[Path]) -> Result<(), StoreError> {
        let Some(root) = &self.local else {
            return Ok(());
        };
        let sync = |path: &FsPath| {
            let synced = File::open(path).and_then(|file| file.sync_all());
            synced.map_err(|source| StoreError::Sync {
                path: path.to_owned(),
                source,
            })
        };
        let mut folders = std::collections::BTreeSet::new();
        for path in paths {
            let file = root.join(path.as_ref());
            sync(&file)?;
            folders.extend(
                file.ancestors()
                    .skip(1)
                    .take_while(|folder| folder.starts_with(root))
                    .map(FsPath::to_owned),
            );
        }
        folders.iter().try_for_each(|folder| sync(folder))
    }

    /// The Parquet objects of a table: path and size in bytes, in order of path.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn list(&self, table: StoreTable) -> Result<Vec<(Path, u64)>, StoreError> {
        let prefix = Path::from(table.name());
        let listing = self
            .runtime
            .block_on(self.objects.list(Some(&prefix)).try_collect::<Vec<_>>())?;
        let files = listing
            .into_iter()
            .filter(|meta| meta.location.extension() == Some("parquet"));
        let mut files: Vec<_> = files.map(|meta| (meta.location, meta.size)).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Bytes `range` of an object.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn range(&self, path: &Path, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
        Ok(self.runtime.block_on(self.objects.get_range(path, range))?)
    }

    /// The object as a file, if it is one: reading that directly spares a trip through the runtime's threads each time.
    pub(super) fn file(&self, path: &Path) -> Option<File> {
        self.local
            .as_ref()
            .and_then(|root| File::open(root.join(path.as_ref())).ok())
    }

    /// How a person finds the object: its file on a local disk.
    #[must_use]
    pub fn display(&self, path: &Path) -> String {
        self.local.as_ref().map_or_else(
            || path.to_string(),
            |root| root.join(path.as_ref()).display().to_string(),
        )
    }
}
