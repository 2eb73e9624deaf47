//! Spans and requests of the store that the kernel worked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stroboscope_analysis::kernel::by_operation::SpanOf;
use stroboscope_analysis::kernel::lock_sums::LockSpan;
use stroboscope_analysis::kernel::marker::RequestId;
use stroboscope_analysis::record::{SpanFlags, TraceRecords};
use stroboscope_store::tables::TraceReader;

use crate::first_look::alignment;
use crate::query_error::QueryError;
use crate::search::{align, with_cut};
use crate::source::{Selection, Source};

#[derive(Default)]
pub(super) struct Spans {
    operations: HashMap<RequestId, KnownSpan>,
    /// First start and last end of each request in ns as recorded, and true if any of its spans is
    /// cut or unfinished.
    bounds: HashMap<u64, (i64, i64, bool)>,
    /// Trace id of each request, by its low half.
    pub(super) ids: HashMap<u64, u128>,
    /// Number of traces that were not read because they are too large for the memory.
    pub(super) large_traces: u64,
}

struct KnownSpan {
    service: Arc<str>,
    operation: Arc<str>,
    /// Number of the host's island.
    island: u32,
    /// Start and end by the common time of the island, as far as clocks could be aligned.
    interval_ns: (i64, i64),
}

const NOT_STORED: &str = "(spans that are not in the store)";

impl Spans {
    pub(super) fn of(&self, span: RequestId) -> SpanOf<'_> {
        let known = self.operations.get(&span);
        SpanOf {
            operation: known.map_or(NOT_STORED, |known| &known.operation),
            island: known.map_or(0, |known| known.island),
            interval_ns: known.map(|known| known.interval_ns),
        }
    }

    pub(super) fn at_lock(&self, span: RequestId) -> LockSpan<'_> {
        let known = self.operations.get(&span);
        LockSpan {
            service: known.map(|known| &*known.service),
            operation: known.map_or(NOT_STORED, |known| &known.operation),
        }
    }

    /// Returns the requests without cut or unfinished spans that lie in one of the windows from
    /// start to end, by the low half of their trace ids.
    pub(super) fn whole(&self, windows: &[(i64, i64)]) -> HashSet<u64> {
        let is_whole = |&(start_ns, end_ns, is_cut): &(i64, i64, bool)| {
            let after = windows.partition_point(|window| window.0 <= start_ns);
            let last = after.checked_sub(1);
            !is_cut && last.is_some_and(|place| end_ns < windows[place].1)
        };
        let whole = self.bounds.iter().filter(|(_, bounds)| is_whole(bounds));
        whole.map(|(&trace, _)| trace).collect()
    }
}

/// Reads the requests whose trace ids have one of these low halves, and their wanted spans. Aligns
/// the clocks of the hosts.
pub(super) fn spans(
    source: &Source,
    requests: &HashSet<u64>,
    is_wanted: impl Fn(RequestId) -> bool,
) -> Result<Spans, QueryError> {
    const CUT: SpanFlags =
        SpanFlags(SpanFlags::CUT_OPEN.0 | SpanFlags::CUT_CLOSE.0 | SpanFlags::UNFINISHED.0);
    let mut names: HashMap<(Arc<str>, Arc<str>), Arc<str>> = HashMap::new();
    let mut spans = Spans::default();
    let clocks = alignment(source, with_cut(Selection::default()))?;
    let mut progress = source.observer.begin("naming operations", "traces", None);
    let mut traces = TraceReader::open(source.store())?;
    let mut records = TraceRecords::default();
    while traces.next_within(&mut records, |bytes| bytes <= source.memory.trace_max()) {
        progress.add(1);
        let low = records.id.0 as u64;
        if !requests.contains(&low) {
            continue;
        }
        spans.ids.insert(low, records.id.0);
        // Windows open and close by the recorded times.
        for span in &records.spans {
            let is_cut = span.flags.0 & CUT.0 != 0;
            let own = (span.start_ns, span.end_ns, is_cut);
            let bounds = spans.bounds.entry(low).or_insert(own);
            *bounds = (
                bounds.0.min(span.start_ns),
                bounds.1.max(span.end_ns),
                bounds.2 || is_cut,
            );
        }
        align(clocks.as_ref(), &mut records);
        for span in records.spans.drain(..) {
            let Some(id) = RequestId::new(low, span.span_id).filter(|&id| is_wanted(id)) else {
                continue;
            };
            let key = (span.service.clone(), span.name);
            let text = format!("{}:{}", key.0, key.1);
            let operation = names.entry(key).or_insert_with(|| text.into()).clone();
            let clock = records.clocks.iter().find(|clock| clock.host == span.host);
            let known = KnownSpan {
                service: span.service,
                operation,
                island: clock.map_or(0, |clock| clock.island),
                interval_ns: (span.start_ns, span.end_ns),
            };
            spans.operations.insert(id, known);
        }
    }
    spans.large_traces = traces.left_out().large_traces;
    Ok(spans)
}
