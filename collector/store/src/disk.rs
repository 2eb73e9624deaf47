//! The disk, as far as what is kept depends on it: the log, the checkpoint and the publication of objects write through
//! here and nowhere else, so that tests can have a disk that fails, tears and forgets.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// An open file that is written.
pub trait DiskFile: Send {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// Those of the disk; then an unknown part of `bytes` may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was appended durable; not the file's name, for which see [`Disk::sync`] of its folder.
    ///
    /// # Errors
    /// Those of the disk, and `NotFound` if somebody deleted the file; then nothing is known about what is durable since
    /// the last success.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to `len_bytes` and goes on appending there.
    ///
    /// # Errors
    /// Those of the disk.
    fn cut(&mut self, len_bytes: u64) -> io::Result<()>;
}

/// What becomes of a file of the name that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfThere {
    /// There must be none.
    Fail,
    /// It is emptied.
    Empty,
}

/// Files and folders. What is created, renamed or removed is durable once its folder is synced.
pub trait Disk: Debug + Send + Sync {
    /// Creates an empty file.
    ///
    /// # Errors
    /// Those of the disk, and `AlreadyExists`.
    fn create(&self, path: &Path, if_there: IfThere) -> io::Result<Box<dyn DiskFile>>;
    /// All of a file.
    ///
    /// # Errors
    /// Those of the disk.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names in a folder, in any order; names that are no text are not ours.
    ///
    /// # Errors
    /// Those of the disk.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Creates a folder, and those above it, unless they are there.
    ///
    /// # Errors
    /// Those of the disk.
    fn create_folders(&self, folder: &Path) -> io::Result<()>;
    /// Renames a file; one that is there is replaced in the same step.
    ///
    /// # Errors
    /// Those of the disk.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// Those of the disk.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a file's contents, or a folder's names, durable.
    ///
    /// # Errors
    /// Those of the disk.
    fn sync(&self, path: &Path) -> io::Result<()>;
}

/// The real one.
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

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create_folders(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)
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
        // The system goes on writing to a file that has no name any more, and that nobody will find again.
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

/// Removes a file; that it is gone already is fine (a crash came between its removal and now).
///
/// # Errors
/// When it is there and cannot be removed.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
