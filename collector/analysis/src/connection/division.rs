//! Divides a trace into the requests of its connections.

use super::known::{Connections, is_worker, operation};
use crate::record::{RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};
use foldhash::HashMap;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// The requests into which a trace was divided.
#[derive(Debug, Default)]
pub struct Division {
    /// Requests in order of their ids.
    pub requests: Vec<TraceRecords>,
    /// Operations of the connection spans that were removed, as `service:name`.
    pub connections: Vec<String>,
}

/// Returns the id of the request that begins with this span of a connection. It consists of the
/// high half of the trace's id, or the low half if the high half is zero, and the span's id.
/// [`connection_ids`] is the reverse.
#[must_use]
pub fn request_id(trace: TraceId, span_id: u64) -> TraceId {
    let half = match trace.0 >> 64 {
        0 => trace.0,
        high => high,
    };
    TraceId(half << 64 | u128::from(span_id))
}

/// Returns the ids of traces from which [`request_id`] derives `request`, an id of more than 64
/// bits: an id of 64 bits, and an inclusive range of longer ones.
#[must_use]
pub fn connection_ids(request: TraceId) -> (TraceId, (TraceId, TraceId)) {
    let half = request.0 >> 64;
    let from = half << 64;
    let to = from | u128::from(u64::MAX);
    (TraceId(half), (TraceId(from), TraceId(to)))
}

impl Connections {
    /// Divides a trace into the requests of its connections, and into declared requests. Returns
    /// `None` if the trace has no connection, and no request that begins at a span with a parent.
    /// Removes the spans outside of all requests if one of them is a root. Otherwise these spans
    /// form a request of their own.
    #[must_use]
    pub fn divide(&self, trace: &mut TraceRecords) -> Option<Division> {
        if self.is_empty() {
            return None;
        }
        let spans = &trace.spans;
        let places = places(spans);
        let parent = |at: usize| parent(spans, &places, at);
        let begins = |at: usize| {
            let span = &spans[at];
            let is_inside = match parent(at) {
                Some(above) => is_worker(span) && self.is_connection(&spans[above]),
                None => span.parent_id != 0 && self.requests.contains(&operation(span)),
            };
            is_inside || self.is_declared(span)
        };
        let has_connection = spans.iter().any(|span| self.is_connection(span));
        if !has_connection && !(0..spans.len()).any(begins) {
            return None;
        }
        let owners = outermost(spans, parent, begins);
        if !has_connection && owners.values().all(|owner| spans[*owner].parent_id == 0) {
            return None;
        }
        let is_connection = |root: &SpanRecord| self.is_connection(root);
        Some(into_requests(trace, &owners, is_connection))
    }
}

/// Extracts the request that begins with this span from a trace, as [`Connections::divide`] does.
/// Returns `None` if the span is missing or has no parent.
#[must_use]
pub fn request_at(trace: &mut TraceRecords, span_id: u64) -> Option<TraceRecords> {
    let spans = &trace.spans;
    let places = places(spans);
    let first = *places.get(&span_id)?;
    if spans[first].parent_id == 0 {
        return None;
    }
    let id = request_id(trace.id, span_id);
    let owners = outermost(spans, |at| parent(spans, &places, at), |at| at == first);
    let division = into_requests(trace, &owners, |_| true);
    let mut requests = division.requests.into_iter();
    requests.find(|request| request.id == id)
}

/// Divides a trace into the requests that begin with the children of this span, whether or not the
/// span itself was recorded. If the spans outside of these requests include a root, all of them are
/// left out. Otherwise they form a request of their own.
#[must_use]
pub fn requests_below(trace: &mut TraceRecords, span_id: u64) -> Vec<TraceRecords> {
    if trace.spans.is_empty() {
        return Vec::new();
    }
    let (spans, places) = (&trace.spans, places(&trace.spans));
    let begins = |at: usize| spans[at].parent_id == span_id;
    let owners = outermost(spans, |at| parent(spans, &places, at), begins);
    into_requests(trace, &owners, |_| false).requests
}

fn places(spans: &[SpanRecord]) -> HashMap<u64, usize> {
    let ids = spans.iter().map(|span| span.span_id);
    ids.zip(0..).collect()
}

fn parent(spans: &[SpanRecord], places: &HashMap<u64, usize>, at: usize) -> Option<usize> {
    match spans[at].parent_id {
        0 => None,
        id => places.get(&id).copied(),
    }
}

