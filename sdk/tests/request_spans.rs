//! Tests spans of requests that web frameworks make: they get the same names, kinds and failure
//! attributes as the spans of the SDK's server layer.

#![cfg(all(feature = "tracing", feature = "tower"))]

mod collector;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use collector::{Collector, Span, wait_for};
use http::{Request, Response};
use stroboscope::BurstConfig;
use stroboscope::tower::ServerLayer;
use stroboscope_proto::v1::SpanFlag;
use tower::{Service as _, ServiceBuilder, ServiceExt as _};
use tower_http::trace::TraceLayer;
use tracing_subscriber::layer::SubscriberExt as _;

/// One process can record for one service only, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `work` with the SDK's layer and its default filter, and returns the collector with the
/// records.
fn record(work: impl Future<Output = ()>) -> Collector {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let subscriber = tracing_subscriber::registry().with(stroboscope::layer());
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.build().unwrap().block_on(work);
    });
    drop(guard);
    collector
}

#[tracing::instrument(skip_all)]
async fn handle(request: Request<String>) -> Result<Response<String>, Infallible> {
    let (status, body) = match request.uri().path() {
        "/item/13" => (500, "no such luck"),
        "/missing" | "/item/404" => (404, ""),
        _ => (200, "found"),
    };
    let response = Response::builder().status(status).body(body.into());
    Ok(response.unwrap())
}

