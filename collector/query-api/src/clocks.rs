//! Relations between the hosts' clocks, and the correction of a trace's times.
//!
//! Only timestamps of clocks that are proven to differ are corrected. Each corrected span has a
//! warning with the correction and its possible error. The proof needs many traces, so a background
//! thread computes it from the whole store. A later request starts it again if files changed. The
//! thread computes for at most a tenth of the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use object_store::path::Path;
use stroboscope_analysis::clock::{Alignment, ClockEvidence};
use stroboscope_analysis::record::{PointEvent, SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_query::KernelClocks;
use stroboscope_store::tables::{
    AttributeKeys, Store, StoreError, StoreTable, TraceFiles, read_batches,
};

use crate::trace::{StoredTrace, TraceSpan};

/// Pause after a computation, as a multiple of its duration; at least [`REST_MIN`].
const REST_FACTOR: u32 = 9;
const REST_MIN: Duration = Duration::from_secs(10);

/// Clocks of a store's hosts.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    known: Mutex<ClockState>,
}

#[derive(Debug, Default)]
struct ClockState {
    /// Known corrections; `None` if no clocks are known to differ.
    alignment: Option<Arc<Alignment>>,
    files: Vec<(Path, u64)>,
    /// Earliest time of the next computation.
    next: Option<Instant>,
    is_being_made: bool,
}

impl Clocks {
    fn known(&self) -> MutexGuard<'_, ClockState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the known alignment, and whether the caller must [`make`](Clocks::make) a new one.
    pub(crate) fn now(&self, store: &Store) -> (Option<Arc<Alignment>>, bool) {
        let files = store.list(StoreTable::Spans).unwrap_or_default();
        let mut known = self.known();
        let rests = known.next.is_some_and(|next| Instant::now() < next);
        let is_due = !known.is_being_made && !rests && known.files != files;
        known.is_being_made |= is_due;
        (known.alignment.clone(), is_due)
    }

    /// Compares all clocks in one pass over the traces. Keeps the old alignment on an error.
    pub(crate) fn make(&self, store: &Store) {
        let begun = Instant::now();
        let made = store
            .list(StoreTable::Spans)
            .and_then(|files| Ok((files, alignment(store)?)));
        let took = begun.elapsed();
        let mut known = self.known();
        known.is_being_made = false;
        known.next = Some(Instant::now() + (took * REST_FACTOR).max(REST_MIN));
        match made {
            Ok((files, alignment)) => {
                known.files = files;
                known.alignment = alignment.is_needed().then(|| Arc::new(alignment));
            }
            Err(error) => tracing::warn!(%error, "the hosts' clocks cannot be compared"),
        }
    }
}

fn alignment(store: &Store) -> Result<Alignment, StoreError> {
    let mut kernels = KernelClocks::default();
    read_batches(store)?.for_each(|batch| kernels.note(&batch));
    let files = TraceFiles::open(store, &AttributeKeys::none())?;
    let mut reader = stroboscope_store::tables::TraceReader::of(&files);
    let mut evidence = ClockEvidence::new();
    let mut records = TraceRecords::default();
    while reader.next_into(&mut records) {
        evidence.observe(&records);
    }
    kernels.note_in(&mut evidence);
    Ok(evidence.align(None))
}

/// Corrects the times of a trace, and adds a warning to each span whose times change.
pub(crate) fn correct(trace: &mut StoredTrace, alignment: &Alignment) {
    let mut records = TraceRecords {
        id: TraceId(trace.id),
        spans: trace.spans.iter().map(record).collect(),
        ..TraceRecords::default()
    };
    alignment.apply(&mut records);
    let error_ns = |host: &str| {
        let clock = records.clocks.iter().find(|clock| *clock.host == *host);
        clock.map_or(0, |clock| clock.error_ns)
    };
    for (span, corrected) in trace.spans.iter_mut().zip(&records.spans) {
        let moved_ns = corrected.start_ns - span.stored.start_ns;
        if moved_ns == 0 && corrected.end_ns == span.stored.end_ns {
            continue;
        }
        (span.stored.start_ns, span.stored.end_ns) = (corrected.start_ns, corrected.end_ns);
        let of_span = span.stored.events.iter_mut().chain(&mut span.lines);
        for (event, corrected) in of_span.zip(&corrected.events) {
            event.time_ns = corrected.time_ns;
        }
        let host = &span.stored.host;
        let differs_from = match alignment.reference() {
            Some(reference) if alignment.convert(host, 0).is_some() => {
                format!("that of {reference}")
            }
            _ => "others".to_owned(),
        };
        span.warnings.push(format!(
            "clock corrected by {} ± {}: it provably differs from {differs_from}",
            signed(moved_ns),
            length(error_ns(host)),
        ));
    }
}

fn record(span: &TraceSpan) -> SpanRecord {
    let stored = &span.stored;
    let events = stored.events.iter().chain(&span.lines);
    SpanRecord {
        span_id: stored.span_id,
        parent_id: stored.parent_id,
        service: stored.service.as_str().into(),
        name: stored.name.as_str().into(),
        host: stored.host.as_str().into(),
        process: stored.process,
        start_ns: stored.start_ns,
        end_ns: stored.end_ns,
        flags: SpanFlags(stored.flags),
        events: events
            .map(|event| PointEvent {
                time_ns: event.time_ns,
                name: event.name.as_str().into(),
                element: None,
            })
            .collect(),
    }
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "+" };
    format!("{sign}{}", length(ns.unsigned_abs()))
}

fn length(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}
