//! Tempo.

use axum::Router;

use crate::store::Traces;

/// All routes.
pub fn router(_traces: &Traces) -> Router {
    Router::new()
}
