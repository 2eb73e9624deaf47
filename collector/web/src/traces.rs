//! Everything under `/traces`.

use axum::Router;

use crate::site::Site;

pub(crate) fn routes() -> Router<Site> {
    Router::new()
}
