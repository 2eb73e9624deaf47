//! Roots that are none.
//!
//! A thread that is in the middle of a request when a window opens records what it begins from then on, and cannot know
//! that it is a part: between windows nothing is remembered. Seen over all traces, such a part gives itself away: its
//! root is an operation that elsewhere runs inside another one.

use std::collections::HashSet;

use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};

use crate::store::{Operation, Store, StoreError, inner_operations};

/// The cause of a trace whose root is an inner operation elsewhere.
pub(super) const INNER_ROOT: &str = "inner_root";

/// Operations that were recorded inside others.
#[derive(Debug, Default)]
pub(super) struct InnerOperations(HashSet<Operation>);

impl InnerOperations {
    /// Looks through all spans once. Imported spans are left alone: whoever recorded them recorded whole requests.
    pub(super) fn read(store: &Store, threads: usize) -> Result<Self, StoreError> {
        inner_operations(store, threads).map(Self)
    }

    /// Is this a part of a request, although it has a root? A server's span without a parent is an ingress: its caller
    /// sent no context, and every caller that records does.
    pub(super) fn is_fragment(&self, records: &TraceRecords) -> bool {
        let is_inner = |root: &SpanRecord| {
            root.process != 0
                && !root.flags.contains(SpanFlags::SERVER)
                && self.0.contains(&(root.service.clone(), root.name.clone()))
        };
        records.spans.iter().any(|span| span.parent_id == 0 && is_inner(span))
    }
}
