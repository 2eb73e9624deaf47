//! Jaeger's query API: v1 for Grafana and older Jaeger UIs, and v3 for newer ones. Jaeger itself
//! serves both.

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

const NO_ROUTE: &str = "Jaeger's query API is below /api/: services, operations, traces, dependencies, and v3/ of these; this \
                        port serves no pages\n";

/// Returns the routes for a separate port. Other paths get a 404 with a hint.
pub fn alone(traces: &Traces) -> Router {
    router(traces).fallback(async || (StatusCode::NOT_FOUND, NO_ROUTE))
}

/// Returns the supported routes of Jaeger's API, at `/api/…`.
pub fn router(traces: &Traces) -> Router {
    let door = Door::of(traces);
    v1::routes().merge(v3::routes()).with_state(door)
}
