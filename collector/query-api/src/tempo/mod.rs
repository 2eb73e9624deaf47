//! Tempo's query API, as far as Grafana's Explore and Perses need it: a trace by id, search by
//! TraceQL, and the available attributes.

mod by_id;
mod fields;
mod search;
mod tags;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::answer::{Door, Refusal};
use crate::store::Traces;

const NO_ROUTE: &str = "of Tempo's query API there are /ready, /api/echo, /api/traces/ID, /api/v2/traces/ID, /api/search, \
                        /api/search/tags, /api/search/tag/TAG/values, /api/v2/search/tags and \
                        /api/v2/search/tag/TAG/values; metrics of TraceQL are not supported\n";

/// Returns the supported routes of Tempo's API, at `/api/…` and `/ready`. Other paths get a 404
/// with a hint.
pub fn router(traces: &Traces) -> Router {
    Router::new()
        .route("/api/echo", get(async || "echo"))
        .route("/ready", get(async || "ready"))
        .merge(by_id::routes())
        .merge(search::routes())
        .merge(tags::routes())
        .fallback(async || (StatusCode::NOT_FOUND, NO_ROUTE))
        .with_state(Door::of(traces))
}

/// Returns the error as text, which clients show.
fn refused(refusal: &Refusal) -> Response {
    refusal.response(format!("{refusal}\n"))
}
