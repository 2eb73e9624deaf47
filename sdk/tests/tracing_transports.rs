//! Tests a gRPC service that records `tracing` annotations: by default the service's own up to the
//! level `info` are recorded, and those of its transports are not.
//!
//! `cargo test -p stroboscope --test tracing_transports -- --nocapture` prints the records per
//! request, with and without transports.

#![cfg(all(feature = "tracing", feature = "tower"))]

mod collector;
/// The code of the newsfeed's services, which tonic generates from a `.proto` file.
mod wire {
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    include!("../../examples/newsfeed/src/generated/newsfeed.v1.rs");
}

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use collector::{Collector, wait_for};
use stroboscope::tower::{ClientLayer, ServerLayer};
use stroboscope::{FutureExt as _, TracingFilter, span};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tower::ServiceBuilder;
use tracing_subscriber::layer::SubscriberExt as _;
use wire::store_client::StoreClient;
use wire::store_server::{Store, StoreServer};
use wire::{ReadReply, ReadRequest, WriteReply, WriteRequest};

const REQUESTS: usize = 100;
/// Number of own records of a request: its span, the client's and the server's span of the call,
/// the span `look_up` and the event in it.
const RECORDS_A_REQUEST: usize = 5;

struct Shelf;

#[tracing::instrument]
fn look_up(key: &str) -> Vec<u8> {
    tracing::info!(bytes = 3, "found");
    tracing::debug!("this is for debugging");
    key.as_bytes().to_vec()
}

#[tonic::async_trait]
impl Store for Shelf {
    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadReply>, Status> {
        Ok(Response::new(ReadReply {
            value: look_up(&request.get_ref().key),
            ..ReadReply::default()
        }))
    }

    async fn write(&self, _: Request<WriteRequest>) -> Result<Response<WriteReply>, Status> {
        Err(Status::permission_denied("this shelf is only read"))
    }
}

/// Starts the service, calls it over a socket [`REQUESTS`] times, and returns the time of each
/// call.
async fn serve_and_call() -> Vec<Duration> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder()
        .layer(ServerLayer::new())
        .add_service(StoreServer::new(Shelf));
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = StoreClient::new(
        ServiceBuilder::new()
            .layer(ClientLayer::new())
            .service(channel),
    );
    tracing::info!(name: "outside", "before any request");
    let mut times = Vec::new();
    for user in 0..REQUESTS {
        let start = Instant::now();
        let request = ReadRequest {
            key: format!("user/{user}/name"),
        };
        client.read(request).in_span(span!("page")).await.unwrap();
        times.push(start.elapsed());
    }
    server.abort();
    times
}

/// Runs the service in a child process of the test below, so that the collector's transport is not
/// recorded. `STROBOSCOPE_TEST_ROLE` selects the stack. Does nothing without the variable.
#[test]
fn service() {
    let Ok(role) = std::env::var("STROBOSCOPE_TEST_ROLE") else {
        return;
    };
    // As in the README, the SDK is started first and the subscriber is installed after it.
    let guard = stroboscope::init("shelf").unwrap();
    let everything = TracingFilter::everything();
    match role.as_str() {
        "layer" => install(tracing_subscriber::registry().with(stroboscope::layer())),
        "layer for everything" => {
            install(
                tracing_subscriber::registry().with(stroboscope::layer().recording(everything)),
            );
        }
        "subscriber" => install(stroboscope::subscriber()),
        "subscriber for everything" => install(stroboscope::subscriber().recording(everything)),
        role => panic!("{role}"),
    }
    wait_for("the gate", || stroboscope::stats().windows > 0);
    let mut times = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(serve_and_call());
    drop(guard);
    times.sort();
    println!(
        "service took {} {} us",
        times[REQUESTS / 2].as_micros(),
        times[REQUESTS * 99 / 100].as_micros()
    );
}

fn install(subscriber: impl tracing::Subscriber + Send + Sync) {
    tracing::subscriber::set_global_default(subscriber).unwrap();
}

