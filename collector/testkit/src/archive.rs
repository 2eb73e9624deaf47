//! In-memory archive of the records that the process's collector has received. A store would write
//! and read Parquet files for each test, which is much slower.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use stroboscope::SpanContext;
use stroboscope_analysis::connection::requests_below;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::flush::Upstream;
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{
    AttributeKeys, AttributeValues, EventAttacher, EventRead, LeftOut, add_span, event_read,
    parse_attributes, sort_spans, span_record,
};
use stroboscope_store::wal::{Payload, PayloadKind};

use crate::name::is_named;

/// Archive of the records that the collector has forwarded. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Archive(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    traces: HashMap<u128, ReceivedTrace>,
    /// Trace and id of each span with links to other spans, and these links as JSON.
    links: Vec<(u128, u64, Arc<str>)>,
    /// Span below which each test records, by trace.
    tests: HashMap<u128, u64>,
}

/// Attribute with the links of a span to other spans.
const LINKS: &str = "links";

/// Records of one trace.
#[derive(Clone, Default)]
struct ReceivedTrace {
    records: TraceRecords,
    /// Events, to attach to spans that may arrive later.
    events: Vec<EventRead>,
}

impl Upstream for Archive {
    fn deliver(&mut self, _: u64, payloads: &[Payload], _: Instant) -> Result<(), String> {
        let mut rows = Rows::default();
        // Services under test do not know the port, so they do not send OTLP.
        for payload in payloads.iter().filter(|of| of.kind == PayloadKind::Batch) {
            let batch = CheckedBatch::from_bytes(&payload.bytes, &Limits::default());
            let batch = batch.map_err(|refusal| refusal.to_string())?;
            batch.append_to(payload.received_ns, &mut rows);
        }
        self.contents().add(&rows);
        Ok(())
    }
}

impl Contents {
    fn add(&mut self, rows: &Rows) {
        let texts: Vec<Arc<str>> = rows.strings.iter().map(Arc::from).collect();
        let keys = AttributeKeys::all();
        for row in &rows.spans {
            let attributes = attributes(row.attributes.as_deref(), &keys);
            let span = span_record(row, &texts);
            let links = attributes.iter().filter(|(key, _)| **key == *LINKS);
            self.links
                .extend(links.map(|(_, links)| (row.trace_id, row.span_id, links.clone())));
            let records = &mut self.traces.entry(row.trace_id).or_default().records;
            records.id = TraceId(row.trace_id);
            add_span(records, span, attributes, &keys);
        }
        for row in &rows.events {
            let attributes = attributes(row.attributes.as_deref(), &keys);
            let event = event_read(row, &texts, attributes);
            let received = self.traces.entry(row.trace_id).or_default();
            received.records.id = TraceId(row.trace_id);
            received.events.push(event);
        }
    }
}

impl Archive {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ids of all traces.
    pub(crate) fn ids(&self) -> HashSet<u128> {
        self.contents().traces.keys().copied().collect()
    }

    /// Returns the ids of a trace and of all traces that link to it, directly or via other traces.
    /// In the trace of another test, only the links of its test span count.
    pub(crate) fn linked(&self, id: u128) -> HashSet<u128> {
        let contents = self.contents();
        let mut linked = HashSet::from([id]);
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            let text = TraceId(id).to_string();
            for (from, span_id, links) in &contents.links {
                let counts = (contents.tests.get(from)).is_none_or(|test| test == span_id);
                if counts && links.contains(&text) && linked.insert(*from) {
                    pending.push(*from);
                }
            }
        }
        linked
    }

    /// Declares the span below which a test records.
    pub(crate) fn add_test(&self, test: SpanContext) {
        let mut contents = self.contents();
        contents.tests.insert(test.trace_id(), test.span_id());
    }

    /// Returns the traces with these ids. Divides those of tests into the requests that the code
    /// under test began.
    pub(crate) fn traces(&self, ids: &HashSet<u128>) -> Vec<TraceRecords> {
        let contents = self.contents();
        let traces = ids.iter().filter_map(|id| contents.traces.get(id));
        // Spans that have not ended may already have events.
        let traces = traces.filter(|of| !of.records.spans.is_empty());
        let divide = |received: &ReceivedTrace| {
            let mut trace = received.clone().whole();
            match contents.tests.get(&trace.id.0) {
                Some(test) => requests_below(&mut trace, *test),
                None => vec![trace],
            }
        };
        traces.flat_map(divide).collect()
    }

    /// Reports whether a trace with none of these ids has a span of this name.
    pub(crate) fn has_elsewhere(&self, name: &str, ids: &HashSet<u128>) -> bool {
        let contents = self.contents();
        let mut others = contents.traces.iter().filter(|(id, _)| !ids.contains(id));
        others.any(|(_, of)| of.records.spans.iter().any(|span| is_named(span, name)))
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Archive(…)")
    }
}

impl ReceivedTrace {
    fn whole(self) -> TraceRecords {
        let Self {
            mut records,
            mut events,
        } = self;
        sort_spans(&mut records.spans);
        events.sort_by_key(|event| (event.time_ns, event.seq));
        EventAttacher::default().attach(&mut records, &mut events, &mut LeftOut::default());
        records
    }
}

fn attributes(json: Option<&str>, keys: &AttributeKeys) -> AttributeValues {
    let values = json.and_then(|json| parse_attributes(json, keys, |text| text.into()));
    values.unwrap_or_default()
}
