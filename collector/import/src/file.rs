//! Imports one source: a file, or standard input spooled to a file.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use twox_hash::xxhash3_128::Hasher;

use super::BadLine;
use super::format::Format;
use super::mapping::FieldMapping;
use super::outcome::{ImportError, ImportOutcome};
use super::read_as::ReadAs;
use super::receipt::Receipt;
use super::run::{RunTarget, RunWriter};
use super::sink::Sink;
use super::source::UnpackedSource;
use super::time::TimeUnit;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::limits::{IMPORT_RUN_ROWS, Limits};
use stroboscope_store::progress::{Observer, silent};
use stroboscope_store::tables::Store;

/// Imports sources into one store.
#[derive(Debug)]
pub struct Importer {
    data: DataDir,
    target: RunTarget,
    read_as: ReadAs,
    observer: Arc<dyn Observer>,
}

impl Importer {
    /// Creates an importer that writes rows to `store`, and receipts and spooled streams to `data`.
    #[must_use]
    pub fn new(data: DataDir, store: Store) -> Self {
        Self {
            data,
            target: RunTarget {
                store,
                limits: Limits::default(),
                run_rows: IMPORT_RUN_ROWS,
            },
            read_as: ReadAs::default(),
            observer: silent(),
        }
    }

    /// Reads sources in this format. In JSON, a list whose key belongs to a known format is still
    /// read in that format, unless the given one is event logs or KUtrace.
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.read_as.format = Some(format);
        self
    }

    /// Parses the records of sources with a mapping; a format is then ignored.
    #[must_use]
    pub fn with_mapping(mut self, mapping: FieldMapping) -> Self {
        self.read_as.mapping = Some(mapping);
        self
    }

    /// Interprets the times of event logs, and of records that a mapping parses, in this unit.
    /// Without a mapping, the import fails if the format of the source fixes the unit of its times.
    #[must_use]
    pub fn with_time_unit(mut self, unit: TimeUnit) -> Self {
        self.read_as.time_unit = Some(unit);
        self
    }

    /// Reports the progress of imports to `observer`.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Writes a run of files every `rows` rows (at least 1) instead of the default; for tests.
    #[must_use]
    pub fn with_run_rows(mut self, rows: usize) -> Self {
        self.target.run_rows = rows.max(1);
        self
    }

    /// Imports the file at `path`. Calls `bad` for each defect that leaves out data, with the
    /// number of the line (or message) and the reason.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has no known form, if a time unit was given
    /// for a format that fixes it, or if the store or the receipt cannot be written. The next
    /// attempt overwrites the rows written so far.
    pub fn file(
        &self,
        path: &Path,
        bad: &mut dyn FnMut(u64, &BadLine),
    ) -> Result<ImportOutcome, ImportError> {
        let name = path.display().to_string();
        let unreadable = |source| ImportError::Source {
            source_name: name.clone(),
            source,
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let hash = hash_of(&mut file).map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        self.content(&name, file, &hash, bad)
    }

    /// Imports a stream that can be read only once, such as standard input. It is spooled to the
    /// data directory first.
    ///
    /// # Errors
    /// Fails like [`Importer::file`], or if the stream cannot be spooled.
    pub fn stream(
        &self,
        name: &str,
        mut stream: impl Read,
        bad: &mut dyn FnMut(u64, &BadLine),
    ) -> Result<ImportOutcome, ImportError> {
        let (file, content) = self.spool(name, &mut stream)?;
        self.content(name, file, &content, bad)
    }

    /// Copies a stream to a file without a name, which disappears when it is closed. Returns the
    /// file and the hash of its bytes.
    fn spool(&self, name: &str, stream: &mut impl Read) -> Result<(File, String), ImportError> {
        let unwritable = |source| ImportError::Data {
            path: self.data.root().to_owned(),
            source,
        };
        let mut file = tempfile::tempfile_in(self.data.root()).map_err(unwritable)?;
        let mut hasher = Hasher::default();
        let mut is_written = true;
        copy(stream, |part| {
            hasher.write(part);
            let written = file.write_all(part);
            is_written = written.is_ok();
            written
        })
        .map_err(|source| match is_written {
            true => ImportError::Source {
                source_name: name.to_owned(),
                source,
            },
            false => unwritable(source),
        })?;
        file.rewind().map_err(unwritable)?;
        Ok((file, hex(&hasher)))
    }

    /// Imports a file whose bytes, compressed or not, have the hash `raw`.
    fn content(
        &self,
        name: &str,
        mut file: File,
        raw: &str,
        bad: &mut dyn FnMut(u64, &BadLine),
    ) -> Result<ImportOutcome, ImportError> {
        let unreadable = |source| ImportError::Source {
            source_name: name.to_owned(),
            source,
        };
        let raw = self.read_as.content(raw);
        let unpacked = unpacked_hash(&mut file).map_err(unreadable)?;
        let content = &unpacked.map_or_else(|| raw.clone(), |hash| self.read_as.content(&hash));
        // Earlier versions named the content of a compressed source by its compressed bytes.
        let receipts = [content, &raw].map(|content| Receipt::find(self.data.root(), content));
        if let Some(receipt) = receipts.into_iter().flatten().next() {
            return Ok(ImportOutcome::Before(receipt));
        }
        let total = file.metadata().ok().map(|about| about.len());
        let source = UnpackedSource::open(file).map_err(unreadable)?;
        let (run, read_bytes) = (
            RunWriter::new(&self.target, content),
            source.read_bytes.clone(),
        );
        let task = self.observer.begin("importing", "bytes", total);
        let sink = Sink::new(run, read_bytes, task, bad);
        let summary = self.read_as.read(name, source, sink, &self.target.limits)?;
        if summary.events + summary.spans > 0 {
            let receipt = Receipt {
                source: name.to_owned(),
                spans: summary.spans,
                events: summary.events,
                bad_lines: summary.bad_lines,
                ignored_lines: summary.ignored_lines,
                not_taken: summary.not_taken.clone(),
            };
            let kept = receipt.keep(self.data.root(), content);
            kept.map_err(|source| ImportError::Data {
                path: self.data.root().join("imports"),
                source,
            })?;
        }
        Ok(ImportOutcome::Now(summary))
    }
}

/// Returns the hash of the uncompressed bytes of a compressed source, so that equal contents have
/// the same name, compressed or not. Returns `None` if the source is not compressed, or cannot be
/// decompressed to its end.
fn unpacked_hash(file: &mut File) -> io::Result<Option<String>> {
    let mut source = UnpackedSource::open(file.try_clone()?)?;
    let hash = source.is_packed.then(|| hash_of(&mut source.bytes).ok());
    file.rewind()?;
    Ok(hash.flatten())
}

fn hash_of(source: &mut impl Read) -> io::Result<String> {
    let mut hasher = Hasher::default();
    copy(source, |part| {
        hasher.write(part);
        Ok(())
    })?;
    Ok(hex(&hasher))
}

fn hex(hasher: &Hasher) -> String {
    format!("{:032x}", hasher.finish_128())
}

fn copy(source: &mut impl Read, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => take(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
