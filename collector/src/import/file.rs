//! Imports one source: a file, or standard input spooled to one.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use twox_hash::xxhash3_128::Hasher;

use super::BadLine;
use super::line::{LogLine, parse};
use super::lines::Lines;
use super::receipt::Receipt;
use super::trace_name::{trace_id, trace_label};
use crate::intake::DataDir;
use crate::limits::{IMPORT_LINE_BYTES_MAX, IMPORT_RUN_BYTES, IMPORT_RUN_ROWS, Limits};
use crate::progress::Progress;
use crate::record::{EventRow, Rows};
use crate::store::{Filing, Store, StoreError, write_rows};

/// Why a source cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source cannot be read.
    #[error("cannot read {source_name}: {source}")]
    Source {
        /// The source.
        source_name: String,
        /// The cause.
        source: io::Error,
    },
    /// Something in the data folder cannot be written.
    #[error("cannot write to {path}: {source}")]
    Data {
        /// What.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events kept.
    pub events: u64,
    /// Lines left out.
    pub bad_lines: u64,
    /// Objects written.
    pub objects: usize,
}

/// Whether a source was imported now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Now.
    Now(Summary),
    /// The same content was imported before; nothing was done.
    Before(Receipt),
}

/// Imports sources into one data folder.
#[derive(Debug)]
pub struct Importer {
    data: DataDir,
    store: Store,
    limits: Limits,
    run_rows: usize,
}

impl Importer {
    /// Into `data` and its store.
    #[must_use]
    pub fn new(data: DataDir, store: Store) -> Self {
        Self { data, store, limits: Limits::default(), run_rows: IMPORT_RUN_ROWS }
    }

    /// Writes a file every `rows` rows instead; for tests.
    #[must_use]
    pub fn with_run_rows(mut self, rows: usize) -> Self {
        self.run_rows = rows.max(1);
        self
    }

