//! What a query reads, and what it has to say about that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stroboscope_analysis::completeness::{ProcessLoss, completeness};
use stroboscope_analysis::inner_operations::{INNER_ROOT, InnerOperations};
use stroboscope_analysis::record::TraceRecords;
use tokio::runtime::Handle;

use super::parts::PartsWanted;
use super::time_range::TimeRange;
use super::{Recorded, losses};
use crate::hint::command_on;
use crate::intake::{Counters, DataDir, DataDirError, Flusher};
use crate::progress::Progress;
use crate::store::{
    AttributeKeys, Damage, LeftOut, Store, StoreError, Table, TraceFiles, TraceReader, damage_of,
    inner_operations, read_batches,
};
use crate::wal::{HEADER_BYTES, list_segments, segment_path};

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The data folder.
    #[error(transparent)]
    Data(#[from] DataDirError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is nothing in it.
    #[error(
        "the data folder {data} holds no traces yet; {}each demo has a folder of its own, {data}/demo-…",
        to_fill(Path::new(data), *.unflushed_bytes)
    )]
    Empty {
        /// The folder.
        data: String,
        /// What a running collector has taken and not put into the store yet.
        unflushed_bytes: u64,
    },
    /// The trace asked for is not there.
    #[error(
        "there is no trace {trace} in {data}; ids are those that `{}` lists",
        command_on("critical-path --each --json", Path::new(data))
    )]
    NoSuchTrace {
        /// As asked for.
        trace: String,
        /// Where.
        data: String,
    },
    /// The kernel was not recorded.
    #[error(
        "the data folder {0} holds nothing of the kernel; record it beside the services: `stroboscope kernel record`, \
         or `stroboscope collect --kernel`"
    )]
    NoKernel(String),
    /// The kernel was not recorded at that time.
    #[error("no burst of the kernel at {at_ns} (ns since the Unix epoch) or later is in {data}")]
    NoBurst {
        /// As asked for.
        at_ns: i64,
        /// Where.
        data: String,
    },
    /// No segment is the one asked for.
    #[error(
        "none of the {segments} segments is the one asked for; `{}` lists them",
        command_on("model", Path::new(data))
    )]
    NoSuchSegment {
        /// Where.
        data: String,
        /// How many there are.
        segments: usize,
    },
    /// No category is the one asked for.
    #[error("no segment is of the category {category}; there are: {known}")]
    NoSuchCategory {
        /// As asked for.
        category: String,
        /// Those that there are.
        known: String,
    },
    /// No request has the attribute asked for.
    #[error(
        "no request has the attribute {attribute}; `{}` lists those that requests have",
        command_on("predict", Path::new(data))
    )]
    NoSuchAttribute {
        /// Where.
        data: String,
        /// As asked for.
        attribute: String,
    },
    /// No request has any.
    #[error("no request has attributes; give some to its spans, such as its user: span!(\"page\", user)")]
    NoAttributes,
    /// There are traces, but none may be used.
    #[error(
        "none of the {traces} traces is complete ({causes}); --include-incomplete uses them all the same"
    )]
    NoneComplete {
        /// How many there are.
        traces: u64,
        /// Why not, and how often.
        causes: String,
    },
    /// A folder of the store cannot be used.
    #[error("cannot use the store: {0}")]
    Folder(std::io::Error),
}

/// Which traces to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Also those of which a part is known to be missing.
    pub include_incomplete: bool,
    /// Take all timestamps as recorded, also where round trips prove that clocks differ.
    pub trust_clocks: bool,
    /// Only those that began in this range.
    pub range: TimeRange,
}

/// What a query noticed besides its result.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Traces read.
    pub traces: u64,
    /// Those that are complete.
    pub complete_traces: u64,
    /// Incomplete traces that lack their request's beginning: parts of requests older than their burst.
    pub fragments: u64,
    /// Incomplete traces by cause; a trace may have several.
    pub incomplete: BTreeMap<&'static str, u64>,
    /// Flaws in used traces by cause.
    pub diagnostics: BTreeMap<&'static str, u64>,
    /// Segments left out because they were asked to be.
    pub excluded_segments: u64,
    /// Records left out.
    pub left_out: LeftOut,
    /// Bytes in the log of a collector that runs: taken from services, and not in the store yet.
    pub unflushed_bytes: u64,
    /// Files that could not be read in full.
    pub damage: Vec<Damage>,
}

