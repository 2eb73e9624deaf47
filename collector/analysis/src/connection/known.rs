//! Operations that are known to be connections, or requests inside connections.

use crate::name_rule::normalise;
use crate::record::{SpanFlags, SpanRecord};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Value that users give in place of an operation so that children of connections do not become
/// requests.
pub const NO_REQUESTS: &str = "none";

/// Service and name, by the [rule for names of high cardinality](normalise).
pub(super) type Operation = (Arc<str>, Arc<str>);

pub(super) fn operation(span: &SpanRecord) -> Operation {
    (span.service.clone(), normalise(&span.name).into())
}

/// Returns true for a span that is not a client span.
pub(super) fn is_worker(span: &SpanRecord) -> bool {
    !span.flags.contains(SpanFlags::CLIENT)
}

/// Operations of connections, and of the requests inside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Connections {
    pub(super) connections: FxHashSet<Operation>,
    pub(super) requests: FxHashSet<Operation>,
    /// Operations that users declared to be requests wherever they occur, as `service:name`.
    declared: FxHashSet<String>,
}

impl Connections {
    /// Returns true if no trace has to be divided.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.requests.is_empty() && self.declared.is_empty()
    }

    /// Returns a copy that declares these operations (`service:name`), instead of the former ones,
    /// to be requests wherever they occur. If [`NO_REQUESTS`] is among them, the copy omits the
    /// learned connections and their requests.
    #[must_use]
    pub fn with_requests(&self, operations: &[String]) -> Self {
        let mut declared: FxHashSet<String> = operations.iter().cloned().collect();
        let (connections, requests) = match declared.remove(NO_REQUESTS) {
            true => Default::default(),
            false => (self.connections.clone(), self.requests.clone()),
        };
        Self {
            connections,
            requests,
            declared,
        }
    }

    /// Returns the operations of connections, `service:name`, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let name = |(service, name): &Operation| format!("{service}:{name}");
        let mut names: Vec<_> = self.connections.iter().map(name).collect();
        names.sort_unstable();
        names
    }

    /// Returns true if spans of this span's operation are requests inside connections, or were
    /// declared to be requests.
    #[must_use]
    pub fn is_request(&self, span: &SpanRecord) -> bool {
        !self.is_empty() && (self.requests.contains(&operation(span)) || self.is_declared(span))
    }

    /// Returns true if a request begins with a span of this operation: a request inside a
    /// connection, a declared request, or a root span that is not a connection.
    #[must_use]
    pub fn begins_request(&self, service: &str, name: &str, is_root: bool) -> bool {
        if self.is_empty() {
            return is_root;
        }
        let name = normalise(name);
        let operation: Operation = (service.into(), name.as_ref().into());
        let is_declared = || self.declared.contains(&format!("{service}:{name}"));
        (is_root && !self.connections.contains(&operation))
            || self.requests.contains(&operation)
            || is_declared()
    }

    pub(super) fn is_connection(&self, span: &SpanRecord) -> bool {
        span.parent_id == 0 && self.connections.contains(&operation(span))
    }

    pub(super) fn is_declared(&self, span: &SpanRecord) -> bool {
        !self.declared.is_empty() && self.declared.contains(&span.operation())
    }
}
