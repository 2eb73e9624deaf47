//! The running collector.
//!
//! The modules, from the bottom up; each knows only those before it:
//!
//! - [`own_traces`]: what the collector records of itself.
//! - [`capabilities`]: what threads may do beyond their user's rights; on Linux.
//! - `pace`: how often something is said in the log.
//! - [`pool`]: what is lent for a while: bytes, connections, requests.
//! - [`live`]: what the traces say while they arrive.
//! - [`intake`]: the way in: ledger, log, store, in the order that loses nothing.
//! - [`kernel_recording`]: the kernel's events, on their way into the store; on Linux.
//! - [`redact`]: what is dropped or hashed before it is written.
//! - [`doors`]: the sockets: TLS, tokens, and how much comes in at a time.
//! - `otlp`: what OpenTelemetry's exporters send, over gRPC and HTTP.
//! - [`ingest`], [`http`]: the servers, gRPC and HTTP.
//! - [`collect`]: all of the above, running.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

pub mod capabilities;
pub mod collect;
pub mod doors;
pub mod http;
pub mod ingest;
pub mod intake;
pub mod kernel_recording;
pub mod live;
pub mod otlp;
pub mod own_traces;
pub mod pace;
pub mod pool;
pub mod redact;
