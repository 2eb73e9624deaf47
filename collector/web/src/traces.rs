//! Pages under `/traces` and `/bursts`: a list of requests, each request with its timeline, and a
//! burst of requests for Perfetto.
//!
//! Modules from the bottom up: `asked_id`, `awaited_path`, `instants`, `table`; `columns` with
//! `texts`, `kernel_rows` and `request_columns`, the data of the timeline; `path_sums`,
//! `diagnostics`, `outline_spans`, `failure_part`, `connection_part`, `lock_table`, `link_part`,
//! `links`, `request_page`, `provenance_part`; `list_page`; `span_json`. The page indexes of the
//! store's files locate a request whose whole id is given, so that not all files are read.

mod asked_id;
mod awaited_path;
mod columns;
mod connection_part;
mod diagnostics;
mod failure_part;
mod instants;
mod kernel_rows;
mod link_part;
mod links;
mod list_page;
mod lock_table;
mod outline_spans;
mod path_sums;
mod provenance_part;
mod request_columns;
mod request_page;
mod span_json;
mod table;
#[cfg(test)]
mod tests;
mod texts;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_query::timeline::of_recorded_burst;
use stroboscope_query::{
    KernelPart, PerfettoHostError, QueryError, Request, RequestAsked, RequestList, Selection,
    Source, TimeRange, list_requests, perfetto_trace, request, request_exists, request_of_low,
    span_of,
};
use stroboscope_render::page::{Asset, Html};
use stroboscope_render::show::short_request;
use tokio::runtime::Handle;
use url::form_urlencoded;

use self::asked_id::{asked_span, asked_trace};
use self::awaited_path::{path_is_known, path_soon};
use self::list_page::{ListQuery, form, found};
use self::provenance_part::provenance_part;
use crate::model::Model;
use crate::progress::ProgressSender;
use crate::range_strip::RangeUse;
use crate::respond::{Head, Key, NoPage, data, page, page_now};
use crate::scope::Scope;
use crate::site::Site;

/// Time before and after a given moment within which a request must begin to be found by the low
/// half of its id, in ns.
const HOLDER_WITHIN_NS: i64 = 60_000_000_000;
/// Number of spans in the part of a too large request that its error page offers.
const PART_SPANS: usize = 5_000;
/// Number of hexadecimal digits in the low half of an id. Kernel recordings contain only this half.
const LOW_DIGITS: usize = 16;

pub(crate) fn routes() -> Router<Site> {
    Router::new()
        .route("/traces", get(list))
        .route("/traces/{id}", get(one))
        .route("/traces/{id}/columns", get(columns))
        .route("/traces/{id}/path", get(path_is_known))
        .route("/traces/{id}/spans/{span}", get(span))
        .route("/traces/{id}/perfetto", get(perfetto))
        .route("/bursts/{at}/perfetto", get(burst_perfetto))
}

/// Converts a failed query to an error page.
fn no_page(error: &QueryError) -> NoPage {
    let message = format!("{error}.");
    match error {
        QueryError::Empty { .. } | QueryError::NoSuchTrace { .. } => NoPage::not_found(message),
        QueryError::LargeTrace { lack, .. } | QueryError::Memory { lack, .. } => {
            NoPage::lack(*lack, error.to_string())
        }
        _ => NoPage::failed(message),
    }
}

/// Converts an error of reading a request to an error page. If the request is too large, the page
/// offers a part of it.
fn no_request(error: &QueryError) -> NoPage {
    let mut none = no_page(error);
    if none.status == StatusCode::PAYLOAD_TOO_LARGE {
        none.message += &format!(
            " Its first spans are shown by ?spans={PART_SPANS} at the end of the address."
        );
    }
    none
}

/// Runs a reading on a blocking thread.
async fn reading<T: Send + 'static>(
    read: impl FnOnce(&Handle) -> Result<T, NoPage> + Send + 'static,
) -> Result<T, NoPage> {
    let handle = Handle::current();
    let done = tokio::task::spawn_blocking(move || read(&handle)).await;
    done.unwrap_or_else(|_| {
        Err(NoPage::failed(
            "Reading the store panicked; the log has the details.",
        ))
    })
}

async fn list(State(site): State<Site>, scope: Scope, RawQuery(query): RawQuery) -> Response {
    let asked = ListQuery::of(&query.unwrap_or_default());
    let mut head = Head::new("Traces", "/traces", &scope, RangeUse::RangeAndRoot);
    let first = asked.first();
    head.about = format!("Requests, the {first} first. Each links to its timeline.");
    head.before = form(&asked, &scope);
    let wanted = match scope.check().and(asked.wanted()) {
        Ok(wanted) => wanted,
        Err(wrong) => return page_now(&site, head, Err(NoPage::bad_request(wrong))).await,
    };
    let key = scope.key(&asked.address());
    page(&site, head, &key, move |site, runtime, telling| {
        let selection = scope.selection(site, runtime);
        let selection = Selection {
            include_incomplete: true,
            ..selection.map_err(NoPage::bad_request)?
        };
        let list = listed(site, runtime, telling, (selection, scope.root(), wanted));
        match list {
            Ok(list) => {
                let root = scope.root();
                Ok(found(&asked, (selection.range, root.as_deref()), &list))
            }
            Err(QueryError::Empty { .. }) => Ok(empty()),
            Err(error) => Err(no_page(&error)),
        }
    })
    .await
}

