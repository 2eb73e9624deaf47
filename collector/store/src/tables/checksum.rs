//! Checksum of a file's pages, stored in the metadata at the end of the file. Parquet has a field
//! for the checksum of each page, but our writer does not fill it.

use std::io::{self, Write};

use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{KeyValue, ParquetMetaData};

use super::objects::Store;
use super::stored_operations::FactsWriter;

/// Reason of damage for a file whose pages do not match the checksum.
pub(super) const BROKEN: &str = "its checksum does not match";
const KEY: &str = "stroboscope.pages_crc32";
/// Maximum number of bytes that are read at a time.
const CHUNK_BYTES: u64 = 4 << 20;

/// Writer that computes the checksum of the bytes that it passes on.
pub(super) struct ChecksumWriter<W> {
    to: W,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl<W> ChecksumWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self {
            to,
            sum: crc32fast::Hasher::new(),
            bytes: 0,
        }
    }

    /// Returns the checksum of all bytes so far, as a metadata entry: the sum in hexadecimal, and
    /// the number of bytes.
    fn said(&self) -> KeyValue {
        let sum = self.sum.clone().finalize();
        KeyValue::new(KEY.to_owned(), format!("{sum:08x} {}", self.bytes))
    }

    pub(super) fn into_inner(self) -> W {
        self.to
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let written = self.to.write(more)?;
        self.sum.update(&more[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Flushes the rows, and adds the checksum to the file's metadata. Also adds the operation facts if
/// there are any and their entry is not too large. The caller must have written all rows.
pub(super) fn seal<W: Write + Send>(
    writer: &mut ArrowWriter<ChecksumWriter<W>>,
    facts: Option<FactsWriter>,
) -> ParquetResult<()> {
    writer.flush()?;
    writer.sync()?;
    writer.append_key_value_metadata(writer.inner().said());
    if let Some(entry) = facts.and_then(FactsWriter::finish) {
        writer.append_key_value_metadata(entry);
    }
    Ok(())
}

/// Reports whether a file's pages match its checksum. Returns true for a file without a checksum.
pub(super) fn holds(
    store: &Store,
    path: &Path,
    metadata: &ParquetMetaData,
) -> Result<bool, String> {
    let about = metadata.file_metadata().key_value_metadata();
    let said = about.into_iter().flatten().find(|pair| pair.key == KEY);
    let Some(said) = said.and_then(|pair| pair.value.as_deref()) else {
        return Ok(true);
    };
    let parsed = said.split_once(' ').and_then(|(sum, bytes)| {
        let sum = u32::from_str_radix(sum, 16).ok()?;
        Some((sum, bytes.parse::<u64>().ok()?))
    });
    let (expected, bytes) = parsed.ok_or("its checksum is malformed")?;
    let (mut sum, mut at) = (crc32fast::Hasher::new(), 0);
    while at < bytes {
        let end = bytes.min(at + CHUNK_BYTES);
        let chunk = store.range(path, at..end);
        sum.update(&chunk.map_err(|error| error.to_string())?);
        at = end;
    }
    Ok(sum.finalize() == expected)
}
