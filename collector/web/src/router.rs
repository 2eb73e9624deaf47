//! Routes and navigation.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::Uri;
use axum::response::{Redirect, Response};
use axum::routing::get;
use stroboscope_render::page::NavLink;
use stroboscope_reports::registry::reports;

use crate::asset_files::asset;
use crate::overview;
use crate::range_strip::RangeUse;
use crate::respond::{Head, NoPage, page_now};
use crate::scope::Scope;
use crate::site::{Site, SiteOptions};
use crate::traces;
use crate::verb_page;
use crate::verbs::Verbs;

/// Returns the links in the header of each page.
#[must_use]
pub fn navigation(verbs: &dyn Verbs, options: &SiteOptions) -> Vec<NavLink> {
    let own = |path: &str, name: &str| NavLink {
        path: path.to_owned(),
        name: name.to_owned(),
        group: "",
    };
    let mut links = vec![own("/", "Overview"), own("/traces", "Traces")];
    links.extend(verb_page::links(verbs.pages()));
    for link in &options.links {
        // Insert the link after the last one of its group, or at the end.
        let after = links.iter().rposition(|known| known.group == link.group);
        links.insert(after.map_or(links.len(), |at| at + 1), link.clone());
    }
    links
}

/// Builds the router of a store's pages. The store is read only when pages are requested, or also
/// now if `options.reads_ahead` is set. Pages report a data directory without traces as empty.
pub fn site(verbs: Arc<dyn Verbs>, options: SiteOptions) -> Router {
    let navigation = navigation(&*verbs, &options);
    let names: Vec<&'static str> = verbs.pages().iter().map(|page| page.name).collect();
    let site = Site::new(verbs, options, navigation);
    let mut router = Router::new()
        .route("/", get(overview::overview))
        .route("/fragment/overview", get(overview::fragment))
        .route("/assets/{hash}/{name}", get(asset))
        .merge(traces::routes());
    for name in names {
        let page = get(move |state: State<Site>, scope: Scope, query: RawQuery| {
            verb_page::verb_page(name, state, scope, query)
        });
        router = router.route(&format!("/{name}"), page);
    }
    // The names of subcommands whose page has another address redirect there.
    for page in reports().into_iter().filter_map(|entry| entry.page) {
        if let Some(path) = page.richer_path {
            let redirect = move |RawQuery(query): RawQuery| {
                let query = query.map_or_else(String::new, |query| format!("?{query}"));
                std::future::ready(Redirect::permanent(&format!("{path}{query}")))
            };
            router = router.route(&format!("/{}", page.name), get(redirect));
        }
    }
    router.fallback(no_page).with_state(site)
}

async fn no_page(State(site): State<Site>, scope: Scope, uri: Uri) -> Response {
    let none = NoPage::not_found(format!("There is no page {:?}.", uri.path()));
    page_now(
        &site,
        Head::new("No such page", "", &scope, RangeUse::Not),
        Err(none),
    )
    .await
}
