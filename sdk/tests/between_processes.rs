//! The context travels by the tower layers, over a real gRPC connection.

#![cfg(feature = "tower")]

mod collector;

use std::sync::{Arc, Mutex, PoisonError};

use collector::{Collector, wait_for};
use stroboscope::tower::{ClientLayer, ServerLayer};
use stroboscope::{BurstConfig, FutureExt as _, SpanContext, span};
use stroboscope_proto::v1::{
    self, SpanFlag, collector_client::CollectorClient, collector_server::CollectorServer,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};

static TURN: Mutex<()> = Mutex::new(());

/// A service behind the server layer (any gRPC service will do; this one is at hand). Tells which context each
/// request had inside.
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
    assert_eq!(outcome(client), [None, code, None, None, None]);
    assert_eq!(outcome(server), [None, code, None, None, None]);
}

/// How a span says that its request ended.
fn outcome(span: &collector::Span) -> [Option<&str>; 5] {
    let names = [
        "http.response.status_code",
        "rpc.grpc.status_code",
        "error",
        "error.type",
        "cancelled",
    ];
    names.map(|name| span.attributes.get(name).map(|value| &**value))
}

/// A response's body that breaks off.
struct Broken;

impl http_body::Body for Broken {
    type Data = prost::bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Ready(Some(Err(std::io::ErrorKind::BrokenPipe.into())))
    }
}

/// What a handler does is in the path of its request.
async fn handle(request: http::Request<()>) -> Result<http::Response<Broken>, std::io::Error> {
    let response = |status: u16| http::Response::builder().status(status);
    match request.uri().path() {
        "/panic" => panic!("as a handler may"),
        "/never" => std::future::pending().await,
        "/error" => Err(std::io::ErrorKind::TimedOut.into()),
        "/unimplemented" => Ok(response(200)
            .header("content-type", "application/grpc")
            .header("grpc-status", "12")
            .body(Broken)
            .unwrap()),
        path => Ok(response(path[2..].parse().unwrap()).body(Broken).unwrap()),
    }
}

/// A response, none, a panic and a call that is given up: each is told apart, by the rules of OpenTelemetry.
#[test]
fn spans_say_how_their_requests_ended() {
    use http_body::Body as _;
    use tower::{Service as _, ServiceExt as _};

    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let paths = [
        "/s204",
        "/s404",
        "/s503",
        "/error",
        "/unimplemented",
        "/panic",
        "/never",
        "/s200",
    ];
    with_runtime(async {
        for path in paths {
            let server = tower::ServiceBuilder::new()
                .layer(ServerLayer::new())
                .service(tower::service_fn(handle));
            let mut client = tower::ServiceBuilder::new()
                .layer(ClientLayer::new())
                .service(server);
            let call = client
                .ready()
                .await
                .unwrap()
                .call(http::Request::builder().uri(path).body(()).unwrap());
            let call = tokio::spawn(tokio::time::timeout(
                std::time::Duration::from_millis(50),
                call,
            ));
            // Only the body of the last one is read.
            if let Ok(Ok(Ok(response))) = call.await
                && path == "/s200"
            {
                let mut body = Box::pin(response.into_body());
                let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
                assert!(frame.unwrap().is_err());
            }
        }
    });
    drop(guard);
    let of = |path: &str| {
        let spans = collector.spans();
        let of = |flag| {
            let mut spans = spans
                .iter()
                .filter(|span| span.name == format!("GET {path}"));
            let span = spans
                .find(|span| span.has(flag))
                .unwrap_or_else(|| panic!("{path}"));
            let outcome = outcome(span).map(|value| value.map(str::to_owned));
            (outcome, span.has(SpanFlag::Panicked))
        };
        [of(SpanFlag::Client), of(SpanFlag::Server)]
    };
    let some = |said: [Option<&str>; 5]| (said.map(|value| value.map(str::to_owned)), false);
    let status = |status, error| some([Some(status), None, error, None, None]);
    let (failed, io) = (Some("true"), std::any::type_name::<std::io::Error>());
    assert_eq!(of("/s204"), [status("204", None), status("204", None)]);
    assert_eq!(of("/s404"), [status("404", failed), status("404", None)]);
    assert_eq!(of("/s503"), [status("503", failed), status("503", failed)]);
    let none = || some([None, None, failed, Some(io), None]);
    assert_eq!(of("/error"), [none(), none()]);
    assert_eq!(of("/s200"), [none(), none()]);
    let code = || some([None, Some("12"), failed, None, None]);
    assert_eq!(of("/unimplemented"), [code(), code()]);
    assert_eq!(
        of("/panic"),
        [([const { None }; 5], true), ([const { None }; 5], true)]
    );
    let given_up = || some([None, None, None, None, Some("true")]);
    assert_eq!(of("/never"), [given_up(), given_up()]);
}

/// Nothing is recorded, and still the request keeps its identity on its way through.
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
