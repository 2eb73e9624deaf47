//! The gRPC server: ship and control streams.

mod control;
mod sender;
mod server;
mod service;
mod ship;
mod stranger;

pub use control::BurstControl;
pub use server::{IngestError, ListenAddresses, Server};
pub(crate) use stranger::otlp_message;
