//! Memory of readings of the store: open files, one large trace at a time, and the results computed
//! from the traces.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::query_memory::{QueryLack, QueryMemory, QueryShare};

use super::query_error::QueryError;
use stroboscope_analysis::record::TraceId;

/// Maximum size of a trace that fits into the base memory of each reading thread, in bytes.
const SMALL_TRACE_BYTES: usize = 4 << 20;

/// Memory of a source: its share of the memory that all queries have together.
#[derive(Debug)]
pub(super) struct SourceMemory {
    pub(super) all: QueryMemory,
    held: Mutex<HeldMemory>,
}

#[derive(Debug)]
struct HeldMemory {
    share: QueryShare,
    /// Bytes reserved for the model.
    model: usize,
}

impl SourceMemory {
    pub(super) fn of(all: &QueryMemory) -> Self {
        let share = all.share();
        Self {
            all: all.clone(),
            held: Mutex::new(HeldMemory { share, model: 0 }),
        }
    }

    /// Returns the maximum size of a trace in a reading of many traces, in bytes.
    pub(super) fn trace_max(&self) -> usize {
        self.all.query_max() / 2
    }

    /// Returns the memory in bytes by which an inference limits the segments of one trace.
    pub(super) fn model_max(&self) -> usize {
        self.all.query_max() / 4
    }

    /// Returns the maximum memory for the open files of a reading of selected traces, in bytes.
    pub(super) fn files_max(&self) -> usize {
        self.all.query_max() / 4
    }

    /// Returns the number of threads for which [`files_max`](Self::files_max) suffices, at most
    /// `wanted` but at least one. Each thread needs `reading_bytes` for its open files.
    pub(super) fn threads(&self, wanted: usize, reading_bytes: usize) -> usize {
        let of_each = reading_bytes.saturating_add(SMALL_TRACE_BYTES);
        wanted.min(self.files_max() / of_each).max(1)
    }

    /// Reserves memory until the result is dropped. Fails if there is too little.
    pub(super) fn take(&self, bytes: usize) -> Result<MemoryReservation<'_>, QueryLack> {
        let mut taken = MemoryReservation {
            memory: self,
            bytes: 0,
        };
        taken.resize(bytes)?;
        Ok(taken)
    }

    /// Releases the memory reserved for the model, and reserves `bytes` for it.
    pub(super) fn keep_model(&self, bytes: usize) -> Result<(), QueryLack> {
        let mut held = self.lock();
        let before = std::mem::take(&mut held.model);
        held.share.give_back(before);
        held.share.take(bytes)?;
        held.model = bytes;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HeldMemory> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reservation of a source's memory, which is released when dropped.
#[derive(Debug)]
pub(super) struct MemoryReservation<'a> {
    memory: &'a SourceMemory,
    bytes: usize,
}

impl MemoryReservation<'_> {
    fn resize(&mut self, bytes: usize) -> Result<(), QueryLack> {
        let mut held = self.memory.lock();
        match bytes.checked_sub(self.bytes) {
            Some(more) => held.share.take(more)?,
            None => held.share.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryReservation<'_> {
    fn drop(&mut self) {
        self.memory.lock().share.give_back(self.bytes);
    }
}

/// Memory of a reading by one or more threads.
#[derive(Debug)]
pub(super) struct ReadingMemory<'a> {
    memory: &'a SourceMemory,
    /// Lock of the one thread that may hold a large trace.
    lane: Mutex<()>,
    lack: OnceLock<QueryLack>,
    _base: MemoryReservation<'a>,
}

impl<'a> ReadingMemory<'a> {
    /// Reserves the base memory of `threads` threads, each of which needs `reading_bytes` for its
    /// open files.
    ///
    /// # Errors
    /// Fails if there is too little memory.
    pub(super) fn of(
        memory: &'a SourceMemory,
        threads: usize,
        reading_bytes: usize,
    ) -> Result<Self, QueryError> {
        let base = threads.saturating_mul(reading_bytes.saturating_add(SMALL_TRACE_BYTES));
        Ok(Self {
            memory,
            lane: Mutex::new(()),
            lack: OnceLock::new(),
            _base: memory.take(base).map_err(QueryError::lack_of_requests)?,
        })
    }

