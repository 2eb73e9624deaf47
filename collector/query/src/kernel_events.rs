//! Kernel events by request, in the form that formulas use.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{KernelEvent, Unit};
use stroboscope_store::tables::Damage;

/// Kernel events of requests, and the intervals in which each host's kernel was recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelEvents {
    /// Events by the lower half of the trace's id, which is the only part that the kernel knows.
    pub(super) of_trace: foldhash::HashMap<u64, Vec<KernelEvent>>,
    /// Intervals in which each host's kernel was recorded without a gap, in ns since the Unix
    /// epoch.
    pub(super) seen: BTreeMap<String, Vec<(i64, i64)>>,
    pub(super) bytes: u64,
    pub(super) damage: Vec<Damage>,
}

impl KernelEvents {
    /// Returns the kernel events of a request. If it was divided from a trace, as a request of a
    /// connection is, these are the events of the whole trace.
    pub(super) fn of(&self, records: &TraceRecords) -> &[KernelEvent] {
        let found = self.of_trace.get(&(records.stored_id().0 as u64));
        found.map_or(&[], Vec::as_slice)
    }

    /// Adds the kernel events of a request to `unit`, on which formulas about the request are
    /// evaluated.
    pub(super) fn join<'a>(&'a self, unit: Unit<'a>, records: &'a TraceRecords) -> Unit<'a> {
        let spans = records.spans.iter();
        let times_ns = spans.map(|span| (span.start_ns, span.end_ns));
        let time_ns = times_ns.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let hosts = records.hosts().into_iter();
        let is_seen = time_ns.is_some_and(|time_ns| self.is_seen(hosts, time_ns));
        // Selects the events of this request from those of the trace that it was divided from.
        let spans: Option<foldhash::HashSet<u64>> = records
            .divided_from
            .map(|_| records.spans.iter().map(|span| span.span_id).collect());
        let events = self.of(records).iter().filter(|event| {
            let spans = spans.as_ref();
            spans.is_none_or(|spans| spans.contains(&event.span_id))
        });
        unit.with_kernel(events.map(|event| (0, event)), is_seen)
    }

    /// Reports whether the kernels of all these hosts were recorded from `from_ns` to `to_ns`
    /// without a gap.
    pub(super) fn is_seen<'a>(
        &self,
        mut hosts: impl Iterator<Item = &'a Arc<str>>,
        (from_ns, to_ns): (i64, i64),
    ) -> bool {
        hosts.all(|host| {
            let windows = self.seen.get(&**host).map_or(&[][..], Vec::as_slice);
            let after = windows.partition_point(|window| window.0 <= from_ns);
            let last = after.checked_sub(1).and_then(|at| windows.get(at));
            last.is_some_and(|window| to_ns <= window.1)
        })
    }
}