fn listed(
    site: &Site,
    runtime: &Handle,
    telling: &ProgressSender,
    (selection, root, wanted): (Selection, Option<String>, stroboscope_query::RequestsWanted),
) -> Result<RequestList, QueryError> {
    let source = site.source(runtime, telling.observer())?.with_root(root);
    let model = site.model(runtime, telling.observer());
    let alignment = model
        .as_ref()
        .ok()
        .and_then(|model| model.alignment.as_ref());
    list_requests(&source, selection, alignment, &wanted)
}

fn empty() -> Html {
    let mut html = Html::new();
    html.markup(
        "<div class=\"notice\"><p>The store holds no requests yet. Data that services ship to \
     `stroboscope collect` appears here within ",
    )
    .markup("seconds; `stroboscope import` loads recordings of other tools.</p></div>\n");
    html
}

/// Returns the first value of a parameter in the query of an address; `None` if it is missing.
fn asked_for(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let (_, value) = pairs.find(|(known, _)| known == name)?;
    Some(value.into_owned())
}

/// Returns the part of a request that an address asks for.
fn asked_of(id: u128, query: Option<&str>) -> RequestAsked {
    let spans_max = asked_for(query, "spans").and_then(|spans| spans.parse().ok());
    RequestAsked { id, spans_max }
}

/// Returns the query that requests this part of a request; empty for the whole request.
fn part(asked: RequestAsked) -> String {
    let spans = asked.spans_max;
    spans.map_or_else(String::new, |spans| format!("?spans={spans}"))
}

/// Sends a request's page. If the address has only the low half of an id, as in kernel recordings,
/// redirects to the request with that half. The parameter `at` restricts the search for the half to
/// requests that began near that instant.
async fn one(
    State(site): State<Site>,
    Path(text): Path<String>,
    scope: Scope,
    RawQuery(query): RawQuery,
) -> Response {
    let near_ns = asked_for(query.as_deref(), "at").and_then(|at| at.parse::<i64>().ok());
    let of_site = site.clone();
    let name = text.clone();
    let there = reading(move |runtime| {
        let id = asked_trace(&name)?;
        let source = of_site.opened(runtime).map_err(|error| no_page(&error))?;
        match request_exists(&source, id).map_err(|error| no_page(&error))? {
            true => Ok((id, id)),
            // Kernel recordings and tables use this short form of ids.
            false if name.len() == LOW_DIGITS || near_ns.is_some() => {
                whole_id(&source, id, near_ns).map(|whole| (id, whole))
            }
            false => Err(no_trace(&source)),
        }
    })
    .await;
    let title = format!("Trace {}", short_request(&shown(&text)));
    let mut head = Head::new(title, "/traces", &scope, RangeUse::Below);
    head.scripts = &[Asset::Timeline, Asset::Perfetto, Asset::Awaited];
    let id = match there {
        Ok((asked, whole)) if asked != whole => {
            // The fragment selects the moment that the link refers to.
            let moment = near_ns.map_or_else(String::new, |at_ns| format!("#at={at_ns}"));
            let query = Some(scope.query()).filter(|query| !query.is_empty());
            let query = query.map_or_else(String::new, |query| format!("?{query}"));
            let address = format!("/traces/{whole:032x}{query}{moment}");
            return Redirect::temporary(&address).into_response();
        }
        Ok((id, _)) => id,
        Err(none) => {
            head.scripts = &[];
            return page_now(&site, head, Err(none)).await;
        }
    };
    let asked = asked_of(id, query.as_deref());
    let path = path_soon(&site, asked).await;
    let key = format!("/traces/{id:032x}{}{}", part(asked), path.key());
    page(
        &site,
        head,
        Key::of_request(key),
        move |site, runtime, _| {
            let request = read(site, runtime, &path.model(), asked)?;
            let mut html = request_page::request_page(&request, &path);
            provenance_part(&mut html, site, id);
            Ok(html)
        },
    )
    .await
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short + "…"
    } else {
        short
    }
}

/// Finds the whole id of a request from its low half. Searches the requests that began near
/// `at_ns`, or all if it is `None`.
fn whole_id(source: &Source, id: u128, at_ns: Option<i64>) -> Result<u128, NoPage> {
    if id >> 64 != 0 {
        return Err(no_trace(source));
    }
    let range = at_ns.map_or_else(TimeRange::default, |at_ns| TimeRange {
        since_ns: Some(at_ns.saturating_sub(HOLDER_WITHIN_NS)),
        until_ns: Some(at_ns.saturating_add(HOLDER_WITHIN_NS)),
    });
    let found = request_of_low(source, id as u64, range).map_err(|error| no_page(&error))?;
    found.ok_or_else(|| no_trace(source))
}

