//! Appends groups of records to the log, and makes each group durable with one `fdatasync`.

use std::hash::BuildHasher as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{HEADER_BYTES, encode_header};
use super::record::Payload;
use super::segment_files::segment_path;
use crate::disk::{Disk, DiskFile, IfThere, LocalDisk, remove_if_there};

/// Reason why an append or a probe failed. No record of a failed group counts as durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// The disk is full, or a quota is exhausted.
    #[error(
        "no space left for {path}: {detail}; free some space, appends are retried automatically"
    )]
    Full {
        path: PathBuf,
        /// Error message of the system.
        detail: String,
    },
    /// The system reported another error.
    #[error("cannot write {path}: {detail}; check the disk, appends are retried automatically")]
    Io {
        path: PathBuf,
        /// Error message of the system.
        detail: String,
    },
    /// A payload is longer than the format allows.
    #[error("a batch of {bytes} bytes is longer than a WAL record may be")]
    TooLong { bytes: usize },
}

impl WalError {
    fn of(path: &Path, error: &io::Error) -> Self {
        let (path, detail) = (path.to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path, detail }
            }
            _ => Self::Io { path, detail },
        }
    }
}

struct Open {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    marker: u32,
    len_bytes: u64,
}

/// Writer of a log. A log has only one writer.
pub struct Writer {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    /// Number of the open segment, or of the segment that the next append or probe begins.
    number: u64,
    open: Option<Open>,
    /// Segments that were abandoned after failures. They are flushed like segments that were
    /// closed.
    abandoned: Vec<u64>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("directory", &self.directory)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer of the log in the existing directory `directory`. The first segment that it
    /// begins is `number`. It creates no file before the first append or probe, so that an idle
    /// collector leaves no empty files.
    #[must_use]
    pub fn new(directory: &Path, number: u64) -> Self {
        Self::on(Arc::new(LocalDisk), directory, number)
    }

    /// Creates a writer like [`Writer::new`], on another disk.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>, directory: &Path, number: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            disk,
            number,
            open: None,
            abandoned: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Returns the size of the open segment in bytes; 0 if there is none.
    #[must_use]
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.len_bytes)
    }

    /// Appends all of `group` and makes it durable. After an error, no record of the group counts
    /// as appended, although an abandoned segment may contain some of them.
    ///
    /// # Errors
    /// Returns an error if a payload is too long, or if the disk is full or fails. The log stays
    /// usable, and the next call tries again.
    pub fn append_group(&mut self, group: &[Payload]) -> Result<(), WalError> {
        self.append_group_telling(group, &mut || {})
    }

    /// Appends a group like [`Writer::append_group`], and calls `is_written` between the write and
    /// the sync.
    ///
    /// # Errors
    /// Returns an error if a payload is too long, or if the disk is full or fails.
    pub fn append_group_telling(
        &mut self,
        group: &[Payload],
        is_written: &mut dyn FnMut(),
    ) -> Result<(), WalError> {
        if let Some(payload) = group.iter().find(|payload| !payload.fits()) {
            let bytes = payload.bytes.len();
            return Err(WalError::TooLong { bytes });
        }
        if group.is_empty() {
            return Ok(());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        self.buffer.clear();
        for payload in group {
            payload.encode(open.marker, &mut self.buffer);
        }
        if let Err(error) = open.file.append(&self.buffer) {
            let failure = WalError::of(&open.path, &error);
            match open.file.cut(open.len_bytes) {
                Ok(()) => self.open = Some(open),
                Err(_) => self.abandon(),
            }
            return Err(failure);
        }
        is_written();
        if let Err(error) = open.file.sync() {
            let failure = WalError::of(&open.path, &error);
            // Ignores errors, because readers tolerate the remaining bytes.
            let _ = open.file.cut(open.len_bytes);
            self.abandon();
            return Err(failure);
        }
        open.len_bytes += self.buffer.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    /// Checks that `bytes` bytes could be appended durably now. Appends and syncs zeros, and
    /// truncates the segment again.
    ///
    /// # Errors
    /// Returns an error if the disk is full or fails. The log stays usable.
    pub fn probe(&mut self, bytes: usize) -> Result<(), WalError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        self.buffer.clear();
        self.buffer.resize(bytes, 0);
        let written = open.file.append(&self.buffer);
        let tried = written.and_then(|()| open.file.sync());
        let failure = tried.map_err(|error| WalError::of(&open.path, &error));
        // Does not continue the segment after a failure.
        match open.file.cut(open.len_bytes) {
            Ok(()) if failure.is_ok() => self.open = Some(open),
            _ => self.abandon(),
        }
        failure
    }

    /// Closes the open segment if it has any record. Returns the numbers of the segments that were
    /// closed or abandoned since the last call, in order.
    pub fn rotate(&mut self) -> Vec<u64> {
        let mut closed = std::mem::take(&mut self.abandoned);
        if self.open_bytes() > HEADER_BYTES as u64 {
            self.open = None;
            closed.push(self.number);
            self.number += 1;
        }
        closed
    }

    fn begin(&mut self) -> Result<Open, WalError> {
        let path = segment_path(&self.directory, self.number);
        let marker = random_marker();
        let begin = || -> io::Result<Box<dyn DiskFile>> {
            let mut file = self.disk.create(&path, IfThere::Fail)?;
            self.disk.sync(&self.directory)?;
            file.append(&encode_header(self.number, marker))?;
            Ok(file)
        };
        match begin() {
            Ok(file) => Ok(Open {
                file,
                path,
                marker,
                len_bytes: HEADER_BYTES as u64,
            }),
            Err(error) => {
                // A segment of another writer stays, and is flushed. A file without records is
                // removed, so that attempts on a full disk leave no files behind.
                if error.kind() == io::ErrorKind::AlreadyExists
                    || remove_if_there(&*self.disk, &path).is_err()
                {
                    self.abandon();
                }
                Err(WalError::of(&path, &error))
            }
        }
    }

    fn abandon(&mut self) {
        self.abandoned.push(self.number);
        self.number += 1;
    }
}

/// Returns an unpredictable number. The standard library seeds its hash maps with the system's
/// randomness.
fn random_marker() -> u32 {
    let seed = std::hash::RandomState::new().hash_one(0);
    (seed >> 32) as u32 ^ seed as u32
}
