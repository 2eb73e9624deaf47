//! Data directory that queries read, and the selection of its traces.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stroboscope_analysis::completeness::{Incomplete, ProcessLoss, completeness};
use stroboscope_analysis::connection::Connections;
use stroboscope_analysis::inner_operations::INNER_ROOT;
use stroboscope_analysis::record::TraceRecords;
use tokio::runtime::Handle;

use super::cache::Cache;
use super::circumstances::ProcessorUse;
use super::filter::{Choice, Filter};
use super::known_operations::KnownOperations;
use super::log_recovery::put_log_into_store;
use super::losses::is_unseen;
use super::notes::Notes;
use super::parts_wanted::PartsWanted;
use super::query_error::QueryError;
use super::reading_memory::{ReadingMemory, SourceMemory};
use super::time_range::TimeRange;
use super::{KernelClocks, RecordedSummary, losses};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::progress::{Observer, silent};
use stroboscope_store::query_memory::{QueryMemory, QueryShare};
use stroboscope_store::tables::{
    AttributeKeys, Damage, IdRange, Store, StoreTable, TraceFiles, damage_of, read_batches,
};

/// Selection of traces by completeness and time, and the treatment of their clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// True to include traces that are known to lack a part.
    pub include_incomplete: bool,
    /// True to use all timestamps as recorded, even if round trips prove that clocks differ.
    pub trust_clocks: bool,
    /// Time range in which the traces must begin.
    pub range: TimeRange,
}

/// Open data directory, with the settings of the queries that read it.
#[derive(Debug)]
pub struct Source {
    data: DataDir,
    store: Store,
    losses: Vec<ProcessLoss>,
    kernel_clocks: KernelClocks,
    /// Operations as learned from the store. `connections` also takes `requests` into account.
    operations: KnownOperations,
    /// Operations declared to be requests, in the data directory or by the query.
    pub(super) requests: Vec<String>,
    /// Learned connections, unless `none` is declared, and the operations declared to be requests.
    pub(super) connections: Connections,
    batch_damage: Vec<Damage>,
    pub(super) parts_wanted: PartsWanted,
    root: Option<String>,
    filter: Option<Filter>,
    unflushed_bytes: u64,
    pub(super) readings: AtomicU64,
    cache: Option<Cache>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) memory: SourceMemory,
}

impl Source {
    /// Opens a data directory. First tries to convert the log that a killed collector left behind,
    /// unless a collector is running on the directory.
    ///
    /// # Errors
    /// Fails if the directory is missing, unreadable, or has no traces.
    pub fn open(root: &Path, runtime: Handle) -> Result<Self, QueryError> {
        Self::open_with(root, runtime, false)?.or_empty(root)
    }

    /// Opens a data directory like [`open`](Self::open), with a cache in the directory for results
    /// about the traces.
    ///
    /// # Errors
    /// Fails under the same conditions as [`open`](Self::open).
    pub fn open_cached(root: &Path, runtime: Handle) -> Result<Self, QueryError> {
        Self::open_with(root, runtime, true)?.or_empty(root)
    }

    fn or_empty(self, root: &Path) -> Result<Self, QueryError> {
        if self.store.list(StoreTable::Spans)?.is_empty()
            && self.store.list(StoreTable::Events)?.is_empty()
        {
            return Err(QueryError::Empty {
                data: root.display().to_string(),
                unflushed_bytes: self.unflushed_bytes,
            });
        }
        Ok(self)
    }

    /// Opens a data directory like [`open`](Self::open), even if it has no traces.
    ///
    /// # Errors
    /// Fails if the directory is missing or unreadable.
    pub fn open_any(root: &Path, runtime: Handle) -> Result<Self, QueryError> {
        Self::open_with(root, runtime, false)
    }

    fn open_with(root: &Path, runtime: Handle, is_cached: bool) -> Result<Self, QueryError> {
        let data = DataDir::existing(root)?;
        let store = Store::local(root, runtime)?;
        let unflushed_bytes = put_log_into_store(&data, &store);
        let mut batches = read_batches(&store)?;
        let mut kernel_clocks = KernelClocks::default();
        let losses = losses(batches.by_ref().inspect(|batch| kernel_clocks.note(batch)));
        let batch_damage = damage_of(&batches);
        let parts_wanted = PartsWanted::default();
        let cache = is_cached.then(|| Cache::of(&data, &store));
        let cache = cache.transpose()?;
        let operations = KnownOperations::of(&store, cache.as_ref(), parts_wanted.threads())?;
        let requests = data.requests()?;
        Ok(Self {
            data,
            store,
            losses,
            kernel_clocks,
            connections: operations.connections.with_requests(&requests),
            operations,
            requests,
            batch_damage,
            parts_wanted,
            root: None,
            filter: None,
            unflushed_bytes,
            readings: AtomicU64::new(0),
            cache,
            observer: silent(),
            memory: SourceMemory::of(&QueryMemory::unbounded()),
        })
    }

    /// Sets the number of parts that are read in parallel. Only the intermediate points of a
    /// convergence series, and results that a limit cuts, may depend on it.
    #[must_use]
    pub fn with_parts(self, parts_wanted: PartsWanted) -> Self {
        Self {
            parts_wanted,
            ..self
        }
    }

