//! Information of a running collector about itself: its log, its traces, its page.

mod log;
mod page;
mod self_tracing;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{Batch, ShipReply, ShipRequest};
use stroboscope_tests::{Program, Server};
use tonic::transport::Endpoint;

/// A collector, and the addresses of its ports.
struct Collector {
    server: Server,
    grpc: String,
    pages: String,
}

/// Starts a collector on free ports of loopback, with its log as text.
fn collect(program: &Program, more: &[&str], environment: &[(&str, &str)]) -> Collector {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--otlp-http", "none", "--http", "127.0.0.1:0"]);
    command.args(more).envs(environment.iter().copied());
    let mut server = Server::start(command);
    let grpc = server.collector_address();
    let pages = server.after("page on http://");
    Collector {
        server,
        grpc,
        pages,
    }
}

/// Returns the body of a page.
fn get(pages: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(pages).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    body.to_owned()
}

/// Returns the value of a metric without labels.
fn metric(pages: &str, name: &str) -> f64 {
    let metrics = get(pages, "/metrics");
    let line = format!("stroboscope_{name} ");
    let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
    let value = value.unwrap_or_else(|| panic!("there is no {name} in {metrics}"));
    value.parse().expect("a number")
}

/// Ships batches on a stream of their own. Returns all answers.
async fn ship(grpc: &str, batches: Vec<Batch>) -> Vec<ShipReply> {
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).expect("an address");
    let mut client = CollectorClient::new(endpoint.connect().await.expect("it listens"));
    let requests = batches
        .into_iter()
        .map(|batch| ShipRequest { batch: Some(batch) });
    let requests = tokio_stream::iter(requests.collect::<Vec<_>>());
    let mut replies = client.ship(requests).await.expect("let in").into_inner();
    let mut all = Vec::new();
    while let Some(reply) = replies.message().await.expect("in order") {
        all.push(reply);
    }
    all
}

/// Waits until `is_there` returns true, for at most half a minute.
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_there() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