fn no_trace(source: &Source) -> NoPage {
    NoPage::not_found(format!(
        "There is no trace with this id in {}. Perhaps it was never recorded, or has expired; an id is 1 to 32 \
         hexadecimal digits, its last 16, or the name its source gave it.",
        source.name()
    ))
}

fn read(
    site: &Site,
    runtime: &Handle,
    model: &Model,
    asked: RequestAsked,
) -> Result<Arc<Request>, NoPage> {
    site.request(runtime, model, asked, || {
        let source = site.opened(runtime).map_err(|error| no_page(&error))?;
        let inference = model.as_ref().ok().map(|model| &**model);
        let found = request(&source, inference, asked).map_err(|error| no_request(&error))?;
        found.ok_or_else(|| NoPage::not_found("There is no trace with this id any more."))
    })
}

async fn columns(
    State(site): State<Site>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let id = match asked_trace(&text) {
        Ok(id) => id,
        Err(none) => return plain(none),
    };
    let asked = asked_of(id, query.as_deref());
    let path = path_soon(&site, asked).await;
    let key = format!("/traces/{id:032x}/columns{}{}", part(asked), path.key());
    data(
        &site,
        columns::CONTENT_TYPE,
        Key::of_request(key),
        move |site, runtime, _| {
            let request = read(site, runtime, &path.model(), asked)?;
            Ok(request_columns::columns_of(&request).encode())
        },
    )
    .await
}

async fn span(
    State(site): State<Site>,
    Path((text, span)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let asked = asked_trace(&text).and_then(|id| Ok((id, asked_span(&span)?)));
    let (id, span_id) = match asked {
        Ok(asked) => asked,
        Err(none) => return plain(none),
    };
    let asked = asked_of(id, query.as_deref());
    let key = Key::of_request(format!("/traces/{id:032x}/spans/{span_id:016x} {asked:?}"));
    data(&site, "application/json", key, move |site, runtime, _| {
        let source = site.opened(runtime).map_err(|error| no_page(&error))?;
        let found = span_of(&source, asked, span_id).map_err(|error| no_page(&error))?;
        let none = || NoPage::not_found("There is no such span in this trace, or no such trace.");
        let (span, attributes, start_ns) = found.ok_or_else(none)?;
        Ok(span_json::span_json(&span, &attributes, start_ns)
            .to_string()
            .into_bytes())
    })
    .await
}

async fn perfetto(
    State(site): State<Site>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let id = match asked_trace(&text) {
        Ok(id) => id,
        Err(none) => return plain(none),
    };
    let host = asked_for(query.as_deref(), "host");
    let asked = asked_of(id, query.as_deref());
    let key = Key::of_request(format!("/traces/{id:032x}/perfetto {asked:?} {host:?}"));
    let made = data(&site, PFTRACE, key, move |site, runtime, _| {
        let none: Model = Err(Arc::from(""));
        let request = read(site, runtime, &none, asked)?;
        pftrace([&request.recorded], &request.kernel, host.as_deref())
    });
    as_file(made.await, &format!("{id:032x}.pftrace"))
}

/// Sends the burst that contains an instant, or the next one after it, as a Perfetto trace: at most
/// a second of it.
async fn burst_perfetto(
    State(site): State<Site>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(at_ns) = text.parse::<i64>() else {
        return plain(NoPage::bad_request(format!(
            "{:?} is not an instant: /bursts/NANOSECONDS/perfetto, since the Unix epoch.",
            shown(&text)
        )));
    };
    let host = asked_for(query.as_deref(), "host");
    let key = format!("/bursts/{at_ns}/perfetto {host:?}");
    let made = data(&site, PFTRACE, &key, move |site, runtime, _| {
        let source = site.opened(runtime).map_err(|error| no_page(&error))?;
        let view = of_recorded_burst(&source, at_ns).map_err(|error| match error {
            none @ QueryError::NoBurst { .. } => NoPage::not_found(format!("{none}.")),
            other => no_page(&other),
        })?;
        pftrace(&view.requests, &view.kernel, host.as_deref())
    });
    as_file(made.await, &format!("burst-{at_ns}.pftrace"))
}

/// Content type of a Perfetto trace.
const PFTRACE: &str = "application/octet-stream";

fn pftrace<'a>(
    requests: impl IntoIterator<Item = &'a TraceRecords>,
    kernel: &[KernelPart],
    host: Option<&str>,
) -> Result<Vec<u8>, NoPage> {
    perfetto_trace(requests, kernel, host).map_err(|error| match error {
        PerfettoHostError::OneOf(hosts) => NoPage::bad_request(format!(
            "A Perfetto trace shows one host: ?host= one of {}.",
            hosts.join(", ")
        )),
        unknown @ PerfettoHostError::Unknown { .. } => {
            NoPage::not_found(format!("No such trace: {unknown}."))
        }
    })
}

fn as_file(mut response: Response, name: &str) -> Response {
    let named = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    if response.status() == StatusCode::OK
        && let Ok(named) = named
    {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_DISPOSITION, named);
    }
    response
}

fn plain(none: NoPage) -> Response {
    (none.status, none.message + "\n").into_response()
}