impl Notes {
    /// Adds what was noticed in another part.
    pub(super) fn merge(&mut self, other: Self) {
        self.traces += other.traces;
        self.complete_traces += other.complete_traces;
        self.fragments += other.fragments;
        self.excluded_segments += other.excluded_segments;
        for (cause, count) in other.incomplete {
            *self.incomplete.entry(cause).or_default() += count;
        }
        for (cause, count) in other.diagnostics {
            *self.diagnostics.entry(cause).or_default() += count;
        }
        self.left_out.merge(other.left_out);
        self.add_damage(other.damage);
    }

    /// Adds damage; what several parts say of one file is said once.
    pub(super) fn add_damage(&mut self, damage: Vec<Damage>) {
        for flaw in damage {
            match self.damage.iter_mut().find(|known| known.file == flaw.file) {
                Some(known) => known.rows_read += flaw.rows_read,
                None => self.damage.push(flaw),
            }
        }
    }

    /// The causes of incompleteness as a text.
    #[must_use]
    pub fn incomplete_text(&self) -> String {
        let causes: Vec<String> =
            self.incomplete.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        causes.join(", ")
    }
}

/// A data folder to read from.
#[derive(Debug)]
pub struct Source {
    data: DataDir,
    store: Store,
    losses: Vec<ProcessLoss>,
    inner: InnerOperations,
    batch_damage: Vec<Damage>,
    parts: PartsWanted,
    unflushed_bytes: u64,
}

impl Source {
    /// Opens a data folder. When no collector is using it, what a killed one left in the log is put into the store
    /// first.
    ///
    /// # Errors
    /// When the folder is missing, unreadable, or holds nothing.
    pub fn open(root: &Path, runtime: Handle) -> Result<Self, QueryError> {
        let source = Self::open_any(root, runtime)?;
        if source.store.list(Table::Spans)?.is_empty() && source.store.list(Table::Events)?.is_empty() {
            let data = root.display().to_string();
            return Err(QueryError::Empty { data, unflushed_bytes: source.unflushed_bytes });
        }
        Ok(source)
    }

    /// As [`open`](Self::open), also where there are no traces.
    ///
    /// # Errors
    /// When the folder is missing or unreadable.
    pub fn open_any(root: &Path, runtime: Handle) -> Result<Self, QueryError> {
        let data = DataDir::existing(root)?;
        let store = Store::local(root, runtime)?;
        let unflushed_bytes = put_log_into_store(&data, &store);
        let mut batches = read_batches(&store)?;
        let losses = losses(batches.by_ref());
        let batch_damage = damage_of(&batches);
        let parts = PartsWanted::default();
        let inner = inner_operations(&store, parts.threads())?;
        Ok(Self { data, store, losses, inner, batch_damage, parts, unflushed_bytes })
    }

    /// The same, read in other parts. Results do not depend on it.
    #[must_use]
    pub fn with_parts(self, parts: PartsWanted) -> Self {
        Self { parts, ..self }
    }

    pub(super) fn parts_wanted(&self) -> PartsWanted {
        self.parts
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// What there is to say of the folder, before any trace is read.
    pub(super) fn first_notes(&self) -> Notes {
        let mut notes = Notes { unflushed_bytes: self.unflushed_bytes, ..Notes::default() };
        notes.add_damage(self.batch_damage.clone());
        notes
    }

    /// The files of a table: path in the store and size in bytes.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn files(&self, table: Table) -> Result<Vec<(object_store::path::Path, u64)>, QueryError> {
        Ok(self.store.list(table)?)
    }

