//! Tests that the tower layers pass the context over a gRPC connection, and record how requests
//! end.

#![cfg(feature = "tower")]

mod collector;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::tower::{ClientLayer, ServerLayer};
use stroboscope::{BurstConfig, FutureExt as _, SpanContext, span};
use stroboscope_proto::v1::{
    self, SpanFlag, collector_client::CollectorClient, collector_server::CollectorServer,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};

static TURN: Mutex<()> = Mutex::new(());

/// Starts a gRPC service behind the server layer and returns its address. The service appends the
/// context of each request to `seen`.
async fn service(seen: Arc<Mutex<Vec<SpanContext>>>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let inner = CollectorServer::with_interceptor(Collector::default(), move |request| {
        seen.lock().unwrap().push(stroboscope::current());
        Ok(request)
    });
    tokio::spawn(
        Server::builder()
            .layer(ServerLayer::new())
            .add_service(inner)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    address
}

async fn call(address: &str) {
    let channel = Channel::from_shared(address.to_owned())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let channel = tower::ServiceBuilder::new()
        .layer(ClientLayer::new())
        .service(channel);
    let batches = tokio_stream::iter((0..3).map(|sequence| v1::ShipRequest {
        batch: Some(v1::Batch {
            sequence,
            ..v1::Batch::default()
        }),
    }));
    let mut replies = CollectorClient::new(channel)
        .ship(batches)
        .await
        .unwrap()
        .into_inner();
    while replies.message().await.unwrap().is_some() {}
}

fn with_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

#[test]
fn client_and_server_spans_are_one_tree() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let seen = Arc::default();
    with_runtime(async {
        let address = service(Arc::clone(&seen)).await;
        call(&address).in_span(span!("request")).await;
    });
    drop(guard);
    let root = collector.span("request");
    let both: Vec<_> = collector
        .spans()
        .into_iter()
        .filter(|span| span.name == "stroboscope.v1.Collector/Ship")
        .collect();
    assert_eq!(both.len(), 2, "{both:#?}");
    let client = both.iter().find(|span| span.has(SpanFlag::Client)).unwrap();
    let server = both.iter().find(|span| span.has(SpanFlag::Server)).unwrap();
    assert_eq!((client.parent, server.parent), (root.id, client.id));
    assert_eq!((&client.trace, &server.trace), (&root.trace, &root.trace));
    assert!(server.has(SpanFlag::LocalRoot) && server.has(SpanFlag::Sampled));
    assert!(client.start_ns <= server.start_ns && server.end_ns <= client.end_ns);
    assert_eq!(seen.lock().unwrap()[0].span_id(), server.id);
    let code = Some("0");
    assert_eq!(outcome(client), [None, code, None, None, None, None]);
    assert_eq!(outcome(server), [None, code, None, None, None, None]);
}

/// Returns the attributes of a span that describe the outcome of its request.
fn outcome(span: &collector::Span) -> [Option<&str>; 6] {
    let names = [
        "http.response.status_code",
        "rpc.grpc.status_code",
        "error",
        "error.type",
        "cancelled",
        "otel.status_description",
    ];
    names.map(|name| span.attributes.get(name).map(|value| &**value))
}

/// The body of a response: empty, with trailers, or broken off by an error.
struct Body {
    is_broken: bool,
    trailers: Option<http::HeaderMap>,
}

impl http_body::Body for Body {
    type Data = prost::bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        let broken = || Err(std::io::ErrorKind::BrokenPipe.into());
        let trailers = self.trailers.take();
        let trailers = trailers.map(|trailers| Ok(http_body::Frame::trailers(trailers)));
        Poll::Ready(trailers.or_else(|| self.is_broken.then(broken)))
    }
}

/// Handles a request by its path: panics, never returns, fails, or responds.
async fn handle(request: http::Request<()>) -> Result<http::Response<Body>, std::io::Error> {
    let response = |status: u16, kind: &str, is_broken| {
        let response = http::Response::builder().status(status);
        let response = response.header("content-type", kind);
        let trailers = None;
        let body = Body {
            is_broken,
            trailers,
        };
        Ok(response.body(body).unwrap())
    };
    let add = |headers: &mut http::HeaderMap, code, message| {
        let value = http::HeaderValue::from_static;
        headers.insert("grpc-status", value(code));
        headers.insert("grpc-message", value(message));
    };
    match request.uri().path() {
        "/panic" | "/caught" => panic!("as a handler may"),
        "/never" => std::future::pending().await,
        "/error" => Err(std::io::ErrorKind::TimedOut.into()),
        "/broken" => response(200, "text/plain", true),
        "/web" => response(200, "application/grpc-web+proto", false),
        "/mute" => response(200, "application/grpc", false),
        "/proxy" => response(502, "application/grpc", false),
        "/unimplemented" => response(200, "application/grpc+proto", false).map(|mut response| {
            add(response.headers_mut(), "12", "no%20such method");
            response
        }),
        "/missing" => response(200, "application/grpc", false).map(|mut response| {
            let trailers = &mut response.body_mut().trailers;
            add(trailers.get_or_insert_default(), "5", "no caf%C3%A9");
            response
        }),
        path => response(path[2..].parse().unwrap(), "text/plain", false),
    }
}

