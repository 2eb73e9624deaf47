//! Connections: spans that outlast many requests, and their division into requests.
//!
//! A server may have a span for each connection and, inside it, one for each command. Loops of
//! workers and consumers look alike. Such a span lasts as long as its client stays, and mostly
//! waits for it: its latency, critical path and structure reveal nothing about the service. Users
//! wait for its children, so each of these becomes a request.
//!
//! **Rule.** A span without a recorded parent that is neither a server's nor a client's is a
//! connection if it lasts at least a second, has 16 children or more, which are of few operations
//! and most of them 50 times shorter, and if nothing runs inside it in two thirds of the time. The
//! same rule holds for a parent that was not recorded, from its first child to its last: a
//! connection may be older than the recording, and is recorded only when it ends. An operation is a
//! connection's if most of its spans that last that long are connections, and if one of them lasts
//! ten seconds, or one of its children's operations begins traces in other places, as commands do
//! when a burst opens inside a connection. A slow request that calls few functions thus does not
//! qualify. The division then applies to all of the operation's spans, however short, so that
//! requests of one kind have one form. Where the SDK knows the names of requests, it marks the
//! connections that they begin in; the rest of such a connection is no request either.
//!
//! The rule is ours; the papers' systems have one trace for each request.

mod division;
mod known;
mod learning;
#[cfg(test)]
mod tests;

pub use division::{Division, connection_ids, request_at, request_id};
pub use known::{Connections, NO_REQUESTS};
pub use learning::{CHILDREN_MIN, CONNECTION_NS_MIN, ConnectionLearning, is_marked};
