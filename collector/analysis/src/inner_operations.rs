//! Detects partial traces: recorded roots that are inner operations of a request.
//!
//! A thread that is in the middle of a request when a window opens records only the spans that it
//! begins after the opening. In server layers and captured contexts, the SDK remembers a request
//! between windows. In other code, it cannot mark these spans as part of a request. A comparison of
//! all traces reveals the partial traces: the root of each is an operation that runs inside another
//! operation in other traces.

use crate::record::{SpanFlags, SpanRecord, TraceRecords};
use std::collections::HashSet;
use std::sync::Arc;

/// Cause of incompleteness of a trace whose root is an inner operation in other traces.
pub const INNER_ROOT: &str = "inner_root";

/// Maximum number of operations in an [`InnerOperations`]. Further operations are dropped and count
/// as never seen inside another operation.
pub const INNER_OPERATIONS_MAX: usize = 1 << 16;

/// Operations (service and name) that have been recorded inside other operations. The set keeps the
/// standard library's seeded hasher, because names come from the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InnerOperations(HashSet<(Arc<str>, Arc<str>)>);

impl InnerOperations {
    /// Adds the operation of a span that has a parent and was recorded by the SDK. Callers skip
    /// imported spans, because their recorders recorded whole requests.
    pub fn insert(&mut self, service: &Arc<str>, name: &Arc<str>) {
        if self.0.len() < INNER_OPERATIONS_MAX {
            self.0.insert((service.clone(), name.clone()));
        }
    }

    /// Adds a span's operation, unless the span is a root or was imported.
    pub fn observe(&mut self, span: &SpanRecord) {
        if span.process != 0 && span.parent_id != 0 {
            self.insert(&span.service, &span.name);
        }
    }

    /// Iterates over the service and name of each operation, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> {
        self.0.iter()
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &InnerOperations) {
        other
            .0
            .iter()
            .for_each(|(service, name)| self.insert(service, name));
    }

    /// Reports whether a trace with a root is only a part of a request. Two kinds of roots do not
    /// count. Imported roots were recorded from their beginning. Roots with the server flag had a
    /// caller that sent no context, and every caller that records sends one.
    pub fn is_fragment(&self, records: &TraceRecords) -> bool {
        let is_inner = |root: &SpanRecord| {
            root.process != 0
                && !root.flags.contains(SpanFlags::SERVER)
                && self.0.contains(&(root.service.clone(), root.name.clone()))
        };
        records
            .spans
            .iter()
            .any(|span| span.parent_id == 0 && is_inner(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_inside_others_is_no_root() {
        let span = |name: &str, parent_id, process, flags| SpanRecord {
            span_id: 1,
            parent_id,
            service: "s".into(),
            name: name.into(),
            host: "h".into(),
            process,
            start_ns: 0,
            end_ns: 1,
            flags,
            events: Vec::new(),
        };
        let none = SpanFlags::default();
        let mut inner = InnerOperations::default();
        [
            span("read", 7, 1, none),
            span("page", 0, 1, none),
            span("imported", 7, 0, none),
        ]
        .iter()
        .for_each(|span| inner.observe(span));
        let is_fragment = |root| {
            inner.is_fragment(&TraceRecords {
                spans: vec![root],
                ..TraceRecords::default()
            })
        };
        assert!(is_fragment(span("read", 0, 1, none)));
        assert!(!is_fragment(span("read", 0, 1, SpanFlags::SERVER)));
        assert!(!is_fragment(span("read", 0, 0, none)));
        assert!(!is_fragment(span("read", 3, 1, none)));
        assert!(
            !is_fragment(span("page", 0, 1, none)) && !is_fragment(span("imported", 0, 1, none))
        );
        let mut merged = InnerOperations::default();
        merged.merge(&inner);
        assert_eq!(merged, inner);
    }
}
