//! Jaeger's query API: v1, as Grafana and older Jaeger UIs ask, and v3, as newer ones do. Jaeger itself serves either half.

mod find;
mod summary;
mod trace;
mod v1;
mod v3;

pub use summary::summary_json;

use axum::Router;
use axum::http::StatusCode;

use crate::answer::Door;
use crate::store::Traces;

const NO_ROUTE: &str = "Jaeger's query API is below /api/: services, operations, traces, dependencies, and v3/ of these; there \
                        are no pages at this port\n";

/// The routes at a port of their own, which says of others that they are not there.
pub fn alone(traces: &Traces) -> Router {
    router(traces).fallback(async || (StatusCode::NOT_FOUND, NO_ROUTE))
}

/// All routes, at `/api/…`.
pub fn router(traces: &Traces) -> Router {
    let door = Door::of(traces);
    v1::routes().merge(v3::routes()).with_state(door)
}
