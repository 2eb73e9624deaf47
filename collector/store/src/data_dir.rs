//! Data directory and its lock.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, LocalDisk};
use crate::tables::StoreTable;

/// Reason why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory does not exist.
    #[error("there is no data directory {0}")]
    Missing(PathBuf),
    #[error("cannot use the data directory {path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The directory exists, but is not a data directory.
    #[error("{0} holds no data of Stroboscope")]
    NotOurs(PathBuf),
    /// The directory exists, is not a data directory, and contains files of another program.
    #[error(
        "{directory} is not a Stroboscope data directory and not empty: it holds {entry}; nothing was written to \
         it, choose another directory with --data"
    )]
    Foreign { directory: PathBuf, entry: String },
    /// The directory holds a store, so an agent cannot use it.
    #[error(
        "{0} holds a store, which an agent does not keep; choose another directory with --data"
    )]
    HoldsStore(PathBuf),
    /// Another [`Lock`] of the directory exists.
    #[error(
        "another stroboscope is writing to {0}; stop it, or use another directory with --data (collectors with directories of their own \
         share an object store by --publish)"
    )]
    InUse(PathBuf),
}

impl DataDirError {
    /// Returns the conversion of errors of the disk at `path`.
    pub(crate) fn at(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// Name of the checkpoint file. A data directory with this file holds a store.
const CHECKPOINT: &str = "checkpoint.json";

/// Errors that are ignored when a directory above the data directory is synced. They mean that this
/// program may not read the directory, or that its file system is read-only or cannot sync
/// directories.
const NOT_SYNCED: [ErrorKind; 4] = [
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::InvalidInput,
    ErrorKind::Unsupported,
];

/// Data directory. It contains the log `wal/`, the tables, `checkpoint.json`, `lock`,
/// `generations/` and `replaced/` (see [`maintenance`](crate::maintenance)). It may also contain
/// `requests`, `damaged/` and `checkpoint.json.damaged` (see [`check`](crate::check)), and
/// `imports/` with the receipts of imports. A collector that publishes adds `published.json`, and
/// one that hashes values may add `redact.key`. The directory `cache/` can be deleted at any time.
/// The directory of an agent contains `wal/`, `forwarded/` and `lock`, and possibly `redact.key`.
#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

/// Lock of a data directory. Only its holder may write the log and the checkpoint, and move or
/// delete files of the tables; imports and kernel recordings add files without it. The system
/// releases it when the process ends, even if the process is killed.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl DataDir {
    /// Opens the data directory at `root`. Creates the directory and its `wal/` if they are
    /// missing, and makes them durable. Does not check for files of other programs; see
    /// [`DataDir::refuse_foreign`].
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or synced.
    pub fn create(root: &Path) -> Result<Self, DataDirError> {
        Self::create_on(Arc::new(LocalDisk), root)
    }

    /// Opens a data directory like [`DataDir::create`], on another disk.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or synced.
    pub fn create_on(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, DataDirError> {
        let root = root.to_owned();
        let data = Self { root, disk };
        let wal = data.wal();
        let created = data.disk.create_directories(&wal);
        created.map_err(DataDirError::at(&wal))?;
        let synced = data.sync_directories();
        synced.map_err(DataDirError::at(&data.root))?;
        Ok(data)
    }

    /// Checks that a directory may become a data directory: it is missing, has no files of other
    /// programs except hidden ones, or is a data directory already. Accepts a directory that cannot
    /// be read, because [`DataDir::create`] rejects it. Callers that create one check this first.
    ///
    /// # Errors
    /// Returns an error if the directory is not a data directory and contains such files.
    pub fn refuse_foreign(root: &Path) -> Result<(), DataDirError> {
        foreign_entry(root).map_or(Ok(()), |entry| {
            let directory = root.to_owned();
            Err(DataDirError::Foreign { directory, entry })
        })
    }

    /// Opens the data directory at `root`, which must exist. Writes nothing.
    ///
    /// # Errors
    /// Returns an error if it does not exist, cannot be read, is not a directory, or is not a data
    /// directory.
    pub fn existing(root: &Path) -> Result<Self, DataDirError> {
        let io = DataDirError::at(root);
        let is_directory = match std::fs::metadata(root) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(DataDirError::Missing(root.to_owned()));
            }
            about => about.map_err(&io)?.is_dir(),
        };
        if !is_directory {
            return Err(io(ErrorKind::NotADirectory.into()));
        }
        std::fs::read_dir(root).map_err(&io)?;
        if !is_ours(root) {
            return Err(DataDirError::NotOurs(root.to_owned()));
        }
        Ok(Self {
            root: root.to_owned(),
            disk: Arc::new(LocalDisk),
        })
    }

