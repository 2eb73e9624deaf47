//! The HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use stroboscope::tower::ServerLayer;
use stroboscope_burst::BurstConfig;
use stroboscope_render::page::CarriedParameters;
use tower::ServiceExt as _;

use super::adoption::Adoption;
use super::body::{BODY_BYTES_MAX, BodyText};
use super::pages::{Pages, ServedPort, ServedSite};
use super::{fleet, login, metrics, model, now};
use crate::grpc::otlp_message;
use crate::net::{Answer, Listener, ListenerSetup, PortName, Ports, Rejection, wrong_port};

const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Failure to listen on an HTTP address, with the flag that sets another address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; {flag} takes another address")]
pub struct HttpError {
    address: SocketAddr,
    flag: &'static str,
    source: std::io::Error,
}

/// A running HTTP server.
#[derive(Debug)]
pub struct HttpServer {
    listening: Listener,
    address: SocketAddr,
}

impl HttpServer {
    /// Listens and serves the pages of a collector; port 0 picks a free port.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on the address.
    pub async fn start(address: SocketAddr, pages: Pages) -> Result<Self, HttpError> {
        let doors = pages.doors.clone();
        let mut router = Router::new();
        if pages.site.is_none() {
            router = router.route("/", get(fleet_page));
        }
        let router = router
            .route("/fleet", get(fleet_page).post(set_from_form))
            .route("/model", get(model_page))
            .route("/api/model", get(live_model))
            .route("/api/critical-path", get(recent_path))
            .route("/api/processes", get(processes))
            .route("/api/doors", get(doors_now))
            .route("/api/burst-config", get(adoption))
            .route("/burst-config", get(burst_config).post(set_burst_config))
            // If this process records, the routes above are traced. The routes below are not,
            // because machines request most of them all the time.
            .layer(ServerLayer::new())
            .route("/metrics", get(prometheus))
            .route("/metrics/requests", get(request_metrics))
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .fallback(no_page)
            .with_state(pages);
        Self::listen_with_login(address, doors, router).await
    }

    /// Listens and serves only the pages of a store, without those of a collector.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on the address.
    pub async fn start_site(
        address: SocketAddr,
        doors: Arc<Ports>,
        router: Router,
    ) -> Result<Self, HttpError> {
        let router = router.route("/healthz", get(async || "ok\n"));
        Self::listen_with_login(address, doors, router).await
    }

    /// Listens and serves a service with a port of its own.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on the address.
    pub async fn start_port(port: ServedPort, doors: Arc<Ports>) -> Result<Self, HttpError> {
        let (address, flag) = (port.address, port.flag);
        Self::listen(address, flag, doors, port.router, turned_away).await
    }

    /// Listens and serves the router and the login of browsers.
    async fn listen_with_login(
        address: SocketAddr,
        doors: Arc<Ports>,
        router: Router,
    ) -> Result<Self, HttpError> {
        let router = router.merge(login::routes(&doors));
        Self::listen(address, "--http", doors, router, to_login).await
    }

    async fn listen(
        address: SocketAddr,
        flag: &'static str,
        doors: Arc<Ports>,
        router: Router,
        answer: Answer,
    ) -> Result<Self, HttpError> {
        let opening = ListenerSetup {
            doors,
            name: PortName::Pages,
            router: router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)),
            answer,
        };
        let error = |source| HttpError {
            address,
            flag,
            source,
        };
        let (listening, address) = opening.tcp(address).await.map_err(error)?;
        Ok(Self { listening, address })
    }

    /// Returns the address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests in flight for up to 2 seconds, then closes all connections.
    pub async fn stop(self) {
        let _ = self.listening.stop(STOP_PATIENCE).await;
    }
}

/// Returns the response to a rejected request: its status and a line with the reason.
fn turned_away(_: &Parts, denied: &Rejection) -> Response {
    (denied.http(), format!("{}\n", denied.message)).into_response()
}

/// Redirects a browser without a valid token to the login; rejects other requests.
fn to_login(parts: &Parts, denied: &Rejection) -> Response {
    login::lead(parts, denied).unwrap_or_else(|| turned_away(parts, denied))
}

async fn fleet_page(State(shared): State<Pages>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    match CarriedParameters::of(&query) {
        Ok(carried) => {
            in_the_background(move || fleet::answer(&shared, (&carried, &query), None)).await
        }
        Err(wrong) => (StatusCode::BAD_REQUEST, wrong + "\n").into_response(),
    }
}

/// Sets the burst-config from the form of `/fleet`, and renders the page with the result.
async fn set_from_form(
    State(shared): State<Pages>,
    RawQuery(query): RawQuery,
    BodyText(body): BodyText,
) -> Response {
    let query = query.unwrap_or_default();
    let carried = match CarriedParameters::of(&query) {
        Ok(carried) => carried,
        Err(wrong) => return (StatusCode::BAD_REQUEST, wrong + "\n").into_response(),
    };
    let asked = url::form_urlencoded::parse(body.as_bytes())
        .find(|(name, _)| name == "config")
        .map(|(_, text)| text.into_owned());
    let set = set_config(&shared, asked.as_deref().unwrap_or_default());
    in_the_background(move || fleet::answer(&shared, (&carried, &query), Some(&set))).await
}

