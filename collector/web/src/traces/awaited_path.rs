//! The model that a request's critical path is found by, if it is there soon.
//!
//! It is made of the whole store, and a request's page does not wait for that: it is shown without its path first, and again
//! when the path is known. A large request is shown before the model is begun: both take all there is of the processor.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use stroboscope_query::RequestAsked;

use super::{read, reading};
use crate::answers::MadeOf;
use crate::model::Model;
use crate::respond::data;
use crate::site::Site;

/// For a model of a small store, a page waits: it comes with its path at once.
const PATIENCE: Duration = Duration::from_millis(250);
/// A request of more spans is large.
const LARGE_SPANS: usize = 2_000;

/// What is known of a request's path while its page is made.
#[derive(Clone, Debug)]
pub(super) struct AwaitedPath {
    /// None: nothing yet.
    pub(super) model: Option<Model>,
    /// Whether a fresh one is being made.
    pub(super) is_awaited: bool,
}

impl AwaitedPath {
    /// What the page is kept under, beside its address: without its path it is another one.
    pub(super) fn key(&self) -> &'static str {
        match (&self.model, self.is_awaited) {
            (_, false) => "",
            (Some(_), true) => " by an older model",
            (None, true) => " without its path",
        }
    }

    /// The model to go by: none is none.
    pub(super) fn model(&self) -> Model {
        let none = || Err("it is not known yet".into());
        self.model.clone().unwrap_or_else(none)
    }
}

/// What there is within [`PATIENCE`]; what is not there by then is made all the same, and that of a large request when its
/// page asks for it.
pub(super) async fn path_soon(site: &Site, asked: RequestAsked) -> AwaitedPath {
    let first = path_now(site).await;
    if !first.is_awaited {
        return first;
    }
    // What is read here is kept for the page.
    let (of_site, model) = (site.clone(), first.model());
    let slot = site.answers().slot(MadeOf::Request).await;
    let is_large = reading(move |runtime| {
        let _slot = slot;
        let request = read(&of_site, runtime, &model, asked)?;
        Ok(request.recorded.spans.len() > LARGE_SPANS)
    });
    // One that cannot be read is not made readable by a model.
    if is_large.await.unwrap_or(true) {
        return first;
    }
    // An older model is good enough to begin with.
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

/// Answers when the model is made, or why there is none is known.
pub(super) async fn path_is_known(State(site): State<Site>) -> Response {
    made_model(&site).await
}

async fn made_model(site: &Site) -> Response {
    data(
        site,
        "text/plain; charset=utf-8",
        "model of requests",
        |site, runtime, telling| {
            // Why there is none is for the page to say.
            let _ = site.model(runtime, telling.observer());
            Ok(b"known\n".to_vec())
        },
    )
    .await
}
