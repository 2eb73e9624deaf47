//! File format of parts.
//!
//! ```text
//! "stroboscope part"  16 bytes
//! version             u32, little-endian like all numbers
//! length of the head  u32
//! packed length       u64, of the contents
//! unpacked length     u64, of the contents
//! head                postcard
//! contents            postcard, compressed by zstd
//! checksum            XXH3-128 of everything before it
//! ```
//!
//! The checksum covers every byte before it, so a damaged file is not taken for a part. The format
//! has no compatibility between versions of the program, because their results may differ.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_128;

use super::error::ShardError;
use super::{Head, PROGRAM, VERSION};

const MAGIC: &[u8; 16] = b"stroboscope part";
/// Length of everything before the head, in bytes.
const PREFIX_BYTES: usize = 16 + 4 + 4 + 8 + 8;
const CHECKSUM_BYTES: usize = 16;
const ZSTD_LEVEL: i32 = 3;

/// File whose checksum and head were read.
pub(super) struct PartFile {
    path: PathBuf,
    pub(super) head: Head,
    pub(super) checksum: u128,
    packed: Vec<u8>,
    /// Length of the contents before compression, in bytes.
    pub(super) contents_bytes: usize,
}

impl PartFile {
    /// Decodes the contents.
    pub(super) fn contents<C: DeserializeOwned>(&self) -> Result<C, ShardError> {
        let unpacked = zstd::bulk::decompress(&self.packed, self.contents_bytes).ok();
        let contents = unpacked.and_then(|bytes| postcard::from_bytes(&bytes).ok());
        contents.ok_or_else(|| damaged(&self.path, "its contents cannot be decoded"))
    }
}

/// Reads a file, and verifies its checksum. Reads at most one byte more than the file's first bytes
/// declare.
pub(super) fn read_part(path: &Path) -> Result<PartFile, ShardError> {
    let file = File::open(path).map_err(|error| ShardError::Read {
        path: path.to_owned(),
        error,
    })?;
    parse_part(path, file)
}

/// Reads the contents of a file like [`read_part`]. `path` is its name in errors.
pub(super) fn parse_part(path: &Path, mut file: impl io::Read) -> Result<PartFile, ShardError> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES);
    let mut read = |bytes: &mut Vec<u8>, most: u64| {
        let read = (&mut file).take(most).read_to_end(bytes);
        read.map_err(|error| ShardError::Read {
            path: path.to_owned(),
            error,
        })
    };
    read(&mut bytes, PREFIX_BYTES as u64)?;
    if !bytes.starts_with(MAGIC) {
        return Err(ShardError::NotAPart(path.to_owned()));
    }
    let truncated = || damaged(path, "it is truncated");
    if bytes.len() < PREFIX_BYTES {
        return Err(truncated());
    }
    let number = |from: usize, len: usize| {
        let mut number = [0; 8];
        number[..len].copy_from_slice(&bytes[from..from + len]);
        u64::from_le_bytes(number)
    };
    let (version, head) = (number(16, 4) as u32, number(20, 4));
    let (packed, unpacked) = (number(24, 8), number(32, 8));
    if version != VERSION {
        return Err(ShardError::Version {
            path: path.to_owned(),
            found: version,
        });
    }
    let rest = head
        .saturating_add(packed)
        .saturating_add(CHECKSUM_BYTES as u64);
    // One more byte reveals a file that is too long.
    let found = read(&mut bytes, rest.saturating_add(1))? as u64;
    if found < rest {
        return Err(truncated());
    }
    let (covered, checksum) = bytes
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or_else(truncated)?;
    let checksum = u128::from_le_bytes(*checksum);
    if found > rest || XxHash3_128::oneshot(covered) != checksum {
        return Err(damaged(path, "its checksum does not match"));
    }
    let (head, packed) = covered
        .get(PREFIX_BYTES..)
        .and_then(|rest| rest.split_at_checked(head as usize))
        .ok_or_else(truncated)?;
    let undecodable = || damaged(path, "its head cannot be decoded");
    // The program must be checked first: the other fields may differ in another version.
    let (written_by, _): (String, _) =
        postcard::take_from_bytes(head).map_err(|_| undecodable())?;
    if written_by != PROGRAM {
        return Err(ShardError::Program {
            path: path.to_owned(),
            written_by,
        });
    }
    Ok(PartFile {
        path: path.to_owned(),
        head: postcard::from_bytes(head).map_err(|_| undecodable())?,
        checksum,
        packed: packed.to_vec(),
        contents_bytes: usize::try_from(unpacked).map_err(|_| truncated())?,
    })
}

/// Writes an encoded file atomically, and replaces a file of the same name.
pub(super) fn write_part(path: &Path, bytes: &[u8]) -> Result<(), ShardError> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    let written = write_durably(&new, bytes).and_then(|()| std::fs::rename(&new, path));
    let written = written.inspect_err(|_| {
        // A partly written file is useless. It is no error if there is none.
        let _ = std::fs::remove_file(&new);
    });
    written.map_err(|error| ShardError::Write {
        path: path.to_owned(),
        error,
    })
}

pub(super) fn encode_part(head: &Head, contents: &impl Serialize) -> Result<Vec<u8>, ShardError> {
    encoded(head, contents).map_err(ShardError::Encode)
}

fn encoded(head: &Head, contents: &impl Serialize) -> io::Result<Vec<u8>> {
    let head = postcard::to_stdvec(head).map_err(io::Error::other)?;
    let contents = postcard::to_stdvec(contents).map_err(io::Error::other)?;
    let packed = zstd::bulk::compress(&contents, ZSTD_LEVEL)?;
    let head_bytes = u32::try_from(head.len()).map_err(io::Error::other)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(head_bytes.to_le_bytes());
    bytes.extend((packed.len() as u64).to_le_bytes());
    bytes.extend((contents.len() as u64).to_le_bytes());
    bytes.extend(head);
    bytes.extend(packed);
    bytes.extend(XxHash3_128::oneshot(&bytes).to_le_bytes());
    Ok(bytes)
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn damaged(path: &Path, reason: &'static str) -> ShardError {
    ShardError::Damaged {
        path: path.to_owned(),
        reason,
    }
}
