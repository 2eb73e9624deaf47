//! All of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use axum::routing::get;
use stroboscope_present::page::NavLink;

use crate::asset_files::asset;
use crate::respond::{Head, NoPage, page_now};
use crate::site::{Site, SiteOptions};
use crate::traces;
use crate::verbs::Verbs;

/// The pages of a store. What they read of the store, they read when they are asked for; a store that is not there yet is
/// said to be empty.
pub fn site(verbs: Arc<dyn Verbs>, options: SiteOptions) -> Router {
    let mut navigation = vec![NavLink {
        path: "/".to_owned(),
        name: "Overview".to_owned(),
        group: "",
    }];
    navigation.push(NavLink {
        path: "/traces".to_owned(),
        name: "Traces".to_owned(),
        group: "",
    });
    navigation.extend(options.links.iter().cloned());
    let site = Site::new(verbs, options, navigation);
    Router::new()
        .route("/assets/{name}", get(asset))
        .merge(traces::routes())
        .fallback(no_page)
        .with_state(site)
}

async fn no_page(State(site): State<Site>, uri: Uri) -> Response {
    let none = NoPage::not_found(format!("There is no page {:?}.", uri.path()));
    page_now(&site, &Head::new("No such page", ""), Err(none))
}
