//! OTLP ingestion: spans and log records from OpenTelemetry exporters, over gRPC and HTTP. Log
//! records are kept if their trace id assigns them to a request.
//!
//! The collector checks each span or log record, and appends the request to the write-ahead log as
//! it came, but decompressed and redacted. It acknowledges the request once it is durable, or at
//! once if nothing in it is kept. The response has the problem of the first rejected record
//! (partial success); accepted ones are kept. Overload is answered with UNAVAILABLE (503) and a
//! retry delay. A request that is too large is answered with RESOURCE_EXHAUSTED (413), as a retry
//! cannot fix it.
//!
//! The protocol has no sequence numbers that identify a retry. If the response to a stored request
//! is lost, the client may send the request again, and it is stored twice. The analysis uses one of
//! several spans with the same id.
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
