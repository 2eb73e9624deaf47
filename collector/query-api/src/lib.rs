//! Doors that other tools read a store by: the query API of Jaeger, v1 and v3, and that of Tempo, as far as Grafana's Explore
//! needs it.
//!
//! The modules, from the bottom up; each knows only those before it:
//!
//! - [`trace`]: a trace as it is stored, with the types of its attributes.
//! - `clocks`: what is known of the hosts' clocks, and what that changes.
//! - `slices`: a span of time, the latest hours first.
//! - [`store`]: traces by id, and the latest of which something holds.
//! - `catalogue`: services and operations that there are, from a cache.
//! - `attributes`: names and values of attributes.
//! - `dependencies`: which service calls which.
//! - `parameters`: what a request asks for, as texts.
//! - `answer`: how errors are told, and that what reads the disk does not stop others.
//! - `written`: answers in pieces, within the memory of a query.
//! - [`jaeger`]: Jaeger's answers, and its routes.
//! - [`tempo`]: the same of Tempo.
//!
//! Conversions are pure functions, and take no part in reading. Nothing here writes, and nothing knows the collector.

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

/// Both doors on one port: Jaeger's at `/api/…`, Tempo's below `/tempo`, as both have an `/api/traces/{id}`.
pub fn router(traces: &Traces) -> Router {
    jaeger::router(traces).nest("/tempo", tempo::router(traces))
}
