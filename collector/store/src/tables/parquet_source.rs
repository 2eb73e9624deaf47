//! Adapts an object of the store to the Parquet reader: random access (`ChunkReader`), and
//! read-ahead for sequential reads.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

use super::objects::Store;
use super::read_budget::ReadBudget;

/// Maximum number of bytes that a sequential read fetches at a time.
const READ_AHEAD_BYTES: u64 = 64 << 10;

/// Object of the store, or another open file, as a source for the Parquet reader.
#[derive(Clone, Debug)]
pub(super) struct ParquetSource {
    store: Store,
    path: Path,
    size_bytes: u64,
    whole: Option<Bytes>,
    /// Open file; `None` if the object is not a local file or cannot be opened, or if too many
    /// files are read together.
    file: Option<Arc<File>>,
}

impl ParquetSource {
    pub(super) fn open(
        store: &Store,
        object: &(Path, u64),
        budget: ReadBudget,
    ) -> ParquetResult<Self> {
        let (path, size_bytes) = object.clone();
        let mut object = Self {
            store: store.clone(),
            path,
            size_bytes,
            whole: None,
            file: None,
        };
        if budget.keeps_open {
            object.file = store.file(&object.path).map(Arc::new);
        }
        if size_bytes <= budget.whole_bytes_max {
            object.whole = Some(object.range(0, size_bytes)?);
        }
        Ok(object)
    }

    /// Wraps an open file that is not an object of the store. `name` is its name for messages.
    pub(super) fn of_file(store: &Store, name: Path, size_bytes: u64, file: File) -> Self {
        Self {
            store: store.clone(),
            path: name,
            size_bytes,
            whole: None,
            file: Some(Arc::new(file)),
        }
    }

    /// Reports whether the whole object is in memory.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    fn range(&self, start: u64, end: u64) -> ParquetResult<Bytes> {
        if start > end || end > self.size_bytes {
            let all = self.size_bytes;
            return Err(ParquetError::EOF(format!("bytes {start}..{end} of {all}")));
        }
        if start == end {
            return Ok(Bytes::new());
        }
        if let Some(whole) = &self.whole {
            return Ok(whole.slice(start as usize..end as usize));
        }
        let open = || self.store.file(&self.path).map(Arc::new);
        let Some(file) = self.file.clone().or_else(open) else {
            let read = self.store.range(&self.path, start..end);
            return read.map_err(|error| ParquetError::External(Box::new(error)));
        };
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

impl Length for ParquetSource {
    fn len(&self) -> u64 {
        self.size_bytes
    }
}

impl ChunkReader for ParquetSource {
    type T = ReadAhead;

    fn get_read(&self, start: u64) -> ParquetResult<ReadAhead> {
        Ok(ReadAhead {
            object: self.clone(),
            next: start,
            ahead: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.range(start, start.saturating_add(length as u64))
    }
}

/// Sequential reader from an offset in the object.
pub(super) struct ReadAhead {
    object: ParquetSource,
    next: u64,
    ahead: Bytes,
}

impl Read for ReadAhead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() && self.next < self.object.size_bytes {
            let end = self.next.saturating_add(READ_AHEAD_BYTES);
            let end = end.min(self.object.size_bytes);
            let ahead = self.object.range(self.next, end);
            self.ahead = ahead.map_err(io::Error::other)?;
            self.next = end;
        }
        let count = out.len().min(self.ahead.len());
        out[..count].copy_from_slice(&self.ahead.split_to(count));
        Ok(count)
    }
}
