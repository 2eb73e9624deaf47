//! The data folder and its lock.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, LocalDisk};
use crate::tables::StoreTable;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It does not exist.
    #[error("there is no data folder {0}")]
    Missing(PathBuf),
    #[error("cannot use the data folder {path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// It exists, and is no data folder.
    #[error("{0} holds nothing of Stroboscope's")]
    NotOurs(PathBuf),
    /// It exists, is no data folder, and not empty: what is in it is somebody else's.
    #[error(
        "{folder} is no data folder of Stroboscope's, and not empty: it holds {entry}; nothing was written to it, name \
         another folder with --data"
    )]
    Foreign { folder: PathBuf, entry: String },
    /// Another process writes to it.
    #[error(
        "another stroboscope is writing to {0}; stop it, or use another folder with --data (collectors with folders of their own \
         share an object store by --publish)"
    )]
    InUse(PathBuf),
}

/// A data folder: `wal/`, the store's tables, `checkpoint.json`, `lock`, `generations/` and `replaced/` (see
/// [`care`](crate::care)), `requests`, and `cache/`, which can be deleted.
#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

/// Held by the one process that may write; the system drops it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl DataDir {
    /// The data folder at `root`, created if missing. Whose it is, [`DataDir::refuse_foreign`] asks.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(root: &Path) -> Result<Self, DataDirError> {
        Self::create_on(Arc::new(LocalDisk), root)
    }

    /// As [`DataDir::create`], on another disk.
    ///
    /// # Errors
    /// As there.
    pub fn create_on(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, DataDirError> {
        let root = root.to_owned();
        let data = Self { root, disk };
        let wal = data.wal();
        let created = data.disk.create_folders(&wal);
        created.map_err(|source| DataDirError::Io { path: wal, source })?;
        data.sync_folders().map_err(|source| DataDirError::Io {
            path: data.root.clone(),
            source,
        })?;
        Ok(data)
    }

    /// Asks, before anything is written, whether a folder may become a data folder: it is missing, empty, or one already.
    ///
    /// # Errors
    /// When others have something there.
    pub fn refuse_foreign(root: &Path) -> Result<(), DataDirError> {
        match foreign_entry(root) {
            None => Ok(()),
            Some(entry) => Err(DataDirError::Foreign {
                folder: root.to_owned(),
                entry,
            }),
        }
    }

    /// The data folder at `root`, which must exist. Nothing is written.
    ///
    /// # Errors
    /// When it does not, is not a folder, or has nothing of ours.
    pub fn existing(root: &Path) -> Result<Self, DataDirError> {
        let io = |source| DataDirError::Io {
            path: root.to_owned(),
            source,
        };
        match std::fs::metadata(root) {
            Ok(about) if about.is_dir() => {
                std::fs::read_dir(root).map_err(io)?;
                if !is_ours(root) {
                    return Err(DataDirError::NotOurs(root.to_owned()));
                }
                Ok(Self {
                    root: root.to_owned(),
                    disk: Arc::new(LocalDisk),
                })
            }
            Ok(_) => Err(io(std::io::Error::from(std::io::ErrorKind::NotADirectory))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(DataDirError::Missing(root.to_owned()))
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Makes the names of the folder, of those above it and in it, durable: a log is as durable as the folders it is in.
    /// All of them each time, as whoever created one may have been killed before it synced.
    fn sync_folders(&self) -> std::io::Result<()> {
        self.disk.sync(&self.root)?;
        for (distance, folder) in self.root.ancestors().skip(1).enumerate() {
            // Above a relative path.
            let folder = match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder,
            };
            // What may be passed through but not read, and what is further up, was there before.
            match self.disk.sync(folder) {
                Err(error)
                    if distance == 0 && error.kind() != std::io::ErrorKind::PermissionDenied =>
                {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The disk it is on.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The write-ahead log's folder.
    #[must_use]
    pub fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }

    /// The folder of what queries keep.
    #[must_use]
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    fn requests_file(&self) -> PathBuf {
        self.root.join("requests")
    }

    /// Reads the operations, `service:name`, whose spans are requests where a reader names none.
    ///
    /// # Errors
    /// When their file cannot be read.
    pub fn requests(&self) -> Result<Vec<String>, DataDirError> {
        let path = self.requests_file();
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let lines = text.lines().filter(|line| !line.is_empty());
                Ok(lines.map(str::to_owned).collect())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(DataDirError::Io { path, source }),
        }
    }

    /// Sets these operations, in place of those that were set.
    ///
    /// # Errors
    /// When their file cannot be written.
    pub fn set_requests(&self, operations: &[String]) -> Result<(), DataDirError> {
        let path = self.requests_file();
        let part = path.with_extension("part");
        let lines: String = operations.iter().flat_map(|one| [one, "\n"]).collect();
        // A reader has the old ones or the new ones.
        let written = std::fs::write(&part, lines).and_then(|()| std::fs::rename(&part, &path));
        written.map_err(|source| DataDirError::Io { path, source })
    }

    /// Takes the lock, without waiting.
    ///
    /// # Errors
    /// When another process has it, or the disk fails.
    pub fn lock(&self) -> Result<Lock, DataDirError> {
        let path = self.root.join("lock");
        let io = |source| DataDirError::Io {
            path: path.clone(),
            source,
        };
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(io)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(DataDirError::InUse(self.root.clone())),
            Err(errno) => Err(io(errno.into())),
        }
    }
}

/// Whether a folder is a data folder: it has a log, a checkpoint, or a table with a day in it.
fn is_ours(root: &Path) -> bool {
    let has_day = |table: StoreTable| {
        let days = std::fs::read_dir(root.join(table.name()));
        days.is_ok_and(|mut days| {
            days.any(|day| {
                day.is_ok_and(|day| day.file_name().to_string_lossy().starts_with("date="))
            })
        })
    };
    root.join("wal").is_dir()
        || root.join("checkpoint.json").is_file()
        || StoreTable::ALL.into_iter().any(has_day)
}

/// What is in a folder that is no data folder, if anything that matters: not what comes with a fresh volume, and not what
/// may be there of us before there is a store.
fn foreign_entry(root: &Path) -> Option<String> {
    const OURS: [&str; 9] = [
        "cache",
        "lock",
        "redact.key",
        "requests",
        "generations",
        "spans",
        "events",
        "batches",
        "kernel",
    ];
    let is_harmless = |name: &str| {
        name.starts_with('.')
            || name.starts_with("demo-")
            || name == "lost+found"
            || OURS.contains(&name)
    };
    if is_ours(root) {
        return None;
    }
    // What cannot be read is said by whoever writes.
    let entries = std::fs::read_dir(root).ok()?;
    let names =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !is_harmless(name)).min()
}
