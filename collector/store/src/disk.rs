//! Abstraction of the disk for durable data. The log, checkpoints and new files of the tables are
//! written only through [`Disk`], so that tests can substitute a disk that fails, tears and forgets
//! writes.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// File that is open for writing.
pub trait DiskFile: Send {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// Returns the disk's errors. In this case, an unknown part of `bytes` may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the appended bytes durable, but not the file's name, which needs [`Disk::sync`] of its
    /// directory.
    ///
    /// # Errors
    /// Returns the disk's errors, and `NotFound` if the file was deleted. After an error, bytes
    /// appended since the last success may or may not be durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to `len_bytes` and continues appending there.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn cut(&mut self, len_bytes: u64) -> io::Result<()>;
}

/// Behaviour if a file to be created exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfThere {
    /// The creation fails.
    Fail,
    /// The file is truncated.
    Empty,
}

/// Files and directories. Creations, renames and removals become durable once their directory is
/// synced.
pub trait Disk: Debug + Send + Sync {
    /// Creates an empty file.
    ///
    /// # Errors
    /// Returns the disk's errors, and with [`IfThere::Fail`], `AlreadyExists` if the file exists.
    fn create(&self, path: &Path, if_there: IfThere) -> io::Result<Box<dyn DiskFile>>;
    /// Reads a whole file.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the names in a directory, in any order. Omits names that are not UTF-8, because
    /// Stroboscope writes none.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn names(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Creates a directory and its parents, if missing.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn create_directories(&self, directory: &Path) -> io::Result<()>;
    /// Renames a file, and atomically replaces an existing one.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the contents of a file or the names in a directory durable.
    ///
    /// # Errors
    /// Returns the disk's errors.
    fn sync(&self, path: &Path) -> io::Result<()>;
}

/// Local file system, as a [`Disk`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

struct LocalFile(File);

impl Disk for LocalDisk {
    fn create(&self, path: &Path, if_there: IfThere) -> io::Result<Box<dyn DiskFile>> {
        let file = match if_there {
            IfThere::Fail => File::options().write(true).create_new(true).open(path)?,
            IfThere::Empty => File::create(path)?,
        };
        Ok(Box::new(LocalFile(file)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for LocalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()?;
        // The system still accepts writes to a deleted file, but readers no longer find it.
        if self.0.metadata()?.nlink() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it was deleted while it was written to",
            ));
        }
        Ok(())
    }

    fn cut(&mut self, len_bytes: u64) -> io::Result<()> {
        use std::io::Seek as _;
        self.0.set_len(len_bytes)?;
        self.0.seek(io::SeekFrom::Start(len_bytes)).map(|_| ())
    }
}

/// Removes a file. A missing file is no error, because the file may have been removed before a
/// crash.
///
/// # Errors
/// Returns the disk's errors, except `NotFound`.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
