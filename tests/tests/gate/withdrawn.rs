//! Streams that are open when their token is withdrawn.

use std::time::Duration;

use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{ControlRequest, ShipOutcome, ShipReply, ShipRequest};
use stroboscope_tests::Program;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status, Streaming};

use crate::client::ask;
use crate::{collect, turned_away};

const STAYS: &str = "tOken-that-stays-as-it-is";
const GOES: &str = "tOken-that-is-withdrawn-soon";
const READ: &str = "tOken-of-those-who-read";

/// A process with a stream of each kind.
struct Process {
    ship: mpsc::Sender<ShipRequest>,
    replies: Streaming<ShipReply>,
    control: Streaming<stroboscope_proto::v1::Directive>,
    incarnation: u128,
    sequence: u64,
}

impl Process {
    async fn start(address: &str, token: &str, incarnation: u128) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let mut client = CollectorClient::new(endpoint.connect().await.expect("it listens"));
        let bearer: MetadataValue<_> = format!("Bearer {token}").parse().expect("a token");
        let (ship, requests) = mpsc::channel(4);
        let mut request = Request::new(ReceiverStream::new(requests));
        request
            .metadata_mut()
            .insert("authorization", bearer.clone());
        let replies = client.ship(request).await.expect("let in").into_inner();
        let mut request = Request::new(ControlRequest::default());
        request.metadata_mut().insert("authorization", bearer);
        let control = client.control(request).await.expect("let in").into_inner();
        Self {
            ship,
            replies,
            control,
            incarnation,
            sequence: 0,
        }
    }

    async fn send(&mut self) {
        let batch = Some(batch(self.incarnation, self.sequence, 3));
        self.ship
            .send(ShipRequest { batch })
            .await
            .expect("it is read");
        let reply = self
            .replies
            .message()
            .await
            .expect("in order")
            .expect("an answer");
        assert_eq!(
            (reply.sequence, reply.outcome()),
            (self.sequence, ShipOutcome::Stored),
            "{reply:?}"
        );
        self.sequence += 1;
    }
}

async fn end<T: std::fmt::Debug>(stream: &mut Streaming<T>) -> Status {
    let next = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
    next.expect("it ends within seconds")
        .expect_err("it ends with a status")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_its_token_is_withdrawn() {
    let program = Program::new();
    let text = format!("write {STAYS}\nread {READ}\n");
    let tokens = program.file("tokens", format!("{text}write {GOES}\n"));
    let mut collector = collect(
        &program,
        &["--token-file", &tokens, "--burst-config", "4ms/32ms"],
    );
    let mut stays = Process::start(&collector.grpc, STAYS, 1).await;
    let mut goes = Process::start(&collector.grpc, GOES, 2).await;
    for process in [&mut stays, &mut goes] {
        process.send().await;
        let told = process.control.message().await.expect("in order");
        assert!(told.is_some(), "the burst-config");
    }
    // A request whose body is still to come.
    let mut upload = TcpStream::connect(&collector.otlp)
        .await
        .expect("it listens");
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {GOES}\r\nContent-Length: 1000\r\n\r\n{{"
    );
    upload.write_all(head.as_bytes()).await.expect("it is read");

    // A change that keeps both tokens ends nothing.
    let _ = program.file("tokens", format!("# anew\n{text}write {GOES}\n"));
    let is_anew = |times| {
        move |said: &str| {
            (said.matches("reloaded certificates and tokens").count() == times).then_some(())
        }
    };
    collector.server.wait_for("the first change", is_anew(1));
    stays.send().await;
    goes.send().await;

    let _ = program.file("tokens", &text);
    collector.server.wait_for("the change", is_anew(2));
    assert_eq!(end(&mut goes.replies).await.code(), Code::Unauthenticated);
    let control = end(&mut goes.control).await;
    assert_eq!(control.code(), Code::Unauthenticated, "{control:?}");
    assert!(control.message().contains("withdrawn"), "{control:?}");
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(10), upload.read_to_string(&mut answer));
    let _ = read.await.expect("it ends within seconds");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");

    // The streams of the other token continue.
    stays.send().await;
    let more = tokio::time::timeout(Duration::from_secs(2), stays.control.message()).await;
    assert!(more.is_err(), "its control stream is open: {more:?}");
    let bearer = format!("Authorization: Bearer {READ}");
    let metrics = ask(&collector.pages, "GET /metrics", &[&bearer], b"").await;
    assert_eq!(
        turned_away(&metrics, "grpc", "token_withdrawn"),
        2,
        "{metrics}"
    );
    assert_eq!(turned_away(&metrics, "otlp_http", "token_withdrawn"), 1);
    assert!(metrics.contains("\nstroboscope_processes 2\n"), "{metrics}");
    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    assert!(
        !said.contains("tOken-") && !said.contains("panicked"),
        "{said}"
    );
}
