//! Finds the connection of a request, and the requests of a connection.

use stroboscope_analysis::connection::{Connections, is_marked};
use stroboscope_analysis::record::{TraceId, TraceRecords};

/// Maximum number of requests of a connection that are listed.
const LISTED_MAX: usize = 50;

/// Relation of a trace to connections: its enclosing trace, and the requests inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestConnection {
    /// Trace from which the request was divided, such as that of its connection; `None` if it is a
    /// trace of its own.
    pub inside: Option<TraceId>,
    /// Number of requests that are divided from this trace, such as those inside its connections,
    /// as far as its spans were read.
    pub requests: u64,
    /// First 50 of these requests, in order of time.
    pub first: Vec<ConnectionRequest>,
    /// True if the SDK marked this trace as a connection, so that requests in other traces link to
    /// it.
    pub is_linked_to: bool,
}

/// Request that is divided from a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRequest {
    pub id: TraceId,
    pub root: String,
    /// Start of the request as its process recorded it, in ns since the Unix epoch.
    pub start_ns: i64,
    pub took_ns: u64,
}

/// Finds the relation of a trace to connections.
pub(super) fn request_connection(
    records: &TraceRecords,
    connections: &Connections,
) -> RequestConnection {
    let mut first = match records.divided_from {
        Some(_) => Vec::new(),
        None => requests_of(records, connections),
    };
    let requests = first.len() as u64;
    first.sort_by_key(|request| (request.start_ns, request.id));
    first.truncate(LISTED_MAX);
    RequestConnection {
        inside: records.divided_from,
        requests,
        first,
        is_linked_to: records.spans.iter().any(is_marked),
    }
}

/// Returns the requests that are divided from a trace.
fn requests_of(records: &TraceRecords, connections: &Connections) -> Vec<ConnectionRequest> {
    if connections.is_empty() || records.spans.is_empty() {
        return Vec::new();
    }
    let mut spans = TraceRecords {
        id: records.id,
        spans: records.spans.clone(),
        ..TraceRecords::default()
    };
    let divided = connections.divide(&mut spans);
    let requests = divided.into_iter().flat_map(|division| division.requests);
    let inside = requests.filter(|request| request.divided_from.is_some());
    let request = |request: TraceRecords| {
        let root = request.root()?;
        Some(ConnectionRequest {
            id: request.id,
            root: root.operation(),
            start_ns: root.start_ns,
            took_ns: root.duration_ns(),
        })
    };
    inside.filter_map(request).collect()
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::{SpanFlags, SpanRecord};

    use super::*;

    fn span(span_id: u64, parent_id: u64, name: &str) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id,
            service: "kv".into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns: 1_000 - span_id.cast_signed(),
            end_ns: 2_000,
            flags: SpanFlags(0),
            events: Vec::new(),
        }
    }

    #[test]
    fn the_sdk_marks_a_connection() {
        let mut request = TraceRecords {
            spans: vec![span(1, 0, "get"), span(2, 1, "read")],
            ..TraceRecords::default()
        };
        assert!(!request_connection(&request, &Connections::default()).is_linked_to);
        request.spans[0].flags = SpanFlags::CONNECTION;
        assert!(request_connection(&request, &Connections::default()).is_linked_to);
    }

    #[test]
    fn a_connection_lists_its_first_requests() {
        let connections = Connections::default().with_requests(&["kv:get".to_owned()]);
        let ids = 2..2 + 2 * LISTED_MAX as u64;
        let gets = ids.clone().map(|id| span(id, 1, "get"));
        let mut trace = TraceRecords {
            id: TraceId(7),
            spans: [span(1, 0, "run")].into_iter().chain(gets).collect(),
            ..TraceRecords::default()
        };
        let found = request_connection(&trace, &connections);
        assert_eq!(
            (found.inside, found.requests),
            (None, 2 * LISTED_MAX as u64)
        );
        // Later ids begin earlier here.
        let spans: Vec<u64> = found.first.iter().map(|of| of.id.0 as u64).collect();
        assert_eq!(spans, ids.rev().take(LISTED_MAX).collect::<Vec<_>>());
        let (id, mut division) = (found.first[0].id, connections.divide(&mut trace));
        let requests = division.iter_mut().flat_map(|of| &mut of.requests);
        let request = requests.into_iter().find(|request| request.id == id);
        let found = request_connection(request.unwrap(), &connections);
        assert_eq!((found.inside, found.requests), (Some(TraceId(7)), 0));
    }
}
