//! Segment files: their names, and the three things a writer asks of one.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What the writer needs of an open segment. A trait, so that tests can fill the disk.
pub trait SegmentFile: Send {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// Those of the disk; then an unknown part of `bytes` may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was appended durable.
    ///
    /// # Errors
    /// Those of the disk; then nothing is known about what is durable since the last success.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to `len_bytes` and goes on appending there.
    ///
    /// # Errors
    /// Those of the disk.
    fn cut(&mut self, len_bytes: u64) -> io::Result<()>;
}

/// Where segments are created.
pub trait SegmentFiles: Send {
    /// Creates an empty segment; the name is durable when this returns.
    ///
    /// # Errors
    /// Those of the disk, and `AlreadyExists`.
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn SegmentFile>>;
}

/// Segments on the real disk.
#[derive(Debug, Default)]
pub(crate) struct DiskFiles;

struct DiskFile(File);

impl SegmentFiles for DiskFiles {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        let file = File::options().write(true).create_new(true).open(path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Box::new(DiskFile(file)))
    }
}

impl SegmentFile for DiskFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn cut(&mut self, len_bytes: u64) -> io::Result<()> {
        use std::io::Seek as _;
        self.0.set_len(len_bytes)?;
        self.0.seek(io::SeekFrom::Start(len_bytes)).map(|_| ())
    }
}

/// Path of segment `number` in the log `folder`.
#[must_use]
pub fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}.wal"))
}

/// Numbers of the segments in `folder`, in order. Files of other names are not ours and are left alone; a folder
/// that does not exist holds none.
///
/// # Errors
/// When the folder cannot be listed.
pub fn list_segments(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".wal"));
        if let Some(number) = number
            .filter(|digits| digits.len() >= 10)
            .and_then(|digits| digits.parse().ok())
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Deletes segment `number`; that it is gone already is fine (a crash came between deletion and now).
///
/// # Errors
/// When the file is there and cannot be deleted.
pub fn remove_segment(folder: &Path, number: u64) -> io::Result<()> {
    match std::fs::remove_file(segment_path(folder, number)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
