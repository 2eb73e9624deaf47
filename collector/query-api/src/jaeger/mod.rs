//! Jaeger's query API: v1, as Grafana and older Jaeger UIs ask, and v3, as newer ones do. Jaeger itself serves either half.

mod find;
mod summary;
mod trace;
mod v1;
mod v3;

pub use summary::summary_json;
pub use trace::trace_json;

use axum::Router;

use crate::answer::Door;
use crate::store::Traces;

/// All routes, at `/api/…`.
pub fn router(traces: &Traces) -> Router {
    let door = Door::of(traces);
    v1::routes().merge(v3::routes()).with_state(door)
}
