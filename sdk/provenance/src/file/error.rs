//! Errors of files.

use core::fmt;

/// Error of a file that is not a complete log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The file does not begin as a log does.
    Foreign,
    /// The file has a version that this program does not know.
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The file ends within its header or a segment, or without its end segment.
    Truncated {
        /// Offset of the incomplete or missing segment; 0 if the header is incomplete.
        at: usize,
    },
    /// The checksum of the header or of a segment does not match.
    Corrupt {
        /// Offset of the segment; 0 for the header.
        at: usize,
    },
    /// The file goes on after the end of the log.
    Surplus {
        /// Offset of the first byte after the log.
        at: usize,
    },
    /// A segment has content that no log has.
    Invalid {
        /// Offset of the segment.
        at: usize,
        /// Description of the problem.
        problem: &'static str,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("this is no file of a provenance log"),
            Self::Version { found } => write!(
                f,
                "the provenance log has version {found}, and this program reads versions {} to {}: use \
                 a newer program",
                super::VERSION_WITHOUT_OFFSETS,
                super::VERSION
            ),
            Self::Truncated { at } => write!(
                f,
                "the provenance log is cut off in the segment at byte {at}: its program may have \
                 crashed or still run"
            ),
            Self::Corrupt { at } => write!(
                f,
                "the provenance log is corrupt: the checksum at byte {at} does not match"
            ),
            Self::Surplus { at } => write!(
                f,
                "the provenance log ends at byte {at}, but its file goes on: write each log to a \
                 file of its own"
            ),
            Self::Invalid { at, problem } => write!(
                f,
                "the provenance log is invalid: the segment at byte {at} has {problem}"
            ),
        }
    }
}

impl core::error::Error for FileError {}