    pub(super) fn of_thread(&self) -> ThreadMemory<'_> {
        ThreadMemory {
            reading: self,
            trace: None,
            worker: None,
        }
    }

    /// Reports whether memory ran out, so that all threads should stop.
    pub(super) fn is_wanting(&self) -> bool {
        self.lack.get().is_some()
    }

    /// Ends the reading. Fails if memory ran out.
    pub(super) fn end(self) -> Result<(), QueryError> {
        match self.lack.into_inner() {
            None => Ok(()),
            Some(lack) => Err(QueryError::lack_of_requests(lack)),
        }
    }
}

/// Memory for one trace that is read to find a request by its id.
#[derive(Debug)]
pub(super) struct Room {
    share: QueryShare,
    lack: Option<QueryLack>,
}

impl Room {
    pub(super) fn new(share: QueryShare) -> Self {
        Self { share, lack: None }
    }

    /// Reserves memory for a trace that has grown to `bytes`. Returns false if there is too little.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.share.used());
        self.lack = self.share.take(more).err();
        self.lack.is_none()
    }

    /// Returns the number of the trace's spans and its memory. `read` is `Err` with the number of
    /// spans if the trace was not read in full.
    ///
    /// # Errors
    /// Fails if the trace was not read in full for lack of memory.
    pub(super) fn check(
        self,
        id: u128,
        read: Result<u64, u64>,
    ) -> Result<(u64, QueryShare), QueryError> {
        let trace = TraceId(id).to_string();
        match (read, self.lack) {
            (Err(spans), Some(lack)) => Err(QueryError::LargeTrace { trace, spans, lack }),
            (Ok(spans) | Err(spans), _) => Ok((spans, self.share)),
        }
    }
}

/// Memory of one reading thread: for a large trace, and for the results of its worker.
#[derive(Debug)]
pub(super) struct ThreadMemory<'a> {
    reading: &'a ReadingMemory<'a>,
    /// Memory of a large trace, with the lock on the lane. Only one thread has a large trace at a
    /// time. That thread does not wait for other threads' traces, which rules out deadlocks.
    trace: Option<(MutexGuard<'a, ()>, MemoryReservation<'a>)>,
    worker: Option<MemoryReservation<'a>>,
}

impl ThreadMemory<'_> {
    /// Reserves memory for a trace of `bytes` if it is large. Returns false if it is too large, or
    /// if memory ran out. Waits while another thread holds a large trace.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        let reading = self.reading;
        if bytes <= SMALL_TRACE_BYTES {
            return true;
        }
        if bytes > reading.memory.trace_max() || reading.is_wanting() {
            self.trace = None;
            return false;
        }
        let grown = match &mut self.trace {
            Some((_, taken)) => taken.resize(bytes),
            None => {
                let lane = reading.lane.lock().unwrap_or_else(PoisonError::into_inner);
                let taken = reading.memory.take(bytes);
                taken.map(|taken| self.trace = Some((lane, taken)))
            }
        };
        self.noted(grown)
    }

    /// Drops the records of a large trace and releases their memory. Does nothing for a small
    /// trace.
    pub(super) fn end_trace(&mut self, records: &mut TraceRecords) {
        if self.trace.is_some() {
            *records = TraceRecords::default();
            self.trace = None;
        }
    }

    /// Adjusts the reservation for the worker's results to their present size in bytes. Returns
    /// false if there is too little memory.
    pub(super) fn hold(&mut self, bytes: Result<usize, QueryLack>) -> bool {
        let memory = self.reading.memory;
        let held = bytes.and_then(|bytes| match &mut self.worker {
            Some(taken) => taken.resize(bytes),
            None if bytes == 0 => Ok(()),
            None => memory.take(bytes).map(|taken| self.worker = Some(taken)),
        });
        self.noted(held)
    }

    fn noted(&mut self, had: Result<(), QueryLack>) -> bool {
        if let Err(lack) = had {
            self.trace = None;
            let _ = self.reading.lack.set(lack);
            return false;
        }
        true
    }
}
