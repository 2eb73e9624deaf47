//! Connections: spans that outlast many requests, and their division into requests.
//!
//! A server may have a span for each connection and, inside it, one for each command. Loops of
//! workers and consumers have similar spans. A connection's span lasts as long as its client stays
//! connected, and mostly waits for the client. Its latency, critical path and structure therefore
//! reveal nothing about the service. Users wait for the span's children, so each child that is not
//! a client span becomes a request. Without a record of the connection, only spans of operations
//! that are known to be requests do.
//!
//! **Rule for a span.** A root span that is neither a server's nor a client's is a connection if
//!
//! - it lasts at least a second;
//! - at least 16 of its children are not client spans. On average, at least four of these belong to
//!   one operation, and the median of their durations is at most 1/50 of the span's;
//! - its children cover at most a third of its duration.
//!
//! The rule also applies to a parent that was not recorded, from its first child to its last. A
//! connection may be older than the recording, or still open.
//!
//! **Rule for an operation.** Spans of an operation are connections if most of its examined spans
//! of at least a second meet the rule above. Of those that do, one must last ten seconds, or an
//! operation of their children must also begin traces. Commands begin traces when a burst opens
//! inside a connection. A slow request that calls few functions therefore does not qualify. The
//! division then applies to all root spans of the operation, however short, so that requests of one
//! kind have one form.
//!
//! **Marks.** If the SDK has the names of requests, it marks the connections in which they begin.
//! The operation of a marked root span is an operation of connections without further evidence.
//!
//! These rules are ours: the papers' systems have one trace for each request.

mod division;
mod known;
mod learning;
#[cfg(test)]
mod tests;

pub use division::{Division, connection_ids, request_at, request_id, requests_below};
pub use known::{Connections, NO_REQUESTS};
pub use learning::{CHILDREN_MIN, CONNECTION_NS_MIN, ConnectionLearning, is_marked};