    /// Checks that the directory does not contain the checkpoint of a store.
    ///
    /// # Errors
    /// Returns an error if it contains one or cannot be listed.
    pub(crate) fn refuse_store(&self) -> Result<(), DataDirError> {
        let names = self.disk.names(&self.root);
        if names
            .map_err(DataDirError::at(&self.root))?
            .iter()
            .any(|name| name == CHECKPOINT)
        {
            return Err(DataDirError::HoldsStore(self.root.clone()));
        }
        Ok(())
    }

    /// Syncs the data directory and its parents (up to the working directory if the path is
    /// relative), because files are only as durable as their directory entries. Syncs them each
    /// time, because the process that created them may have been killed before it synced.
    fn sync_directories(&self) -> std::io::Result<()> {
        self.disk.sync(&self.root)?;
        for directory in self.root.ancestors().skip(1) {
            // An empty path stands for the working directory.
            let directory = match directory.as_os_str().is_empty() {
                true => Path::new("."),
                false => directory,
            };
            match self.disk.sync(directory) {
                Err(error) if NOT_SYNCED.contains(&error.kind()) => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the disk of the log and of the checkpoint.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the directory of the write-ahead log.
    #[must_use]
    pub fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }

    /// Returns the directory of cached query results and of temporary files.
    #[must_use]
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Reads the operations (`service:name`, or `none`) whose spans are declared to be requests. A
    /// query may replace them by its own. Returns an empty list if nothing was declared.
    ///
    /// # Errors
    /// Returns an error if the file `requests` cannot be read.
    pub fn requests(&self) -> Result<Vec<String>, DataDirError> {
        let path = self.root.join("requests");
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(DataDirError::at(&path))?,
        };
        let lines = text.lines().filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    /// Replaces the operations whose spans are declared to be requests.
    ///
    /// # Errors
    /// Returns an error if the file `requests` cannot be written.
    pub fn set_requests(&self, operations: &[String]) -> Result<(), DataDirError> {
        let path = self.root.join("requests");
        let part = path.with_extension("part");
        let lines: String = operations.iter().flat_map(|one| [one, "\n"]).collect();
        // The file is replaced atomically, so a reader sees either the old or the new operations.
        let written = std::fs::write(&part, lines).and_then(|()| std::fs::rename(&part, &path));
        written.map_err(|source| DataDirError::Io { path, source })
    }

    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// Returns an error if another [`Lock`] of the directory exists, in any process, or if the disk
    /// fails.
    pub fn lock(&self) -> Result<Lock, DataDirError> {
        let path = self.root.join("lock");
        let io = DataDirError::at(&path);
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(&path).map_err(&io)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(DataDirError::InUse(self.root.clone())),
            Err(errno) => Err(io(errno.into())),
        }
    }
}

/// Reports whether a directory is a data directory: it has a log, a checkpoint, or a table with the
/// directory of a day.
fn is_ours(root: &Path) -> bool {
    let has_day = |table: StoreTable| {
        let days = std::fs::read_dir(root.join(table.name()));
        let mut days = days.into_iter().flatten().flatten();
        days.any(|day| day.file_name().to_string_lossy().starts_with("date="))
    };
    root.join("wal").is_dir()
        || root.join(CHECKPOINT).is_file()
        || StoreTable::ALL.into_iter().any(has_day)
}

/// Returns the alphabetically first entry of a directory that another program wrote; `None` if
/// there is none, or if the directory is a data directory or cannot be read. Ignores hidden files,
/// `lost+found`, names with the prefix `demo-`, and files that Stroboscope may write before there
/// is a store.
fn foreign_entry(root: &Path) -> Option<String> {
    const OURS: [&str; 5] = ["cache", "lock", "redact.key", "requests", "generations"];
    let is_harmless = |name: &str| {
        name.starts_with('.')
            || name.starts_with("demo-")
            || name == "lost+found"
            || OURS.contains(&name)
            || StoreTable::ALL.iter().any(|table| table.name() == name)
    };
    if is_ours(root) {
        return None;
    }
    // `DataDir::create` rejects a directory that cannot be read.
    let entries = std::fs::read_dir(root).ok()?;
    let names =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !is_harmless(name)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_directories_of_tables_belong_to_no_other_program() {
        let directory = tempfile::tempdir().unwrap();
        for table in StoreTable::ALL {
            std::fs::create_dir(directory.path().join(table.name())).unwrap();
        }
        DataDir::refuse_foreign(directory.path()).unwrap();
        std::fs::write(directory.path().join("tables"), "").unwrap();
        DataDir::refuse_foreign(directory.path()).unwrap_err();
    }
}
