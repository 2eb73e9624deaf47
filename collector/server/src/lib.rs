//! The running collector.
//!
//! The modules, from the bottom up; each uses only those before it:
//!
//! - [`self_tracing`]: traces that the collector records of itself.
//! - [`capabilities`]: drops capabilities of threads; on Linux.
//! - `line_limit`: rate limits for log messages.
//! - [`pool`]: quotas of bytes, connections and requests.
//! - [`live`]: a model that learns from traces while they arrive.
//! - [`ingest`]: makes data durable in the log, and flushes the log to the store or a gateway.
//! - [`kernel_recording`]: records kernel events into the store; on Linux.
//! - [`redact`]: drops, hashes or masks values before they are written.
//! - [`net`]: listening sockets with TLS, tokens and limits.
//! - `otlp`: receives from OpenTelemetry exporters, over gRPC and HTTP.
//! - [`grpc`]: the gRPC server, and the control of burst-config and policy.
//! - [`forward`]: forwards the log of an agent to a gateway.
//! - [`http`]: the HTTP server of pages and metrics.
//! - [`worker`]: the gRPC server of a worker, which runs shards of reports.
//! - [`collect`]: starts and stops a complete collector.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

pub mod capabilities;
pub mod collect;
pub mod forward;
pub mod grpc;
pub mod http;
pub mod ingest;
pub mod kernel_recording;
pub mod line_limit;
pub mod live;
pub mod net;
pub mod otlp;
pub mod pool;
pub mod redact;
pub mod self_tracing;
pub mod worker;
