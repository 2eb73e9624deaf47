//! Tests of the running collector, as modules of one program, because one program links faster than
//! several.

mod grpc;
mod ingest;
mod live;
mod otlp_grpc;
mod redaction;