    /// Sets an observer of the progress of readings.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Bounds the memory of the source: its readings and its model take their memory from `memory`.
    #[must_use]
    pub fn with_memory(self, memory: &QueryMemory) -> Self {
        let memory = SourceMemory::of(memory);
        Self { memory, ..self }
    }

    /// Returns a new share of the memory of all queries, for a query's needs beyond its readings.
    #[must_use]
    pub fn share(&self) -> QueryShare {
        self.memory.all.share()
    }

    /// Restricts the source to requests of this root operation, see
    /// [`root`](stroboscope_analysis::root).
    #[must_use]
    pub fn with_root(self, root: Option<String>) -> Self {
        Self { root, ..self }
    }

    /// Replaces the [operations declared to be requests](Connections::with_requests). If
    /// `operations` is empty, the present ones remain.
    #[must_use]
    pub fn with_requests(self, operations: &[String]) -> Self {
        if operations.is_empty() {
            return self;
        }
        Self {
            connections: self.operations.connections.with_requests(operations),
            requests: operations.to_vec(),
            ..self
        }
    }

    /// Restricts the source to requests that certainly satisfy a formula.
    #[must_use]
    pub fn with_filter(self, filter: Option<Filter>) -> Self {
        Self { filter, ..self }
    }

    /// Returns the root operation, the filter and the declared operations as text, for cache keys.
    pub(super) fn chosen(&self) -> String {
        format!("{:?} {:?} {:?}", self.root, self.filter(), self.requests)
    }

    /// Returns the text of the filter's formula; empty without a filter. Cached results apply only
    /// to the same formula.
    pub(super) fn filter(&self) -> &str {
        self.filter.as_ref().map_or("", Filter::text)
    }

    /// Returns the attributes to read: the requested ones, those that the filter reads, and the
    /// weights of traces.
    pub(super) fn keys(&self, asked: &AttributeKeys) -> AttributeKeys {
        let keys = match &self.filter {
            Some(filter) => asked.and(filter.keys()),
            None => asked.clone(),
        };
        keys.with_weights()
    }

    /// Returns the root operation whose requests are selected; `None` for all.
    pub(super) fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the cache; `None` if the source was opened without one.
    pub(super) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// Returns the notes about the data directory itself, to which readings add theirs.
    pub(super) fn first_notes(&self) -> Notes {
        let mut notes = Notes {
            unflushed_bytes: self.unflushed_bytes,
            unsynchronised: self.kernel_clocks.unsynchronised_among_several(),
            ..Notes::default()
        };
        notes.add_damage(self.batch_damage.clone());
        notes
    }

    /// Returns the number of readings of the selected traces by [`fold`](Self::fold) and
    /// [`fold_to`](Self::fold_to) so far.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }

    /// Returns the path of the data directory as text.
    #[must_use]
    pub fn name(&self) -> String {
        self.data.root().display().to_string()
    }

    /// Returns a summary of all batches in the store. Imported traces have no batches.
    ///
    /// # Errors
    /// Fails if the store cannot be listed.
    pub fn recorded(&self) -> Result<RecordedSummary, QueryError> {
        Ok(RecordedSummary::of(read_batches(&self.store)?))
    }

    /// Returns the processor use of the recorded processes, by host and second.
    ///
    /// # Errors
    /// Fails if the store cannot be listed.
    pub fn processor_use(&self) -> Result<ProcessorUse, QueryError> {
        Ok(ProcessorUse::of(read_batches(&self.store)?))
    }

    /// Returns the intervals in which at least one process recorded, in ns since the Unix epoch, in
    /// order. Imported traces do not count.
    ///
    /// # Errors
    /// Fails if the store cannot be listed.
    pub fn bursts(&self) -> Result<Vec<(i64, i64)>, QueryError> {
        Ok(super::recorded::windows(read_batches(&self.store)?))
    }

    /// Returns the clock states that the hosts' kernels reported.
    #[must_use]
    pub fn kernel_clocks(&self) -> &KernelClocks {
        &self.kernel_clocks
    }

    /// Returns the intervals in which processes lost records.
    #[must_use]
    pub fn losses(&self) -> &[ProcessLoss] {
        &self.losses
    }

    /// Passes the selected requests to `visit` in order of the ids of their traces, until `visit`
    /// returns `false`. Reads the attributes of `keys`, as described at
    /// [`TraceReader::open_with`](stroboscope_store::tables::TraceReader::open_with).
    ///
    /// # Errors
    /// Fails if the store cannot be listed, if temporary files cannot be written, or if there is
    /// too little memory. Damaged files are in the notes.
    pub fn for_each_trace(
        &self,
        what: &'static str,
        selection: Selection,
        keys: &AttributeKeys,
        visit: impl FnMut(&mut TraceRecords, &mut Notes) -> bool,
    ) -> Result<Notes, QueryError> {
        self.for_each_trace_of(&IdRange::ALL, what, selection, keys, visit)
    }

