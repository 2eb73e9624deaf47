//! OTLP ingestion: spans and log records from OpenTelemetry exporters, over gRPC and HTTP, by
//! version 1.11 of the specification. Log records are kept if their trace id assigns them to a
//! request.
//!
//! A request is checked span by span, and logged as it came. It is acknowledged once it is durable.
//! The response names invalid spans (partial success), and the valid ones are kept. Overload is
//! UNAVAILABLE (503) with a retry delay. RESOURCE_EXHAUSTED (413) is a request that is too large,
//! which a retry cannot fix.
//!
//! The protocol has no sequence numbers that identify a retry. A request that was stored, and whose
//! response was lost, comes twice and is stored twice. The analysis uses one of several identical
//! spans.
//!
//! `door` is the common path, `signal` distinguishes spans from log records, `answer` builds
//! responses, and `grpc` and `http` are the transports.

mod answer;
mod door;
mod grpc;
mod http;
mod signal;

pub use door::Door;
pub(crate) use door::ForwardRefusal;
pub(crate) use grpc::{LogsService, TraceService};
pub use http::{OtlpHttpError, OtlpHttpServer};
