//! The gRPC door: ship and control streams.

mod control;
mod server;
mod service;
mod ship;

pub use control::BurstControl;
pub use server::{Doors, IngestError, Server};