    /// Passes the selected traces with ids in `ids` to `visit`, like
    /// [`for_each_trace`](Self::for_each_trace).
    pub(super) fn for_each_trace_of(
        &self,
        ids: &IdRange,
        what: &'static str,
        selection: Selection,
        keys: &AttributeKeys,
        mut visit: impl FnMut(&mut TraceRecords, &mut Notes) -> bool,
    ) -> Result<Notes, QueryError> {
        let mut notes = self.first_notes();
        let keys = &self.keys(keys);
        let (times_ns, files_max) = (selection.range.records_ns(), self.memory.files_max());
        let files = TraceFiles::open_within(&self.store, keys, times_ns, ids, files_max)?;
        let memory = ReadingMemory::of(&self.memory, 1, files.reading_bytes())?;
        let mut room = memory.of_thread();
        let mut reader = files.read(ids, 1);
        let mut progress = self.observer.begin(what, "traces", None);
        let mut records = TraceRecords::default();
        while !memory.is_wanting() && reader.next_within(&mut records, |bytes| room.has_room(bytes))
        {
            progress.add(1);
            let goes_on = self.for_each_request(&mut records, &mut notes, |records, notes| {
                !self.takes(records, selection, notes) || visit(records, notes)
            });
            if !goes_on {
                break;
            }
            room.end_trace(&mut records);
        }
        drop(room);
        memory.end()?;
        notes.left_out = reader.left_out();
        notes.add_damage(files.damage().to_vec());
        notes.add_damage(reader.damage());
        Ok(notes)
    }

    /// Passes the requests of a trace to `visit`, until `visit` returns `false`. The only request
    /// is the trace itself, unless it contains a [connection](stroboscope_analysis::connection),
    /// requests of one, or declared requests. Returns false if `visit` stopped it.
    pub fn for_each_request(
        &self,
        records: &mut TraceRecords,
        notes: &mut Notes,
        mut visit: impl FnMut(&mut TraceRecords, &mut Notes) -> bool,
    ) -> bool {
        let Some(division) = self.connections.divide(records) else {
            return visit(records, notes);
        };
        for connection in division.connections {
            *notes.connections.entry(connection).or_default() += 1;
        }
        let mut requests = division.requests.into_iter();
        requests.all(|mut request| visit(&mut request, notes))
    }

    /// Reports whether a trace is selected, and counts it and its flaws in `notes`. Traces outside
    /// the range, or refused by the filter, are not counted. A trace of another root operation is
    /// counted only under its root operation.
    pub fn takes(&self, records: &TraceRecords, selection: Selection, notes: &mut Notes) -> bool {
        self.choose(records, selection, notes) == Choice::Taken
    }

    /// Returns the distinct causes of a trace's incompleteness, sorted. Its records show `reasons`.
    pub(super) fn causes(
        &self,
        records: &TraceRecords,
        reasons: &[Incomplete],
    ) -> Vec<&'static str> {
        let reasons = reasons.iter().copied().chain(self.inner_root(records));
        let mut causes: Vec<_> = reasons.map(|reason| reason.cause()).collect();
        causes.sort_unstable();
        causes.dedup();
        causes
    }

    /// Returns the reason for which a trace counts as incomplete although its records show none.
    pub(super) fn inner_root(&self, records: &TraceRecords) -> Option<Incomplete> {
        let is_part = |root| !self.connections.is_request(root);
        let is_inner = self.operations.inner.is_fragment(records);
        (is_inner && records.root().is_none_or(is_part)).then_some(Incomplete::InnerRoot)
    }

    /// Decides about a trace, and counts it and its flaws in `notes` like [`takes`](Self::takes).
    pub(super) fn choose(
        &self,
        records: &TraceRecords,
        selection: Selection,
        notes: &mut Notes,
    ) -> Choice {
        if !selection.range.holds(records) {
            return Choice::Refused;
        }
        let root = records.root_name();
        let (has_caller, weight) = (records.has_caller(), records.weight());
        let is_of_root = self.root.as_ref().is_none_or(|wanted| *wanted == root);
        if !is_of_root {
            notes.roots.count(&root, has_caller, true, weight);
            return Choice::Refused;
        }
        let completeness = completeness(records, &self.losses);
        let reasons = completeness.reasons.iter();
        if let Some(filter) = &self.filter
            && !filter.holds(records, reasons.clone().any(is_unseen))
        {
            return Choice::Refused;
        }
        notes.traces += 1;
        let causes = self.causes(records, &completeness.reasons);
        let is_complete = causes.is_empty();
        notes.roots.count(&root, has_caller, is_complete, weight);
        notes.complete_traces += u64::from(is_complete);
        let is_fragment = |cause: &&str| [NO_ROOT, INNER_ROOT].contains(cause);
        notes.fragments += u64::from(causes.iter().any(is_fragment));
        causes
            .into_iter()
            .for_each(|cause| *notes.incomplete.entry(cause.into()).or_default() += 1);
        if !is_complete && !selection.include_incomplete {
            return Choice::LeftOut;
        }
        notes.sampling.observe(records);
        Choice::Taken
    }
}

/// Cause of incompleteness of a trace without its root.
const NO_ROOT: &str = "no_root";
