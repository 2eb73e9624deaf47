//! Calls between services in one request: the edges of service maps.
//!
//! A call is a span whose parent belongs to another service. If the parent is a client span, the
//! parent's duration is the call's, and all its children in one other service are one call.
//! Otherwise the called span's duration counts. So clocks of hosts are never compared.

use crate::record::{SpanFlags, SpanRecord};
use foldhash::HashMap;

/// Call from one service to another in a request.
#[derive(Clone, Copy, Debug)]
pub struct ServiceCall<'a> {
    /// Span of the calling service.
    pub caller: &'a SpanRecord,
    /// Span of the called service; of several, the first in the records.
    pub called: &'a SpanRecord,
    /// True if the span that times the call, or a called one, failed.
    pub has_failed: bool,
}

impl<'a> ServiceCall<'a> {
    /// Returns the span that times the call: the caller's client span or else the called span.
    #[must_use]
    pub fn timed(&self) -> &'a SpanRecord {
        if self.caller.flags.contains(SpanFlags::CLIENT) {
            self.caller
        } else {
            self.called
        }
    }
}

/// Returns the calls of a request, in the order of the spans that time them.
pub fn calls<'a>(
    spans: &'a [SpanRecord],
    has_failed: impl Fn(&SpanRecord) -> bool,
) -> Vec<ServiceCall<'a>> {
    let is_alone = |span: &SpanRecord| span.service == spans[0].service;
    if spans.iter().all(is_alone) {
        return Vec::new();
    }
    let places = spans.iter().enumerate();
    let places: HashMap<u64, usize> = places.map(|(at, span)| (span.span_id, at)).collect();
    // Places of the span that times the call, of the caller, and of the called span.
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (at, called) in spans.iter().enumerate() {
        let Some(&parent_at) = places.get(&called.parent_id) else {
            continue;
        };
        let parent = &spans[parent_at];
        if parent.service != called.service {
            let is_client = parent.flags.contains(SpanFlags::CLIENT);
            found.push((if is_client { parent_at } else { at }, parent_at, at));
        }
    }
    let service = |at: usize| &spans[at].service;
    found.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| service(a.2).cmp(service(b.2))));
    let of_one_call = |a: &(usize, usize, usize), b: &(usize, usize, usize)| {
        a.0 == b.0 && service(a.2) == service(b.2)
    };
    let call = |group: &[(usize, usize, usize)]| {
        let (timed_at, caller_at, called_at) = group[0];
        let mut called = group.iter().map(|(_, _, at)| &spans[*at]);
        ServiceCall {
            caller: &spans[caller_at],
            called: &spans[called_at],
            has_failed: has_failed(&spans[timed_at]) || called.any(&has_failed),
        }
    };
    found.chunk_by(of_one_call).map(call).collect()
}
