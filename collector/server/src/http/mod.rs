//! The HTTP port: pages and their login, state as JSON, metrics for Prometheus, health, and the
//! burst-config.

mod adoption;
mod body;
mod fleet;
mod login;
mod metrics;
mod model;
mod now;
mod pages;
mod server;

pub use adoption::{Adoption, Other};
pub use pages::{Pages, ServedPort, ServedSite};
pub use server::{HttpError, HttpServer};
