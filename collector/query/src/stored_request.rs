//! Finds requests in the store by their ids.

use std::ops::RangeInclusive;

use stroboscope_analysis::connection::{connection_ids, request_at};
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::{AttributeKeys, Damage, IdRange, LeftOut, TraceFiles, TraceReader};

use super::notes::Notes;
use super::query_error::QueryError;
use super::reading_memory::{ReadingMemory, Room};
use super::source::{Selection, Source};
use super::span_links::{LINKS, LinkProbe};
use super::time_range::TimeRange;

/// Request to find, and the part of it to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestWanted<'a> {
    pub(super) id: u128,
    pub(super) keys: &'a AttributeKeys,
    /// Maximum number of spans to read if the id is that of a trace. The trace of a connection is
    /// read in full to find a request inside it.
    pub(super) spans_max: usize,
    /// Bytes of memory to reserve per byte of records.
    pub(super) reserved: usize,
}

/// Request as it was recorded, complete or not.
#[derive(Debug)]
pub(super) struct StoredRequest {
    pub(super) records: TraceRecords,
    /// Id of the trace that contains the request. The kernel knows its low half.
    pub(super) trace: u128,
    /// Number of spans of the request in the store.
    pub(super) spans: u64,
    /// Memory that the records hold.
    pub(super) share: QueryShare,
}

/// Result of a search for a request, with damaged files and the records that were left out.
#[derive(Debug, Default)]
pub(super) struct RequestFound {
    pub(super) request: Option<StoredRequest>,
    pub(super) damage: Vec<Damage>,
    pub(super) left_out: LeftOut,
}

impl Source {
    /// Returns the request with this id; `None` if there is none or it is not selected. The id is
    /// that of a trace, or of a request inside a connection. Reads only files that may hold it.
    ///
    /// # Errors
    /// Fails if the store cannot be listed, if temporary files cannot be written, or if there is
    /// too little memory.
    pub fn trace(
        &self,
        id: u128,
        selection: Selection,
        keys: &AttributeKeys,
    ) -> Result<(Option<TraceRecords>, Notes), QueryError> {
        let times_ns = selection.range.records_ns();
        let wanted = RequestWanted {
            id,
            keys: &self.keys(keys),
            spans_max: usize::MAX,
            reserved: 1,
        };
        let found = self.find_request(wanted, times_ns)?;
        let mut notes = self.first_notes();
        notes.left_out = found.left_out;
        notes.add_damage(found.damage);
        let found = found.request.map(|found| found.records);
        let found = found.filter(|records| self.takes(records, selection, &mut notes));
        Ok((found, notes))
    }

    /// Passes the requests of these traces to `visit`, complete or not, whatever the root
    /// operation and the filter of the source. Skips traces that are too large for the memory.
    /// Returns the damage found and the number of skipped traces.
    ///
    /// # Errors
    /// Fails if the store cannot be listed, if temporary files cannot be written, or if there is
    /// too little memory.
    pub(super) fn for_each_of(
        &self,
        mut traces: Vec<u128>,
        keys: &AttributeKeys,
        mut visit: impl FnMut(&mut TraceRecords),
    ) -> Result<Notes, QueryError> {
        traces.sort_unstable();
        let ends = traces.first().zip(traces.last());
        let range = ends.map_or(IdRange::ALL, |(first, last)| {
            IdRange::from_to(*first, *last)
        });
        let files = TraceFiles::open_of(self.store(), keys, i64::MIN..=i64::MAX, &range)?;
        let files = files.only(traces);
        let memory = ReadingMemory::of(&self.memory, 1, files.reading_bytes())?;
        let mut room = memory.of_thread();
        let mut reader = TraceReader::of(&files);
        let (mut records, mut notes) = (TraceRecords::default(), Notes::default());
        while !memory.is_wanting() && reader.next_within(&mut records, |bytes| room.has_room(bytes))
        {
            self.for_each_request(&mut records, &mut notes, |request, _| {
                visit(request);
                true
            });
            room.end_trace(&mut records);
        }
        drop(room);
        memory.end()?;
        let large = reader.left_out().large_traces;
        Ok(Notes::of_unread(reader.damage(), large))
    }

    /// Returns the ids of other traces whose spans may link to a request, in order, and the damage
    /// found.
    ///
    /// # Errors
    /// Fails if the store cannot be listed, or if temporary files cannot be written.
    pub(super) fn linking_traces(
        &self,
        records: &TraceRecords,
    ) -> Result<(Vec<u128>, Vec<Damage>), QueryError> {
        let own = records.stored_id();
        let range = TimeRange {
            since_ns: records.spans.iter().map(|span| span.start_ns).min(),
            until_ns: None,
        };
        let keys = AttributeKeys::of([LINKS]);
        let files = TraceFiles::open_between(self.store(), &keys, range.records_ns())?;
        let probed = files.probe(&LinkProbe::to(own), self.parts_wanted.threads());
        let found = probed.found.into_keys();
        let mut traces: Vec<u128> = found.filter(|id| *id != own.0).collect();
        traces.sort_unstable();
        Ok((traces, probed.damage))
    }

    /// Finds a trace by its id, or a request inside a connection by its own id. Reads only files
    /// that may hold it and have rows that begin in `times_ns`.
    ///
    /// # Errors
    /// Fails if the store cannot be listed, if temporary files cannot be written, or if there is
    /// too little memory.
    pub(super) fn find_request(
        &self,
        wanted: RequestWanted<'_>,
        times_ns: RangeInclusive<i64>,
    ) -> Result<RequestFound, QueryError> {
        let id = TraceId(wanted.id);
        let mut found = RequestFound::default();
        self.find_in((id, id), wanted, times_ns.clone(), &mut found)?;
        // Ids of requests inside connections are longer than 64 bits.
        if found.request.is_none() && id.0 >> 64 != 0 {
            let (short, long) = connection_ids(id);
            self.find_in((short, short), wanted, times_ns.clone(), &mut found)?;
            if found.request.is_none() {
                self.find_in(long, wanted, times_ns, &mut found)?;
            }
        }
        Ok(found)
    }

    fn find_in(
        &self,
        (from, to): (TraceId, TraceId),
        wanted: RequestWanted<'_>,
        times_ns: RangeInclusive<i64>,
        found: &mut RequestFound,
    ) -> Result<(), QueryError> {
        let range = IdRange::from_to(from.0, to.0);
        let files = TraceFiles::open_of(self.store(), wanted.keys, times_ns, &range)?;
        let mut reader = files.read(&range, 1);
        while found.request.is_none()
            && let Some(id) = reader.next_id()
        {
            let is_it = id == wanted.id;
            let spans_max = if is_it { wanted.spans_max } else { usize::MAX };
            let (mut records, mut room) = (TraceRecords::default(), Room::new(self.share()));
            let grow = |bytes| room.grow(wanted.reserved * bytes);
            let read = reader.first_of(id, spans_max, &mut records, grow);
            let (spans, share) = room.check(id, read)?;
            let found_here = match is_it {
                true => Some((spans, records)),
                false => request_at(&mut records, wanted.id as u64)
                    .map(|records| (records.spans.len() as u64, records)),
            };
            found.request = found_here.map(|(spans, records)| StoredRequest {
                spans,
                records,
                trace: id,
                share,
            });
        }
        found.left_out.merge(reader.left_out());
        found.damage.extend(files.damage().iter().cloned());
        found.damage.extend(reader.damage());
        Ok(())
    }
}
