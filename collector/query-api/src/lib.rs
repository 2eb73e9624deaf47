//! Query APIs with which other tools read a store: Jaeger's, in versions 1 and 3, and the part of
//! Tempo's that Grafana's Explore and Perses need.
//!
//! The modules, from the bottom up; each depends only on those before it:
//!
//! - [`trace`]: a trace as it is stored, with the types of its attributes.
//! - `clocks`: differences between the hosts' clocks, and the correction of times.
//! - `slices`: splits a range of time, the latest hours first.
//! - `catalogue`: services and operations, from a cache.
//! - [`store`]: traces by id, and the latest traces that satisfy a condition.
//! - `attributes`: names and values of attributes.
//! - `dependencies`: calls between services.
//! - `parameters`: parameters of a request.
//! - `answer`: errors of requests, and threads for blocking reads.
//! - `written`: responses in pieces, within the memory of a query.
//! - [`jaeger`]: Jaeger's responses and routes.
//! - [`tempo`]: Tempo's responses and routes.
//!
//! Conversions do not read the store. This crate does not write to the store, and does not depend
//! on the server.

mod answer;
mod attributes;
mod catalogue;
mod clocks;
mod dependencies;
pub mod jaeger;
mod parameters;
mod slices;
pub mod store;
pub mod tempo;
pub mod trace;
mod written;

use axum::Router;
use store::Traces;

/// Returns the routes of both APIs for one port: Jaeger's at `/api/…`, Tempo's below `/tempo`,
/// because both have `/api/traces/{id}`.
pub fn router(traces: &Traces) -> Router {
    jaeger::router(traces).nest("/tempo", tempo::router(traces))
}