    /// The folder, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.data.root().display().to_string()
    }

    /// What was recorded; nothing of imports.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn recorded(&self) -> Result<Recorded, QueryError> {
        Ok(Recorded::of(read_batches(&self.store)?))
    }

    /// When processes lost records.
    #[must_use]
    pub fn losses(&self) -> &[ProcessLoss] {
        &self.losses
    }

    /// Hands each selected trace, in order of their ids, to `visit`, which may stop by `false`. Of attributes, those of `keys` are read, as
    /// [`TraceReader::open_with`] says.
    ///
    /// # Errors
    /// When the store cannot be listed. Damaged files are in the notes.
    pub fn for_each_trace(
        &self,
        what: &'static str,
        selection: Selection,
        keys: &AttributeKeys,
        mut visit: impl FnMut(&mut TraceRecords, &mut Notes) -> bool,
    ) -> Result<Notes, QueryError> {
        let mut notes = self.first_notes();
        let files = TraceFiles::open_between(&self.store, keys, selection.range.records_ns())?;
        let mut reader = TraceReader::of(files);
        let mut progress = Progress::new(what, "traces", None);
        let mut records = TraceRecords::default();
        while reader.next_into(&mut records) {
            progress.add(1);
            if self.takes(&records, selection, &mut notes) && !visit(&mut records, &mut notes) {
                break;
            }
        }
        notes.left_out = reader.left_out();
        notes.add_damage(reader.damage());
        Ok(notes)
    }

    /// How many traces are selected. Reads them all.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn count_traces(&self, selection: Selection) -> Result<u64, QueryError> {
        let parts = self.parts(selection, &AttributeKeys::none())?;
        let counts = vec![0; parts.count()];
        let (counts, _) =
            self.fold("counting", selection, &parts, counts, |count: &mut u64, _, _| *count += 1);
        Ok(counts.iter().sum())
    }

    /// Counts a trace by what is wrong with it, and says whether it is selected. One outside the range is not counted.
    pub(super) fn takes(&self, records: &TraceRecords, selection: Selection, notes: &mut Notes) -> bool {
        if !selection.range.holds(records) {
            return false;
        }
        notes.traces += 1;
        let completeness = completeness(records, &self.losses);
        let mut causes: Vec<_> = completeness.reasons.iter().map(|reason| reason.cause()).collect();
        if self.inner.is_fragment(records) {
            causes.push(INNER_ROOT);
        }
        causes.sort_unstable();
        causes.dedup();
        let is_complete = causes.is_empty();
        notes.complete_traces += u64::from(is_complete);
        notes.fragments += u64::from(causes.iter().any(|cause| [NO_ROOT, INNER_ROOT].contains(cause)));
        causes.into_iter().for_each(|cause| *notes.incomplete.entry(cause).or_default() += 1);
        is_complete || selection.include_incomplete
    }
}

/// The cause of a trace without its root.
const NO_ROOT: &str = "no_root";

/// What to do about an empty folder.
fn to_fill(data: &Path, unflushed_bytes: u64) -> String {
    if unflushed_bytes > 0 {
        return format!(
            "the collector that runs has taken {unflushed_bytes} bytes, which will be in the store within its \
             --flush-interval (10 s by default): ask again then; "
        );
    }
    format!(
        "run `{}` and let services send to it (what it has taken is in the store within its --flush-interval, 10 s by \
         default), or `{}`; ",
        command_on("collect", data),
        command_on("import FILE", data)
    )
}

/// Best effort: a query of what is in the store is better than none. Bytes that could not be put there because a running
/// collector has them in hand.
fn put_log_into_store(data: &DataDir, store: &Store) -> u64 {
    let segments = list_segments(&data.wal()).unwrap_or_default();
    if segments.is_empty() {
        return 0;
    }
    // Held by a collector: it will do so itself within seconds.
    let Ok(_lock) = data.lock() else {
        let bytes_of =
            |number: u64| std::fs::metadata(segment_path(&data.wal(), number)).map_or(0, |file| file.len());
        return segments.into_iter().map(|number| bytes_of(number).saturating_sub(HEADER_BYTES as u64)).sum();
    };
    let recovered = Flusher::load(data, store.clone(), Arc::new(Counters::default()))
        .and_then(|mut flusher| flusher.recover());
    match recovered {
        Ok(segments) => tracing::info!("put {segments} WAL segments of an earlier run into the store"),
        Err(error) => tracing::warn!("what is in the log is not part of the result: {error}"),
    }
    0
}
