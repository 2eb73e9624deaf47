//! Assembles traces that are still arriving.

use std::collections::{BTreeSet, HashMap, HashSet};

use stroboscope_analysis::record::{TraceId, TraceRecords};

use stroboscope_store::limits::RECORDS_PER_TRACE_MAX;
use stroboscope_store::tables::{EventAttacher, EventRead, LeftOut, sort_spans};

/// Default maximum of records in all open traces together.
pub const RECORDS_OPEN_MAX: usize = 1_000_000;
/// Minimum time for which observed traces are remembered, to recognise late records; shorter only
/// if there are too many.
const CLOSED_NS: i64 = 300 * 1_000_000_000;
/// Maximum observed traces in one generation.
const CLOSED_MAX: usize = 1 << 19;

/// Observed traces, in two generations. The older one is forgotten as a whole, so the set is
/// bounded at any arrival rate.
#[derive(Debug, Default)]
struct ClosedTraces {
    new: HashSet<u128>,
    old: HashSet<u128>,
    /// Time of the latest change of generations because of age, in ns since the Unix epoch.
    since_ns: i64,
}

impl ClosedTraces {
    fn contains(&self, trace_id: u128) -> bool {
        self.new.contains(&trace_id) || self.old.contains(&trace_id)
    }

    fn insert(&mut self, trace_id: u128) {
        if self.new.len() >= CLOSED_MAX {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(trace_id);
    }

    fn forget(&mut self, now_ns: i64) {
        if now_ns.saturating_sub(self.since_ns) > CLOSED_NS {
            self.old = std::mem::take(&mut self.new);
            self.since_ns = now_ns;
        }
    }
}

/// Records of one trace that have arrived so far.
#[derive(Debug, Default)]
struct Open {
    records: TraceRecords,
    events: Vec<EventRead>,
    /// Arrival of its latest record, in ns since the Unix epoch.
    last_ns: i64,
}

impl Open {
    fn len(&self) -> usize {
        self.records.spans.len() + self.events.len()
    }
}

/// Open traces: see the [module](super). The maps use the standard library's seeded hasher, as ids
/// come from the network.
#[derive(Debug)]
pub(super) struct Assembly {
    open: HashMap<u128, Open>,
    by_arrival: BTreeSet<(i64, u128)>,
    records: usize,
    records_max: usize,
    closed: ClosedTraces,
    attacher: EventAttacher,
    pub(super) left_out: LeftOut,
    /// Number of records that came after their trace was observed.
    pub(super) late_records: u64,
}

impl Assembly {
    pub(super) fn new(records_max: usize) -> Self {
        Self {
            open: HashMap::new(),
            by_arrival: BTreeSet::new(),
            records: 0,
            records_max,
            closed: ClosedTraces::default(),
            attacher: EventAttacher::default(),
            left_out: LeftOut::default(),
            late_records: 0,
        }
    }

    /// Returns the numbers of open traces and of their records.
    pub(super) fn open(&self) -> (usize, usize) {
        (self.open.len(), self.records)
    }

    /// Adds one record that arrives at `now_ns`: calls `put` with the records and events of its
    /// trace, unless the record is late, exceeds a limit, or belongs to no request.
    pub(super) fn add(
        &mut self,
        trace_id: u128,
        now_ns: i64,
        put: impl FnOnce(&mut TraceRecords, &mut Vec<EventRead>),
    ) {
        if trace_id == 0 {
            self.left_out.outside_requests += 1;
            return;
        }
        if self.closed.contains(trace_id) {
            self.late_records += 1;
            return;
        }
        let open = self.open.entry(trace_id).or_insert_with(|| {
            self.by_arrival.insert((now_ns, trace_id));
            let records = TraceRecords {
                id: TraceId(trace_id),
                ..TraceRecords::default()
            };
            Open {
                records,
                events: Vec::new(),
                last_ns: now_ns,
            }
        });
        if open.last_ns < now_ns {
            self.by_arrival.remove(&(open.last_ns, trace_id));
            self.by_arrival.insert((now_ns, trace_id));
            open.last_ns = now_ns;
        }
        if open.len() >= RECORDS_PER_TRACE_MAX {
            self.left_out.over_trace_limit += 1;
            return;
        }
        put(&mut open.records, &mut open.events);
        self.records += 1;
    }

    /// Removes and returns a trace whose latest record arrived before `until_ns`; `None` if there
    /// is none.
    pub(super) fn next_quiet(&mut self, until_ns: i64) -> Option<TraceRecords> {
        self.closed.forget(until_ns);
        let (last_ns, trace_id) = *self.by_arrival.first()?;
        if last_ns < until_ns {
            self.close(last_ns, trace_id)
        } else {
            None
        }
    }

    /// Removes and returns the trace that has been quiet longest, if the open traces hold more
    /// records than the maximum.
    pub(super) fn next_too_many(&mut self) -> Option<TraceRecords> {
        if self.records <= self.records_max {
            return None;
        }
        let (last_ns, trace_id) = *self.by_arrival.first()?;
        self.close(last_ns, trace_id)
    }

    fn close(&mut self, last_ns: i64, trace_id: u128) -> Option<TraceRecords> {
        self.by_arrival.remove(&(last_ns, trace_id));
        let open = self.open.remove(&trace_id)?;
        self.records -= open.len();
        self.closed.insert(trace_id);
        let Open {
            mut records,
            mut events,
            ..
        } = open;
        sort_spans(&mut records.spans);
        events.sort_by_key(|event| (event.time_ns, event.seq));
        self.attacher
            .attach(&mut records, &mut events, &mut self.left_out);
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_traces_are_remembered_for_minutes_and_no_longer() {
        let mut closed = ClosedTraces::default();
        closed.forget(CLOSED_NS + 1);
        closed.insert(1);
        closed.forget(2 * CLOSED_NS);
        assert!(closed.contains(1));
        closed.forget(2 * CLOSED_NS + 2);
        assert!(closed.contains(1), "for one generation more");
        closed.forget(3 * CLOSED_NS + 3);
        assert!(!closed.contains(1) && closed.new.is_empty() && closed.old.is_empty());
    }

    #[test]
    fn a_flood_of_closed_traces_is_bounded() {
        let mut closed = ClosedTraces::default();
        (0..3 * CLOSED_MAX as u128 + 7).for_each(|id| closed.insert(id));
        assert_eq!((closed.new.len(), closed.old.len()), (7, CLOSED_MAX));
    }
}
