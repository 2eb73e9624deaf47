//! Requests found by their ids.

use std::ops::RangeInclusive;

use stroboscope_analysis::connection::{connection_ids, request_at};
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_store::memory::QueryShare;
use stroboscope_store::tables::{AttributeKeys, Damage, IdRange, LeftOut, TraceFiles};

use super::notes::Notes;
use super::query_error::QueryError;
use super::reading_memory::Room;
use super::source::{Selection, Source};

/// The request to find, and the part of it to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestWanted<'a> {
    pub(super) id: u128,
    pub(super) keys: &'a AttributeKeys,
    /// No more spans than these, of a trace that is no connection's.
    pub(super) spans_max: usize,
    /// Memory that is reserved for each byte of records.
    pub(super) reserved: usize,
}

/// A request as it was recorded, whole or not.
#[derive(Debug)]
pub(super) struct StoredRequest {
    pub(super) records: TraceRecords,
    /// The trace that it is a part of, by which the kernel knows it.
    pub(super) trace: u128,
    /// Spans of its trace in the store.
    pub(super) spans: u64,
    /// The memory that the records hold.
    pub(super) share: QueryShare,
}

/// Result of a search for a request, with the damage and the records that were left out.
#[derive(Debug, Default)]
pub(super) struct RequestFound {
    pub(super) request: Option<StoredRequest>,
    pub(super) damage: Vec<Damage>,
    pub(super) left_out: LeftOut,
}

impl Source {
    /// One request, if it is there and selected: a whole trace, also that of a connection, or a request of a connection. Only
    /// what may hold its id is read.
    ///
    /// # Errors
    /// When the store cannot be listed.
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

    /// Finds a trace, also a whole connection, or a request of a connection by its own id. Reads only what may hold it, of files
    /// with rows that begin at these times.
    ///
    /// # Errors
    /// When the store cannot be listed, or the memory does not suffice.
    pub(super) fn find_request(
        &self,
        wanted: RequestWanted<'_>,
        times_ns: RangeInclusive<i64>,
    ) -> Result<RequestFound, QueryError> {
        let id = TraceId(wanted.id);
        let mut found = RequestFound::default();
        self.find_in((id, id), wanted, times_ns.clone(), &mut found)?;
        // Ids of 64 bits are those of traces.
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
            let records = match is_it {
                true => Some(records),
                false => request_at(&mut records, wanted.id as u64),
            };
            found.request = records.map(|records| StoredRequest {
                spans: if is_it {
                    spans
                } else {
                    records.spans.len() as u64
                },
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