/// The records of one child process.
struct Run {
    /// Number of records by the name of the span or event.
    records: BTreeMap<String, usize>,
    /// Number of traces.
    requests: usize,
    outside: usize,
    /// Median and 99th percentile of the time of a call, as text that the service prints.
    times: String,
}

impl Run {
    fn all(&self) -> usize {
        self.records.values().sum()
    }

    fn of(&self, start: &str) -> usize {
        self.records
            .iter()
            .filter(|(name, _)| name.starts_with(start))
            .map(|(_, count)| count)
            .sum()
    }
}

fn run(role: &str, filter: &str) -> Run {
    let collector = Collector::default();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "service", "--nocapture", "--test-threads=1"])
        .env("STROBOSCOPE_TEST_ROLE", role)
        .env("STROBOSCOPE_TRACING", filter)
        .env("STROBOSCOPE_BURST_CONFIG", "always")
        .env("STROBOSCOPE_COLLECTOR", collector.clone().start())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let times = said
        .split("service took ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .unwrap()
        .to_owned();
    let (spans, events) = (collector.spans(), collector.events());
    let mut records = BTreeMap::new();
    for name in spans
        .iter()
        .map(|span| &span.name)
        .chain(events.iter().map(|(name, ..)| name))
    {
        *records.entry(name.clone()).or_default() += 1;
    }
    let traces: std::collections::BTreeSet<&str> =
        spans.iter().map(|span| span.trace.as_str()).collect();
    let outside = events
        .iter()
        .filter(|(name, span, _)| name == "outside" && *span == 0)
        .count();
    println!(
        "{role}, {filter:?}: {} records, {:.1} a request of {}, {} traces; p50 and p99 of a call {times}",
        records.values().sum::<usize>(),
        records.values().sum::<usize>() as f64 / REQUESTS as f64,
        REQUESTS,
        traces.len()
    );
    Run {
        requests: traces.len(),
        records,
        outside,
        times,
    }
}

/// Checks that exactly the service's own annotations up to the level `info` are recorded. The event
/// outside of any request makes no trace.
fn check_own_only(run: &Run) {
    let expected = [
        ("page", REQUESTS),
        ("newsfeed.v1.Store/Read", 2 * REQUESTS),
        ("look_up", REQUESTS),
        ("found", REQUESTS),
        ("outside", 1),
    ];
    let expected: BTreeMap<String, usize> = expected
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    assert_eq!(run.records, expected, "records by name");
    assert_eq!(run.all(), RECORDS_A_REQUEST * REQUESTS + 1);
    assert_eq!(
        (run.requests, run.outside),
        (REQUESTS, 1),
        "an event outside of a request makes no request"
    );
}

#[test]
fn transports_are_left_out_unless_asked_for_by_name() {
    for stack in ["layer", "subscriber"] {
        let usual = run(stack, "");
        check_own_only(&usual);
        let everything = run(&format!("{stack} for everything"), "");
        assert!(
            everything.all() > 5 * usual.all(),
            "the measure sees what is left out: {:?}",
            everything.records
        );
        assert!(everything.of("h2::") > 0, "{:?}", everything.records);
        println!(
            "{stack}: {} records without transports ({}), {} with ({})",
            usual.all(),
            usual.times,
            everything.all(),
            everything.times
        );

        let debug = run(stack, "debug");
        // The service's debug event is one more record per request.
        assert_eq!(
            debug.all(),
            (RECORDS_A_REQUEST + 1) * REQUESTS + 1,
            "{:?}",
            debug.records
        );
        assert_eq!(debug.requests, REQUESTS);

        let named = run(stack, "info,h2::codec=trace");
        assert!(named.of("h2::codec") > 0, "{:?}", named.records);
        assert_eq!(
            named.of("h2::"),
            named.of("h2::codec"),
            "{:?}",
            named.records
        );
        assert_eq!(named.of("look_up"), REQUESTS);

        let none = run(stack, "off");
        assert_eq!(
            none.all(),
            3 * REQUESTS,
            "our own spans only: {:?}",
            none.records
        );
    }
}
