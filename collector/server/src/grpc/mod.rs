//! The gRPC server of batches, forwarded data, directives and OTLP.

mod agents;
mod control;
mod sender;
mod server;
mod service;
mod ship;
mod unknown_method;

pub use agents::Agents;
pub use control::BurstControl;
pub use server::{IngestError, ListenAddresses, Server};
pub(crate) use unknown_method::otlp_message;
