//! Reads a segment of the log, even if it is damaged.

use std::io;
use std::path::{Path, PathBuf};

use super::format::{HEADER_BYTES, RecordFormat, decode_header, read_u32};
use super::record::Payload;
use crate::disk::{Disk, LocalDisk};

/// Problem that a scan of a segment found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanNote {
    /// The last bytes contain no valid record. The usual cause is that the writer was killed or the
    /// power was cut; then they contain no acknowledged data.
    TornTail {
        path: PathBuf,
        /// Start of the tail in the file, in bytes.
        offset: u64,
        /// Length of the tail, in bytes.
        bytes: u64,
    },
    /// Bytes before other records contain no valid record. The records in them are lost.
    Damaged {
        path: PathBuf,
        /// Start of the damage in the file, in bytes.
        offset: u64,
        /// Number of damaged bytes that were skipped.
        bytes: u64,
    },
    /// The segment's header is damaged or of an unknown version. The reader still looked for its
    /// records.
    BadHeader { path: PathBuf, reason: &'static str },
}

impl std::fmt::Display for ScanNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TornTail {
                path,
                offset,
                bytes,
            } => write!(
                f,
                "{}: left out an unfinished record at its end (offset {offset}, {bytes} bytes); it was never acknowledged",
                path.display()
            ),
            Self::Damaged {
                path,
                offset,
                bytes,
            } => write!(
                f,
                "{}: {bytes} bytes at offset {offset} are damaged, the batches in them are lost; check the disk, unless the \
                 power was cut while they were written: then they were never acknowledged",
                path.display()
            ),
            Self::BadHeader { path, reason } => {
                let path = path.display();
                write!(f, "{path}: {reason}; its records were read nonetheless")
            }
        }
    }
}

impl ScanNote {
    /// Returns true for damage, and false for an unfinished tail.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::TornTail { .. })
    }
}

/// Valid records of a segment, and the problems found in it.
#[derive(Debug, Default)]
pub struct Scan {
    /// Valid records of the segment, in order.
    pub payloads: Vec<Payload>,
    /// Problems found in the segment.
    pub notes: Vec<ScanNote>,
}

/// Reads the segment at `path` into memory as a whole. A segment is closed when it exceeds 32 MiB
/// (by default), so its size is bounded.
///
/// # Errors
/// Returns an error if the file cannot be read. The notes report damage inside the file.
pub fn read_segment(path: &Path) -> io::Result<Scan> {
    read_segment_on(&LocalDisk, path)
}

/// Reads a segment from `disk`, like [`read_segment`].
pub(crate) fn read_segment_on(disk: &dyn Disk, path: &Path) -> io::Result<Scan> {
    Ok(scan(path, &disk.read(path)?))
}

fn scan(path: &Path, bytes: &[u8]) -> Scan {
    let mut found = Scan::default();
    if bytes.len() < HEADER_BYTES {
        if !bytes.is_empty() {
            found.notes.push(ScanNote::TornTail {
                path: path.to_owned(),
                offset: 0,
                bytes: bytes.len() as u64,
            });
        }
        return found;
    }
    let format = match decode_header(bytes) {
        Ok(format) => format,
        Err(reason) => {
            found.notes.push(ScanNote::BadHeader {
                path: path.to_owned(),
                reason,
            });
            RecordFormat {
                marker: read_u32(bytes, HEADER_BYTES).unwrap_or_default(),
                has_kinds: true,
            }
        }
    };
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        if let Some((payload, length)) = Payload::decode(format, &bytes[offset..]) {
            found.payloads.push(payload);
            offset += length;
            continue;
        }
        let next = next_record(format, bytes, offset + 1);
        let (path, begin) = (path.to_owned(), offset as u64);
        offset = next.unwrap_or(bytes.len());
        let skipped = offset as u64 - begin;
        found.notes.push(match next {
            Some(_) => ScanNote::Damaged {
                path,
                offset: begin,
                bytes: skipped,
            },
            None => ScanNote::TornTail {
                path,
                offset: begin,
                bytes: skipped,
            },
        });
    }
    found
}

/// Returns the next offset at which a valid record begins; `None` if there is none.
fn next_record(format: RecordFormat, bytes: &[u8], from: usize) -> Option<usize> {
    let needle = format.marker.to_le_bytes();
    let tail = bytes.get(from..)?;
    let windows = (from..).zip(tail.windows(needle.len()));
    let marked = windows.filter(|(_, window)| *window == needle);
    let is_record = |offset: &usize| Payload::decode(format, &bytes[*offset..]).is_some();
    marked.map(|(offset, _)| offset).find(is_record)
}
