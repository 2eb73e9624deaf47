//! The HTTP door: a page for people, metrics for Prometheus, health, and the burst-config.

mod fleet;
mod metrics;
mod model;
mod now;
mod server;

pub use server::{HttpError, HttpServer, Pages, ServedPort, ServedSite};
