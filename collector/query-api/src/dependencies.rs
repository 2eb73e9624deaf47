//! Counts the calls between services.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::tables::StoreError;

use crate::store::Traces;

/// Number of calls by caller and callee.
pub(crate) type Calls = BTreeMap<(String, String), u64>;

/// Counts the calls in traces that began in this range of ns since the Unix epoch. A call is a span
/// whose recorded parent belongs to another service.
pub(crate) fn calls(traces: &Traces, begins_ns: &RangeInclusive<i64>) -> Result<Calls, StoreError> {
    let mut calls = Calls::new();
    traces.each(begins_ns, |records| {
        let starts = records.spans.iter().map(|span| span.start_ns);
        let start_ns = starts.min();
        if start_ns.is_some_and(|start_ns| begins_ns.contains(&start_ns)) {
            count(records, &mut calls);
        }
    })?;
    Ok(calls)
}

fn count(records: &TraceRecords, calls: &mut Calls) {
    let spans = records.spans.iter();
    let named = spans.map(|span| (span.span_id, &*span.service));
    let service_of: HashMap<u64, &str> = named.collect();
    for span in &records.spans {
        let parent = service_of.get(&span.parent_id);
        if let Some(parent) = parent.filter(|parent| **parent != &*span.service) {
            let pair = ((*parent).to_owned(), span.service.to_string());
            *calls.entry(pair).or_default() += 1;
        }
    }
}