/// Calls [`handle`] through both layers and gives up after 50 ms, as a timeout outside of the
/// layers does. For "/caught", catches the panic and drops the future later. Reads the body's first
/// frame, except for paths that start with "/s".
async fn call_handler(path: &str) {
    use http_body::Body as _;
    use tower::{Service as _, ServiceExt as _};

    let server = tower::ServiceBuilder::new()
        .layer(ServerLayer::new())
        .service(tower::service_fn(handle));
    let mut client = tower::ServiceBuilder::new()
        .layer(ClientLayer::new())
        .service(server);
    let request = http::Request::builder().uri(path).body(()).unwrap();
    let mut call = Box::pin(client.ready().await.unwrap().call(request));
    let caught = std::future::poll_fn(|cx| {
        let mut poll = || call.as_mut().poll(cx);
        match path {
            "/caught" => match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut poll)) {
                Ok(polled) => polled.map(Some),
                Err(_) => Poll::Ready(None),
            },
            _ => poll().map(Some),
        }
    });
    let given_up = tokio::time::timeout(Duration::from_millis(50), caught).await;
    if let Ok(Some(Ok(response))) = given_up
        && !path.starts_with("/s")
    {
        let mut body = Box::pin(response.into_body());
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        assert_eq!(frame.is_some(), ["/broken", "/missing"].contains(&path));
    }
}

/// Checks that spans distinguish a response, an error, a panic and a call that is given up, by the
/// rules of OpenTelemetry.
#[test]
fn spans_say_how_their_requests_ended() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let io = std::any::type_name::<std::io::Error>();
    let failed = Some("true");
    let of_status = |status, failed: Option<_>| {
        let kind = failed.map(|_| status);
        [Some(status), None, failed, kind, None, None]
    };
    let of_code = |code, message| [None, Some(code), failed, Some(code), None, message];
    let none = [None, None, failed, Some(io), None, None];
    let cancelled = [None, None, None, None, failed, None];
    // Path, outcomes in the client's and in the server's span, and whether both panicked.
    let expected = [
        (
            "/s204",
            [of_status("204", None), of_status("204", None)],
            false,
        ),
        (
            "/s404",
            [of_status("404", failed), of_status("404", None)],
            false,
        ),
        (
            "/s503",
            [of_status("503", failed), of_status("503", failed)],
            false,
        ),
        ("/error", [none, none], false),
        (
            "/broken",
            [[Some("200"), None, failed, Some(io), None, None]; 2],
            false,
        ),
        (
            "/unimplemented",
            [of_code("12", Some("no such method")); 2],
            false,
        ),
        // Only the client's span counts it as a failure.
        (
            "/missing",
            [
                of_code("5", Some("no caf\u{e9}")),
                [None, Some("5"), None, None, None, None],
            ],
            false,
        ),
        ("/mute", [of_code("2", None); 2], false),
        (
            "/proxy",
            [of_status("502", failed), of_status("502", failed)],
            false,
        ),
        (
            "/web",
            [of_status("200", None), of_status("200", None)],
            false,
        ),
        ("/panic", [[None; 6]; 2], true),
        ("/caught", [[None; 6]; 2], true),
        ("/never", [cancelled, cancelled], false),
    ];
    with_runtime(async {
        for (path, ..) in &expected {
            let _panicked = tokio::spawn(call_handler(path)).await;
        }
    });
    drop(guard);
    let spans = collector.spans();
    for (path, outcomes, panicked) in expected {
        for (flag, expected) in [SpanFlag::Client, SpanFlag::Server]
            .into_iter()
            .zip(outcomes)
        {
            let is_it =
                |span: &&collector::Span| span.name == format!("GET {path}") && span.has(flag);
            let found: Vec<_> = spans.iter().filter(is_it).collect();
            assert_eq!(found.len(), 1, "{path} {flag:?}: {found:#?}");
            let got = (outcome(found[0]), found[0].has(SpanFlag::Panicked));
            assert_eq!(got, (expected, panicked), "{path} {flag:?}");
        }
    }
}

/// Checks that a request keeps its trace id and parent if nothing is recorded.
#[test]
fn a_closed_gate_hands_the_context_on() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!stroboscope::stats().running);
    let seen: Arc<Mutex<Vec<SpanContext>>> = Arc::default();
    with_runtime(async {
        let address = service(Arc::clone(&seen)).await;
        let channel = Channel::from_shared(address)
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut request = tonic::Request::new(v1::ControlRequest::default());
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        request
            .metadata_mut()
            .insert("traceparent", header.parse().unwrap());
        CollectorClient::new(channel)
            .control(request)
            .await
            .unwrap();
    });
    let inside = seen.lock().unwrap()[0];
    assert_eq!(inside.trace_id(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    assert_eq!(inside.span_id(), 0xb7ad_6b71_6920_3331);
    assert!(!inside.is_sampled());
}
