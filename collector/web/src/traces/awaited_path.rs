//! Finds the model for a request's critical path, if it will be available soon.
//!
//! The model depends on the whole store, so a request's page waits only briefly for it. Without an
//! older model, the page then lacks the path. A script reloads the page when the path is known, or
//! offers to if the user has touched the page. A large request is shown before the computation of
//! the model begins, because both use the whole processor.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use stroboscope_query::RequestAsked;

use super::{read, reading};
use crate::answer_cache::MadeOf;
use crate::model::Model;
use crate::respond::data;
use crate::site::Site;

/// Maximum time for which a page waits for a model; that of a small store is usually ready by then.
const PATIENCE: Duration = Duration::from_millis(250);
/// Number of spans above which a request is large.
const LARGE_SPANS: usize = 2_000;

/// Model of a request's path while its page is built.
#[derive(Clone, Debug)]
pub(super) struct AwaitedPath {
    /// The model, or the reason for its absence; `None` if neither is known yet.
    pub(super) model: Option<Model>,
    /// True until a fresh model is known.
    pub(super) is_awaited: bool,
}

impl AwaitedPath {
    /// Returns a suffix for the cache key of an answer whose content depends on the model.
    pub(super) fn key(&self) -> &'static str {
        match (&self.model, self.is_awaited) {
            (_, false) => "",
            (Some(_), true) => " by an older model",
            (None, true) => " without its path",
        }
    }

    /// Returns the model, or an error if it is not known yet.
    pub(super) fn model(&self) -> Model {
        let none = || Err("it is not known yet".into());
        self.model.clone().unwrap_or_else(none)
    }
}

/// Waits up to [`PATIENCE`] for the model, unless an older one is known. Its computation continues
/// after that; for a large request, it begins only when the page asks for it.
pub(super) async fn path_soon(site: &Site, asked: RequestAsked) -> AwaitedPath {
    let first = path_now(site).await;
    if !first.is_awaited {
        return first;
    }
    // The request that is read here is cached; the page uses it unless it gets another model.
    let (of_site, model) = (site.clone(), first.model());
    let slot = site.answers().slot(MadeOf::Request).await;
    let is_large = reading(move |runtime| {
        let _slot = slot;
        let request = read(&of_site, runtime, &model, asked)?;
        Ok(request.recorded.spans.len() > LARGE_SPANS)
    });
    // Without a readable request, the page needs no model.
    if is_large.await.unwrap_or(true) {
        return first;
    }
    // With an older model, the page is sent at once.
    let patience = match first.model {
        Some(_) => Duration::ZERO,
        None => PATIENCE,
    };
    let made = tokio::time::timeout(patience, made_model(site)).await;
    match made {
        Ok(_) => path_now(site).await,
        Err(_) => first,
    }
}

async fn path_now(site: &Site) -> AwaitedPath {
    let of_site = site.clone();
    let known = reading(move |runtime| Ok(of_site.known_model(runtime))).await;
    let known = known.ok().flatten();
    AwaitedPath {
        is_awaited: known.as_ref().is_none_or(|known| !known.is_fresh),
        model: known.map(|known| known.model),
    }
}

/// Responds when the model is computed, or the reason for its absence is known.
pub(super) async fn path_is_known(State(site): State<Site>) -> Response {
    made_model(&site).await
}

async fn made_model(site: &Site) -> Response {
    data(
        site,
        "text/plain; charset=utf-8",
        "model of requests",
        |site, runtime, telling| {
            // If there is no model, the page reports the reason.
            let _ = site.model(runtime, telling.observer());
            Ok(b"known\n".to_vec())
        },
    )
    .await
}
