//! The tests of the running collector, each a module: one program links in a fraction of the time of several.

mod grpc;
mod ingest;
mod live;