/// Serves one request with the given layers and reads the response to its end.
macro_rules! serve {
    ($layers:expr, $method:literal, $uri:literal) => {{
        let mut service = $layers.service(tower::service_fn(handle));
        let request = Request::builder().method($method).uri($uri);
        let request = request.body(String::new()).unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        let mut body = Box::pin(response.into_body());
        while let Some(frame) =
            std::future::poll_fn(|cx| http_body::Body::poll_frame(body.as_mut(), cx)).await
        {
            frame.unwrap();
        }
    }};
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn outcome(span: &Span) -> [Option<&str>; 3] {
    ["http.response.status_code", "error", "error.type"]
        .map(|key| span.attributes.get(key).map(String::as_str))
}

#[test]
fn tower_https_spans_are_requests() {
    let layers = || ServiceBuilder::new().layer(TraceLayer::new_for_http());
    let collector = record(async {
        serve!(layers(), "GET", "/item/42?page=3");
        serve!(layers(), "GET", "/item/13");
        serve!(layers(), "POST", "http://shop.example/item");
        serve!(layers(), "GET", "/missing");
        // The response is 404, but earlier requests show that the path pattern exists.
        serve!(layers(), "GET", "/item/404");
    });
    let spans = collector.spans();
    let failed = [Some("500"), Some("true"), Some("500")];
    for (name, expected) in [
        (
            "GET /item/{id}",
            vec![[Some("200"), None, None], failed, [Some("404"), None, None]],
        ),
        ("POST /item", vec![[Some("200"), None, None]]),
        ("GET (not found)", vec![[Some("404"), None, None]]),
    ] {
        let found = named(&spans, name);
        let outcomes: Vec<_> = found.iter().map(|span| outcome(span)).collect();
        assert_eq!(outcomes, expected, "{name}: {spans:#?}");
        for span in found {
            assert!(
                span.has(SpanFlag::Server) && span.has(SpanFlag::LocalRoot),
                "{span:?}"
            );
            let inside: Vec<_> = spans
                .iter()
                .filter(|inner| inner.parent == span.id)
                .collect();
            assert_eq!(
                (inside.len(), inside[0].name.as_str()),
                (1, "handle"),
                "{inside:?}"
            );
        }
    }
    // The status is an attribute of the span. The failure also has an event.
    let events: Vec<_> = collector
        .events()
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(events, ["response failed"]);
}

/// Checks that the span of tower-http is no request of its own below a server span of the SDK.
#[test]
fn tower_https_span_below_ours_keeps_its_name() {
    let layers = || {
        ServiceBuilder::new()
            .layer(ServerLayer::new())
            .layer(TraceLayer::new_for_http())
    };
    let collector = record(async { serve!(layers(), "GET", "/item/13") });
    let spans = collector.spans();
    let [server, inner] = ["GET /item/{id}", "request"].map(|name| collector.span(name));
    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert_eq!(inner.parent, server.id);
    assert!(server.has(SpanFlag::Server) && !inner.has(SpanFlag::Server));
    assert_eq!(outcome(&server), [Some("500"), Some("true"), Some("500")]);
    assert_eq!(outcome(&inner), outcome(&server));
}

#[test]
fn fields_of_opentelemetry_are_names_kinds_and_outcomes() {
    let collector = record(async {
        let span = tracing::info_span!(
            "HTTP request",
            otel.name = "GET /cart/{user}",
            otel.kind = "server",
            otel.status_code = tracing::field::Empty,
            otel.status_message = tracing::field::Empty,
            http.status_code = tracing::field::Empty,
        );
        span.record("http.status_code", 503);
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_message", "out of stock");
        span.in_scope(|| {
            let client = tracing::info_span!(
                "call",
                otel.kind = "Client",
                http.response.status_code = 404
            );
            drop(client);
            drop(tracing::info_span!("send", otel.kind = "producer"));
            let fine = tracing::info_span!("fine", otel.status_code = "OK", http.status_code = 500);
            drop(fine);
        });
    });
    let attributes = |name: &str| collector.span(name).attributes;
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    let root = collector.span("GET /cart/{user}");
    assert!(root.has(SpanFlag::Server));
    let expected = [
        ("http.status_code", "503"),
        ("otel.status_description", "out of stock"),
        ("error", "true"),
    ];
    assert_eq!(root.attributes, map(&expected));
    assert!(collector.span("call").has(SpanFlag::Client));
    let expected = [
        ("http.response.status_code", "404"),
        ("error", "true"),
        ("error.type", "404"),
    ];
    assert_eq!(attributes("call"), map(&expected));
    assert_eq!(attributes("send"), map(&[("span.kind", "producer")]));
    let expected = [("otel.status_code", "OK"), ("http.status_code", "500")];
    assert_eq!(attributes("fine"), map(&expected));
}

/// Checks the names of spans with the fields of axum's examples.
#[test]
fn requests_are_named_by_their_routes_where_these_are_known() {
    let collector = record(async {
        let span = |matched_path: Option<&str>| {
            let method = http::Method::GET;
            drop(tracing::info_span!(
                "http_request",
                ?method,
                matched_path,
                uri = "/user/anna"
            ));
        };
        span(Some("/user/{name}"));
        span(None);
        // The span's name is not that of a request, so its fields do not make it one.
        drop(tracing::info_span!(
            "fetch",
            method = "GET",
            path = "/user/anna"
        ));
    });
    let mut names: Vec<_> = collector
        .spans()
        .into_iter()
        .map(|span| span.name)
        .collect();
    names.sort();
    assert_eq!(names, ["GET /user/anna", "GET /user/{name}", "fetch"]);
}

#[test]
fn events_of_errors_fail_their_spans() {
    let collector = record(async {
        tracing::info_span!("outer").in_scope(|| {
            tracing::info_span!("fails").in_scope(|| {
                tracing::error!(error = %std::io::Error::other("disk full"), "cannot write");
            });
            tracing::info_span!("says").in_scope(|| tracing::error!("no stock of {}", 7));
            tracing::info_span!("warns").in_scope(|| tracing::warn!(error = "slow", "retried"));
        });
        tracing::error!("outside of any span");
    });
    let failure = |name: &str| {
        let span = collector.span(name);
        ["error", "otel.status_description"].map(|key| span.attributes.get(key).cloned())
    };
    let failed = |message: &str| [Some("true".to_owned()), Some(message.to_owned())];
    assert_eq!(failure("fails"), failed("disk full"));
    assert_eq!(failure("says"), failed("no stock of 7"));
    assert_eq!(
        [failure("warns"), failure("outer")],
        [[None, None], [None, None]]
    );
    assert_eq!(collector.events().len(), 4);
}
