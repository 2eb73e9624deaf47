//! OTLP in: spans and log records of OpenTelemetry's exporters, over gRPC and over HTTP, by the specification of version
//! 1.11. Of log records those that belong to a request are kept, which is said by their trace id.
//!
//! A request is checked span by span and logged as it came; it is acknowledged when that is durable. What is wrong with
//! some of its spans is said in the answer (partial success), and the others are kept. Overload is UNAVAILABLE (503) with
//! the time after which to come again; RESOURCE_EXHAUSTED (413) is a request that is too large, which no retry mends.
//!
//! The protocol has no numbers by which a retry could be recognised: a request that was stored, and whose answer was
//! lost, comes twice and is stored twice. Of spans that are alike in everything the analysis takes one.
//!
//! `door` is what both have in common, `signal` what is sent, `answer` what is said, `grpc` and `http` how.

mod answer;
mod door;
mod grpc;
mod http;
mod signal;

pub use door::Door;
pub(crate) use grpc::{LogsService, TraceService};
pub use http::{OtlpHttpError, OtlpHttpServer};
