//! Two services in Rust: the front service answers 503 itself, or 502 if its gRPC call of the back
//! service fails, or panics.

use std::process::Command;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use serde_json::Value;
use stroboscope::tower::{ClientLayer, ServerLayer};
use stroboscope_tests::Server;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tower::ServiceBuilder;

use crate::load;
use crate::metrics::Counted;
use crate::readers::Collector;

const ROLE: &str = "STROBOSCOPE_TEST_ROLE";
const BACK: &str = "STROBOSCOPE_TEST_BACK";

/// A third-party service. The content of requests does not matter.
struct Bank;

#[tonic::async_trait]
impl TraceService for Bank {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        match request.metadata().contains_key("closed") {
            true => Err(Status::unavailable("no bank answers")),
            false => Ok(Response::new(ExportTraceServiceResponse::default())),
        }
    }
}

#[tracing::instrument(err)]
fn reserve(way: Option<&str>) -> Result<(), &'static str> {
    match way {
        Some("status") => Err("nothing is left"),
        _ => Ok(()),
    }
}

async fn order(State(back): State<Channel>, Query(asked): Query<Value>) -> StatusCode {
    let way = asked["way"].as_str();
    if reserve(way).is_err() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    assert_ne!(way, Some("panic"), "an order of this kind panics");
    let traced = ServiceBuilder::new().layer(ClientLayer::new());
    let mut bank = TraceServiceClient::new(traced.service(back));
    let mut request = Request::new(ExportTraceServiceRequest::default());
    if way == Some("grpc") {
        let key = "closed".parse::<tonic::metadata::AsciiMetadataKey>();
        let value = tonic::metadata::AsciiMetadataValue::from_static("1");
        request.metadata_mut().insert(key.expect("a key"), value);
    }
    match bank.export(request).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::BAD_GATEWAY,
    }
}

/// Runs one of the services in a process of its own. `STROBOSCOPE_TEST_ROLE` selects it. Does
/// nothing without the variable.
#[test]
fn service() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let recorder = stroboscope::builder().service(&role).flush_on_sigterm();
    let recorder = recorder.env().expect("variables are as they should be");
    let _tracing = recorder.init().expect("recording starts");
    tracing::subscriber::set_global_default(stroboscope::subscriber()).expect("the only one");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        while stroboscope::stats().windows == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        println!("\nserving on http://{address}");
        if let Ok(back) = std::env::var(BACK) {
            let back = Channel::from_shared(back)
                .expect("an address")
                .connect_lazy();
            let routes = Router::new().route("/order", get(order)).with_state(back);
            let served = axum::serve(listener, routes.layer(ServerLayer::new())).await;
            served.expect("it serves");
        } else {
            let server = tonic::transport::Server::builder().layer(ServerLayer::new());
            let served = { server }
                .add_service(TraceServiceServer::new(Bank))
                .serve_with_incoming(TcpIncoming::from(listener));
            served.await.expect("it serves");
        }
    });
}

fn start_service(role: &str, collector: &str, back: Option<&str>) -> Server {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "rust::service", "--nocapture"])
        .env(ROLE, role)
        .envs(back.map(|back| (BACK, back)))
        .env("STROBOSCOPE_COLLECTOR", collector)
        .env("STROBOSCOPE_BURST_CONFIG", "always");
    Server::start(command)
}

#[test]
fn a_rust_pair_fails_in_three_ways() {
    let collector = Collector::start();
    let mut back = start_service("back", &collector.grpc, None);
    let back_address = load::address_of(&mut back);
    let mut front = start_service("front", &collector.grpc, Some(&back_address));
    let seen = load::run(&mut front);
    for server in [&mut front, &mut back] {
        server.stop(libc::SIGTERM);
    }
    const EXPORT: &str = "opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let bank = format!("back:{EXPORT}");
    let starts = [
        (Some(503), "front:rust::reserve", "error", "nothing is left"),
        (Some(502), &*bank, "gRPC UNAVAILABLE", "no bank answers"),
        (None, "front:GET /order", "panic", ""),
    ];
    let [all, failed] = [seen.requests, seen.all_failed()];
    let [no_stock, no_bank] = [503, 502].map(|status| seen.failed[&Some(status)]);
    let asked = all - no_stock - seen.failed[&None];
    let counted = Counted {
        spans: &[
            ("back", "SERVER", EXPORT, asked, no_bank),
            ("front", "CLIENT", EXPORT, asked, no_bank),
            ("front", "INTERNAL", "rust::reserve", all, no_stock),
            ("front", "SERVER", "GET /order", all, failed),
        ],
        calls: &[("front", "back", EXPORT, asked, no_bank)],
    };
    collector.check(&seen, &starts, &counted);
}