/// Finds the outermost request that contains each span. Returns a map from the span's id to the
/// index of that request's first span.
fn outermost(
    spans: &[SpanRecord],
    parent: impl Fn(usize) -> Option<usize>,
    begins: impl Fn(usize) -> bool,
) -> HashMap<u64, usize> {
    let mut outermost: Vec<Option<Option<usize>>> = vec![None; spans.len()];
    let mut chain = Vec::new();
    for at in 0..spans.len() {
        let mut next = Some(at);
        let mut found = None;
        while let Some(at) = next {
            if let Some(known) = outermost[at] {
                found = known;
                break;
            }
            // A cycle of parents has no outermost span.
            outermost[at] = Some(None);
            chain.push(at);
            next = parent(at);
        }
        while let Some(at) = chain.pop() {
            if found.is_none() && begins(at) {
                found = Some(at);
            }
            outermost[at] = Some(found);
        }
    }
    (spans.iter().zip(&outermost))
        .filter_map(|(span, owner)| Some((span.span_id, owner.flatten()?)))
        .collect()
}

/// Moves the records of a trace into its requests. `owners` maps the id of each span in a request
/// to the index of the request's first span. If a root is outside of all requests, all spans
/// outside are removed; otherwise they form a request of their own. The division names the removed
/// roots for which `is_connection` returns true.
fn into_requests(
    trace: &mut TraceRecords,
    owners: &HashMap<u64, usize>,
    is_connection: impl Fn(&SpanRecord) -> bool,
) -> Division {
    let empty = |first: &SpanRecord| {
        let id = match first.parent_id {
            0 => trace.id,
            _ => request_id(trace.id, first.span_id),
        };
        TraceRecords {
            id,
            divided_from: (id != trace.id).then_some(trace.id),
            clocks: trace.clocks.clone(),
            sampling: trace.sampling,
            ..TraceRecords::default()
        }
    };
    let mut requests: BTreeMap<usize, TraceRecords> = BTreeMap::new();
    for owner in owners.values() {
        let request = requests.entry(*owner);
        request.or_insert_with(|| empty(&trace.spans[*owner]));
    }
    let mut division = Division::default();
    let mut rest = TraceRecords {
        events: std::mem::take(&mut trace.events),
        ..empty(&SpanRecord {
            parent_id: 0,
            ..trace.spans[0].clone()
        })
    };
    let first_cut: FxHashSet<usize> = (requests.keys().copied())
        .filter(|owner| trace.spans[*owner].flags.contains(SpanFlags::CUT_OPEN))
        .collect();
    for (at, mut span) in std::mem::take(&mut trace.spans).into_iter().enumerate() {
        let owner = owners.get(&span.span_id).copied();
        let Some((owner, request)) = owner.zip(owner.and_then(|owner| requests.get_mut(&owner)))
        else {
            rest.spans.push(span);
            continue;
        };
        if owner == at {
            span.parent_id = 0;
            span.flags = span.flags.with(SpanFlags::LOCAL_ROOT);
        }
        // Usually, recording missed the beginning of the connection, not that of the request.
        if first_cut.contains(&owner) {
            span.flags = SpanFlags(span.flags.0 & !SpanFlags::CUT_OPEN.0);
        }
        request.spans.push(span);
    }
    let owner_of = |record: &RecordOwner| match record {
        RecordOwner::Event(_) => None,
        RecordOwner::Span(id) | RecordOwner::InSpan(id, _) => owners.get(id).copied(),
    };
    for element in std::mem::take(&mut trace.elements) {
        let request = owner_of(&element.owner).and_then(|owner| requests.get_mut(&owner));
        request.unwrap_or(&mut rest).elements.push(element);
    }
    for attribute in std::mem::take(&mut trace.attributes) {
        let request = owner_of(&attribute.owner).and_then(|owner| requests.get_mut(&owner));
        request.unwrap_or(&mut rest).attributes.push(attribute);
    }
    let roots = || rest.spans.iter().filter(|span| span.parent_id == 0);
    let connections = roots().filter(|root| is_connection(root));
    division.connections = connections.map(SpanRecord::operation).collect();
    division.requests = requests.into_values().collect();
    if roots().next().is_none() && !(rest.spans.is_empty() && rest.events.is_empty()) {
        rest.name = trace.name.take();
        division.requests.push(rest);
    }
    division.requests.sort_by_key(|request| request.id);
    division
}