    /// Imports the file at `path`. `bad` hears of each line that is left out.
    ///
    /// # Errors
    /// When the file cannot be read or the store not be written; what was written so far is overwritten by the next
    /// attempt.
    pub fn file(&self, path: &Path, bad: &mut dyn FnMut(u64, &BadLine)) -> Result<Imported, ImportError> {
        let name = path.display().to_string();
        let unreadable = |source| ImportError::Source { source_name: name.clone(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut hasher = Hasher::default();
        copy(&mut file, |part| {
            hasher.write(part);
            Ok(())
        })
        .map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        self.content(&name, file, &format!("{:032x}", hasher.finish_128()), bad)
    }

    /// Imports a stream that can be read only once, such as standard input: it is spooled to the data folder first.
    ///
    /// # Errors
    /// As [`Importer::file`].
    pub fn stream(
        &self,
        name: &str,
        mut stream: impl Read,
        bad: &mut dyn FnMut(u64, &BadLine),
    ) -> Result<Imported, ImportError> {
        let path = self.data.root().join(format!("import-spool-{}.tmp", std::process::id()));
        let spooled = self.spool(name, &path, &mut stream);
        // An open file lives on without its name, and vanishes with this process whatever happens.
        let _ = std::fs::remove_file(&path);
        let (file, content) = spooled?;
        self.content(name, file, &content, bad)
    }

    fn spool(&self, name: &str, path: &Path, stream: &mut impl Read) -> Result<(File, String), ImportError> {
        let unwritable = |source| ImportError::Data { path: path.to_owned(), source };
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let mut file = options.open(path).map_err(unwritable)?;
        let mut hasher = Hasher::default();
        copy(stream, |part| {
            hasher.write(part);
            file.write_all(part)
        })
        .map_err(|source| ImportError::Source { source_name: name.to_owned(), source })?;
        file.rewind().map_err(unwritable)?;
        Ok((file, format!("{:032x}", hasher.finish_128())))
    }

    fn content(
        &self,
        name: &str,
        file: File,
        content: &str,
        bad: &mut dyn FnMut(u64, &BadLine),
    ) -> Result<Imported, ImportError> {
        if let Some(receipt) = Receipt::find(self.data.root(), content) {
            return Ok(Imported::Before(receipt));
        }
        let unreadable = |source| ImportError::Source { source_name: name.to_owned(), source };
        let total = file.metadata().ok().map(|about| about.len());
        let mut progress = Progress::new("importing", "bytes", total);
        let mut lines = Lines::new(BufReader::with_capacity(1 << 16, file), IMPORT_LINE_BYTES_MAX);
        let mut run = RunWriter::new(self, content);
        let (mut line, mut bad_lines, mut seen_bytes) = (Vec::new(), 0, 0);
        while let Some(read) = lines.next_into(&mut line).map_err(unreadable)? {
            progress.add(lines.bytes() - seen_bytes);
            seen_bytes = lines.bytes();
            if read.is_ok() && line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match read.and_then(|()| parse(&line, &self.limits)) {
                Ok(parsed) => run.push(&parsed)?,
                Err(reason) => {
                    bad_lines += 1;
                    bad(lines.number(), &reason);
                }
            }
        }
        run.write()?;
        let summary = Summary { events: run.events, bad_lines, objects: run.objects };
        if summary.events > 0 {
            let receipt = Receipt { source: name.to_owned(), events: summary.events, bad_lines };
            let kept = receipt.keep(self.data.root(), content);
            kept.map_err(|source| ImportError::Data { path: self.data.root().join("imports"), source })?;
        }
        Ok(Imported::Now(summary))
    }
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

/// Collects rows up to a bound and writes them as one sorted run.
struct RunWriter<'a> {
    importer: &'a Importer,
    content: &'a str,
    rows: Rows,
    attribute_bytes: usize,
    runs: usize,
    events: u64,
    objects: usize,
}

impl<'a> RunWriter<'a> {
    fn new(importer: &'a Importer, content: &'a str) -> Self {
        Self { importer, content, rows: Rows::default(), attribute_bytes: 0, runs: 0, events: 0, objects: 0 }
    }

    fn push(&mut self, line: &LogLine) -> Result<(), ImportError> {
        let attributes = line.attrs.as_ref().filter(|attrs| !attrs.is_empty());
        let attributes: Option<Box<str>> =
            attributes.map(|attrs| serde_json::Value::from(attrs.clone()).to_string().into());
        self.attribute_bytes += attributes.as_ref().map_or(0, |json| json.len());
        let id = trace_id(&line.trace);
        let strings = &mut self.rows.strings;
        self.rows.events.push(EventRow {
            trace_id: id,
            trace_name: trace_label(&line.trace, id).map(|name| strings.intern(name)),
            span_id: 0,
            time_ns: i64::try_from(line.ts_ns).unwrap_or(i64::MAX),
            // The order of lines; it wraps only beyond four billion of them, where it decides nothing any more.
            seq: self.events as u32,
            host: strings.intern(&line.host),
            service: strings.intern(""),
            task: Some(strings.intern(&line.task)),
            name: strings.intern(&line.event),
            attributes,
        });
        self.events += 1;
        let bytes = self.rows.strings.bytes() + self.attribute_bytes;
        if self.rows.events.len() >= self.importer.run_rows || bytes >= IMPORT_RUN_BYTES {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write(&mut self) -> Result<(), ImportError> {
        let rows = std::mem::take(&mut self.rows);
        self.attribute_bytes = 0;
        let Some(first_ns) = rows.events.iter().map(|row| row.time_ns).min() else { return Ok(()) };
        let name = format!("import-{}-{}", self.content, self.runs);
        let written = write_rows(&self.importer.store, &name, rows, &Filing::imported(first_ns))?;
        self.importer.store.settle(&written.paths)?;
        self.objects += written.paths.len();
        self.runs += 1;
        Ok(())
    }
}