async fn recent_path(State(shared): State<Pages>) -> Response {
    let Some(live) = shared.intake.live().cloned() else {
        return no_live_model();
    };
    in_the_background(move || Json(now::RecentPath::of(&live).json())).await
}

async fn processes(State(shared): State<Pages>) -> Response {
    in_the_background(move || Json(now::Processes::of(&shared).json())).await
}

async fn adoption(State(shared): State<Pages>) -> Response {
    in_the_background(move || Json(Adoption::of(&shared))).await
}

async fn doors_now(State(shared): State<Pages>) -> Response {
    Json(now::doors_json(&shared)).into_response()
}

fn no_live_model() -> Response {
    let off = "there is no live model: --no-live-model leaves it out, and an agent has none\n";
    (StatusCode::NOT_FOUND, off).into_response()
}

/// Runs a handler on a blocking thread, because it may take some milliseconds.
async fn in_the_background<T: IntoResponse + Send + 'static>(
    page: impl FnOnce() -> T + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(page).await {
        Ok(page) => page.into_response(),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the page could not be generated\n",
        )
            .into_response(),
    }
}

async fn prometheus(State(shared): State<Pages>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, metrics::render(&shared)).into_response()
}

/// Serves the totals of requests, as OpenMetrics if the client accepts it.
async fn request_metrics(State(shared): State<Pages>, headers: HeaderMap) -> Response {
    let Some(live) = shared.intake.live().cloned() else {
        return no_live_model();
    };
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let format = metrics::requests::Format::preferred(accepted);
    let duty = shared.control.current().map(BurstConfig::duty);
    let kind = [(header::CONTENT_TYPE, format.content_type())];
    let text = move || {
        (
            kind,
            metrics::requests::render(&live.totals(), duty, format),
        )
    };
    in_the_background(text).await
}

async fn live_model(State(shared): State<Pages>) -> Response {
    let Some(live) = shared.intake.live().cloned() else {
        return no_live_model();
    };
    in_the_background(move || Json(model::render(&live))).await
}

/// Serves the store's page of the model to browsers if there is a site, and otherwise the live
/// model.
async fn model_page(State(shared): State<Pages>, request: Request) -> Response {
    let site = shared.site.as_ref();
    match site.filter(|_| login::accepts_page(request.headers())) {
        Some(site) => site.router.clone().oneshot(request).await.into_response(),
        None => live_model(State(shared)).await,
    }
}

async fn health(State(shared): State<Pages>) -> (StatusCode, String) {
    state(shared.intake.health())
}

async fn ready(State(shared): State<Pages>) -> (StatusCode, String) {
    state(shared.intake.ready())
}

fn state(found: Result<(), String>) -> (StatusCode, String) {
    match found {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn burst_config(State(shared): State<Pages>) -> String {
    shared
        .control
        .current()
        .map_or_else(|| "none set\n".to_owned(), |config| format!("{config}\n"))
}

async fn set_burst_config(
    State(shared): State<Pages>,
    BodyText(body): BodyText,
) -> (StatusCode, String) {
    match set_config(&shared, &body) {
        Ok(said) => (StatusCode::OK, said + "\n"),
        Err(wrong) => (StatusCode::BAD_REQUEST, wrong + "\n"),
    }
}

/// Sets the burst-config. Returns the config and the instant of the switch as text. Returns an
/// error if `text` is no burst-config, or if this collector is an agent.
fn set_config(shared: &Pages, text: &str) -> Result<String, String> {
    if let Some(upstream) = shared.control.upstream() {
        return Err(format!(
            "this collector is an agent; set the burst-config at the collector that it forwards to ({upstream})"
        ));
    }
    let parsed = BurstConfig::parse(text).map_err(|error| error.to_string())?;
    let at_ns = shared.control.set(parsed.config);
    let rounded = parsed
        .rounded_from
        .map_or_else(String::new, |text| format!("{text} rounded to "));
    let config = parsed.config;
    Ok(format!(
        "{rounded}{config} from {at_ns} ns since the Unix epoch"
    ))
}

/// Handles a request that matches no route. A gRPC call or an OTLP request gets an error that names
/// the right port or the accepted signals. The store's site answers any other request; without a
/// site, the error lists most of the pages.
async fn no_page(State(shared): State<Pages>, request: Request) -> Response {
    let path = request.uri().path();
    if let Some(answer) = wrong_port(&request, "pages and metrics", shared.grpc_port) {
        return answer;
    }
    let words = match path.strip_prefix("/v1/") {
        Some(signal @ ("traces" | "logs" | "metrics")) => {
            shared.intake.counters().refuse("otlp_http");
            otlp_message(signal)
        }
        _ => match &shared.site {
            Some(site) => return of_site(site, request).await,
            None => no_such(path),
        },
    };
    (StatusCode::NOT_FOUND, words + "\n").into_response()
}

/// Serves a page of the store. If this process records, these pages are traced too.
async fn of_site(site: &ServedSite, request: Request) -> Response {
    let router = site.router.clone().layer(ServerLayer::new());
    router.oneshot(request).await.into_response()
}

fn no_such(path: &str) -> String {
    format!(
        "there is no page {path:?}; there are /, /model, /fleet, /metrics, /metrics/requests, /api/model, /api/critical-path, /api/processes, \
         /api/doors, /api/burst-config, /healthz, /readyz and /burst-config"
    )
}
