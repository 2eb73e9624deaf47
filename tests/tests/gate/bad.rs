//! Many kinds of malicious clients, next to a well-behaved one. All requests of the latter are
//! acknowledged, and each kind of malicious client is rejected for its own cause.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{ShipOutcome, ShipRequest};
use stroboscope_tests::{Program, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tonic::Code;

use crate::certificates::{Authority, connect};
use crate::client::{EXPORT, ask_over, call_over};
use crate::{Collector, collect, turned_away};

const WRITE: &str = "Authorization: Bearer token-to-write-with";
const READ: &str = "Authorization: Bearer token-to-read-with-it";
const GRPC_WRITE: (&str, &str) = ("authorization", "Bearer token-to-write-with");
const SHIP: &str = "/stroboscope.v1.Collector/Ship";
const JSON: &str = "Content-Type: application/json";
const SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",
    "spanId":"eee19b7ec3c1b174","name":"pay","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[]}]}]}]}"#;

/// Connects from another address of loopback, as another machine would.
pub(crate) async fn from_elsewhere(address: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
    socket.connect(address.parse().expect("an address")).await
}

/// Durations of the well-behaved client's requests since they were last read.
#[derive(Clone, Default)]
struct Good {
    took: Arc<Mutex<Vec<Duration>>>,
    is_over: Arc<AtomicBool>,
}

impl Good {
    /// Sends over HTTP and gRPC in turn, on new connections. Returns the number of pairs.
    async fn send(self, otlp: String, grpc: String) -> u64 {
        let mut sent = 0;
        while !self.is_over.load(Relaxed) {
            let begun = Instant::now();
            let stream = TcpStream::connect(&otlp).await.expect("it listens");
            let answer = ask_over(stream, "POST /v1/traces", &[JSON, WRITE], SPAN.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            self.took.lock().expect("no panic").push(begun.elapsed());
            let begun = Instant::now();
            let stream = TcpStream::connect(&grpc).await.expect("it listens");
            let status = call_over(stream, EXPORT, &[GRPC_WRITE], b"")
                .await
                .expect("an answer");
            assert_eq!(status.code(), Code::Ok, "{status:?}");
            self.took.lock().expect("no panic").push(begun.elapsed());
            sent += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        sent
    }

    /// Waits for some more requests, and prints their durations next to this kind of client.
    async fn beside(&self, what: &str) {
        while self.took.lock().expect("no panic").len() < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut took = std::mem::take(&mut *self.took.lock().expect("no panic"));
        took.sort_unstable();
        let of = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        let (median, slow) = (of(0.5), of(0.99));
        let count = took.len();
        eprintln!("{what:<28} {count:>5} good requests, median {median:>10.1?}, p99 {slow:>10.1?}");
    }
}

async fn metrics(pages: &str) -> String {
    let stream = TcpStream::connect(pages).await.expect("it listens");
    let answer = ask_over(stream, "GET /metrics", &[READ], b"").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

/// Waits until a rejection of this cause is counted.
async fn counted(pages: &str, door: &str, cause: &str) {
    while turned_away(&metrics(pages).await, door, cause) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn refused(metrics: &str, cause: &str) -> u64 {
    let line = format!("stroboscope_refused_batches_total{{cause=\"{cause}\"}} ");
    let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
    value.map_or(0, |value| value.parse().expect("a number"))
}

async fn post(otlp: &str, headers: &[&str], body: &[u8]) -> String {
    let stream = from_elsewhere(otlp).await.expect("it listens");
    let headers: Vec<&str> = [JSON, WRITE]
        .into_iter()
        .chain(headers.iter().copied())
        .collect();
    ask_over(stream, "POST /v1/traces", &headers, body).await
}

async fn export(grpc: &str, headers: &[(&str, &str)], message: &[u8]) -> tonic::Status {
    let stream = from_elsewhere(grpc).await.expect("it listens");
    let headers: Vec<_> = [GRPC_WRITE]
        .into_iter()
        .chain(headers.iter().copied())
        .collect();
    call_over(stream, EXPORT, &headers, message)
        .await
        .expect("an answer")
}

/// Makes a call with an incomplete message: `bytes` bytes after a head that announces `claim`
/// bytes.
async fn half_call(grpc: &str, path: &str, claim: u32, bytes: usize) -> tonic::Status {
    let stream = from_elsewhere(grpc).await.expect("it listens");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header(GRPC_WRITE.0, GRPC_WRITE.1)
        .body(())
        .expect("a request");
    let mut client = client.ready().await.expect("ready");
    let (response, mut body) = client.send_request(request, false).expect("sent");
    let mut begin = vec![0];
    begin.extend(claim.to_be_bytes());
    begin.extend(vec![0; bytes]);
    body.send_data(begin.into(), false).expect("sent");
    let response = response.await.expect("an answer");
    if let Some(status) = tonic::Status::from_header_map(response.headers()) {
        return status;
    }
    let mut rest = response.into_body();
    while let Some(chunk) = rest.data().await {
        let _ = chunk.expect("a body");
    }
    let trailers = rest.trailers().await.expect("trailers").expect("some");
    tonic::Status::from_header_map(&trailers).expect("a status")
}

pub(crate) fn is_elsewhere_possible() -> bool {
    let is_possible = std::net::TcpListener::bind("127.0.0.2:0").is_ok();
    if !is_possible {
        eprintln!(
            "SKIPPED: bad clients: they come from 127.0.0.2, which Linux has, and elsewhere an alias of the loopback"
        );
    }
    is_possible
}

async fn garbage([grpc, otlp, pages]: [&str; 3]) {
    for (door, address) in [("grpc", grpc), ("otlp_http", otlp), ("pages", pages)] {
        for garbage in [
            &b"\x16\x03\x01\x02\0\x01\0"[..],
            b"GET \0\0 HTTP/9.9\r\n\r\n",
            &[0xff; 4_096],
            b"\r\n\r\n\r\nhello\r\n",
        ] {
            let mut stream = from_elsewhere(address).await.expect("it listens");
            let _ = stream.write_all(garbage).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        counted(pages, door, "broken_protocol").await;
    }
}

/// Sends a hundred mebibytes of zeros, compressed.
async fn bombs([grpc, otlp, pages]: [&str; 3]) {
    let zeros = vec![0; 1 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).expect("zstd");
    for _ in 0..100 {
        gzip.write_all(&zeros).expect("memory");
        zstd.write_all(&zeros).expect("memory");
    }
    let before = refused(&metrics(pages).await, "otlp_too_large");
    let bombs = [
        ("gzip", gzip.finish().expect("memory")),
        ("zstd", zstd.finish().expect("memory")),
    ];
    for (name, bomb) in &bombs {
        assert!(bomb.len() < 1 << 20, "{name}");
        let answer = post(otlp, &[&format!("Content-Encoding: {name}")], bomb).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        let status = export(grpc, &[("grpc-encoding", name)], bomb).await;
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    }
    assert_eq!(refused(&metrics(pages).await, "otlp_too_large"), before + 4);
}

async fn slow_ones([grpc, otlp, pages]: [&str; 3]) {
    let mut slow = JoinSet::new();
    for begin in [
        "",
        "POST /v1/tra",
        "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    ] {
        for address in [otlp, pages] {
            let mut stream = from_elsewhere(address).await.expect("it listens");
            stream.write_all(begin.as_bytes()).await.expect("sent");
            slow.spawn(async move {
                // Single bytes now and then do not extend the time limit.
                while !begin.is_empty() && stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    }
    for (address, path, words) in [
        (otlp, "/v1/traces", "\"code\":4"),
        (pages, "/login", "took longer than"),
    ] {
        let mut stream = from_elsewhere(address).await.expect("it listens");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n{WRITE}\r\nContent-Length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with("HTTP/1.1 408 ") && answer.contains(words),
            "{answer}"
        );
    }
    // Half a message, over gRPC, of a request and of a stream.
    for path in [EXPORT, SHIP] {
        let status = half_call(grpc, path, 100_000, 1_000).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{path}: {status:?}");
    }
    while slow.join_next().await.is_some() {}
    // A client that sends nothing.
    let mut silent = from_elsewhere(grpc).await.expect("it listens");
    let _ = silent.read_to_end(&mut Vec::new()).await;
    for (door, cause) in [
        ("otlp_http", "slow_head"),
        ("pages", "slow_head"),
        ("grpc", "slow_head"),
        ("otlp_http", "slow_body"),
        ("pages", "slow_body"),
        ("grpc", "slow_body"),
    ] {
        counted(pages, door, cause).await;
    }
}

async fn claims([grpc, otlp, pages]: [&str; 3]) {
    let before = refused(&metrics(pages).await, "otlp_too_large");
    let mut stream = from_elsewhere(otlp).await.expect("it listens");
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n{WRITE}\r\nContent-Length: {}\r\n\r\n",
        1 << 30
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // The response comes before any byte of the body.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 413 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let status = half_call(grpc, EXPORT, 1 << 30, 100).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let status = half_call(grpc, SHIP, 1 << 30, 100).await;
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let metrics = metrics(pages).await;
    assert_eq!(refused(&metrics, "otlp_too_large"), before + 2);
    assert_eq!(refused(&metrics, "broken_stream"), 2, "{metrics}");
}

/// Opens more connections than the ports allow from one address.
async fn crowds([grpc, otlp, pages]: [&str; 3]) {
    for (door, address) in [("grpc", grpc), ("otlp_http", otlp), ("pages", pages)] {
        let mut open = Vec::new();
        for _ in 0..2_000 {
            match from_elsewhere(address).await {
                Ok(stream) => open.push(stream),
                // Rejected connections are closed, but their local ports are not free at once.
                Err(_) => break,
            }
        }
        counted(pages, door, "peer_connections").await;
    }
}

async fn strangers([grpc, otlp, pages]: [&str; 3]) {
    for _ in 0..100 {
        let stream = from_elsewhere(otlp).await.expect("it listens");
        let wrong = "Authorization: Bearer token-of-somebody-else";
        let answer = ask_over(stream, "POST /v1/traces", &[JSON, wrong], SPAN.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        let stream = from_elsewhere(grpc).await.expect("it listens");
        let status = call_over(stream, EXPORT, &[("authorization", "Bearer no")], b"")
            .await
            .expect("an answer");
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    let metrics = metrics(pages).await;
    assert_eq!(turned_away(&metrics, "otlp_http", "token_unknown"), 100);
    assert_eq!(turned_away(&metrics, "grpc", "token_unknown"), 100);
}

async fn floods([grpc, otlp, pages]: [&str; 3]) {
    // Attributes.
    let attribute = |number| format!(r#"{{"key":"k{number}","value":{{"intValue":"1"}}}}"#);
    let many: Vec<String> = (0..100_000).map(attribute).collect();
    let many = many.join(",");
    let flood = SPAN.replace("\"attributes\":[]", &format!("\"attributes\":[{many}]"));
    let answer = post(otlp, &[], flood.as_bytes()).await;
    assert!(
        answer.contains("\"rejectedSpans\":\"1\"") && answer.contains("100000 members"),
        "{answer}"
    );
    let mut flood = batch(9, 0, 1);
    let spans = flood.spans.as_mut().expect("spans");
    let columns = spans.attributes.as_mut().expect("attributes");
    spans.attribute_count = vec![10_000];
    columns.key_string = vec![1; 10_000];
    columns.kind = vec![0; 10_000];
    columns.int_values = vec![1; 10_000];
    (
        columns.uint_values,
        columns.double_values,
        columns.string_values,
    ) = (vec![], vec![], vec![]);
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{grpc}")).expect("an address");
    let mut client = CollectorClient::new(channel.connect().await.expect("it listens"));
    let request = ShipRequest { batch: Some(flood) };
    let mut request = tonic::Request::new(tokio_stream::iter([request]));
    request
        .metadata_mut()
        .insert(GRPC_WRITE.0, GRPC_WRITE.1.parse().expect("ASCII"));
    let mut replies = client.ship(request).await.expect("a stream").into_inner();
    let reply = replies.message().await.expect("an answer").expect("one");
    assert_eq!(reply.outcome(), ShipOutcome::Refused, "{}", reply.detail);
    assert_eq!(refused(&metrics(pages).await, "too_many_attributes"), 1);
    // Headers: a large one, many, and one that is larger than what is read at all.
    let header = format!("X-Flood: {}", "x".repeat(20_000));
    let many: Vec<String> = (0..1_000)
        .map(|number| format!("X-{number}: flood"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let huge = format!("X-Flood: {}", "x".repeat(200_000));
    for headers in [&[header.as_str()][..], &many, &[&huge]] {
        let answer = post(otlp, headers, b"{}").await;
        // The collector may close the connection before it has read all.
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
            "{answer}"
        );
    }
    let status = export(grpc, &[("x-flood", &header)], b"").await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let metrics = metrics(pages).await;
    assert_eq!(
        turned_away(&metrics, "otlp_http", "header_size"),
        3,
        "{metrics}"
    );
    assert_eq!(turned_away(&metrics, "grpc", "header_size"), 1);
}

/// Sends incomplete bodies that together exceed the limit. Each begins again if it is rejected.
async fn hoarders([grpc, otlp, pages]: [&str; 3]) {
    let half = vec![b' '; 4 << 20];
    let mut open = JoinSet::new();
    for _ in 0..20 {
        let (otlp, half) = (otlp.to_owned(), half.clone());
        open.spawn(async move {
            while let Ok(mut stream) = from_elsewhere(&otlp).await {
                let head = format!(
                    "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n{WRITE}\r\nContent-Length: 5000000\r\n\r\n"
                );
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&half).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
    }
    counted(pages, "otlp_http", "peer_bytes").await;
    // A call from the same address to the port for gRPC gets a retry delay.
    while turned_away(&metrics(pages).await, "grpc", "peer_bytes") == 0 {
        let told = half_call(grpc, EXPORT, 5_000_000, 4 << 20).await;
        match told.code() {
            Code::Unavailable => assert!(!told.details().is_empty(), "{told:?}"),
            code => assert_eq!(code, Code::DeadlineExceeded, "{told:?}"),
        }
    }
    open.shutdown().await;
}

/// Raises the limit of open files, and reports whether it suffices for the crowd. User processes
/// get the higher limit only on request.
fn is_room_for_a_crowd() -> bool {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A failure shows below.
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if files < FILES_NEEDED {
        eprintln!(
            "SKIPPED: bad clients: this process may have {files} files open (`ulimit -Hn`), and a crowd takes {FILES_NEEDED}"
        );
    }
    files >= FILES_NEEDED
}

/// Number of files for the crowd's connections and everything else that the tests of this program
/// open.
const FILES_NEEDED: u64 = 4_096;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_client_is_served_beside_all_kinds_of_bad_ones() {
    if !is_elsewhere_possible() || !is_room_for_a_crowd() {
        return;
    }
    let program = Program::new();
    let tokens = program.file(
        "tokens",
        "write token-to-write-with\nread token-to-read-with-it\n",
    );
    let arguments = [
        "--token-file",
        &tokens,
        "--request-timeout",
        "2s",
        "--memory-limit",
        "256MiB",
    ];
    let Collector {
        mut server,
        grpc,
        otlp,
        pages,
    } = collect(&program, &arguments);
    let doors = [&*grpc, &*otlp, &*pages];
    let good = Good::default();
    let sending = tokio::spawn(good.clone().send(otlp.clone(), grpc.clone()));
    good.beside("nobody").await;
    garbage(doors).await;
    good.beside("garbage").await;
    bombs(doors).await;
    good.beside("bombs of gzip and zstd").await;
    slow_ones(doors).await;
    good.beside("slow heads and bodies").await;
    claims(doors).await;
    good.beside("claims of a gibibyte").await;
    crowds(doors).await;
    good.beside("thousands of connections").await;
    strangers(doors).await;
    good.beside("wrong tokens").await;
    floods(doors).await;
    good.beside("attributes and headers").await;
    hoarders(doors).await;
    good.beside("half-sent bodies").await;
    good.is_over.store(true, Relaxed);
    let sent = sending.await.expect("each was acknowledged");
    end(&mut server, &pages, sent).await;
}

/// Checks that no memory stays reserved, and that all acknowledged requests with spans are counted.
async fn end(server: &mut Server, pages: &str, sent: u64) {
    while !metrics(pages)
        .await
        .contains("stroboscope_reading_bytes 0\n")
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let metrics = metrics(pages).await;
    assert!(
        metrics.contains("stroboscope_in_flight_bytes 0\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains(&format!("stroboscope_otlp_requests_total {sent}\n")),
        "{sent}: {metrics}"
    );
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
    assert!(!server.said().contains("panicked"), "{}", server.said());
}

/// Serves a good client over TLS next to clients with expired certificates, garbage and silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_client_is_served_beside_those_without_a_certificate() {
    if !is_elsewhere_possible() {
        return;
    }
    let program = Program::new();
    let authority = Authority::new();
    let pair = authority.server();
    let (certificate, key) = (
        program.file("cert", pair.certificate),
        program.file("key", pair.key),
    );
    let ca = program.file("ca", authority.pem());
    let arguments = [
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
        "--request-timeout",
        "1s",
    ];
    let collector = collect(&program, &arguments);
    let (own, expired, ca) = (
        authority.client(),
        authority.expired_client(),
        authority.pem(),
    );
    let silent = from_elsewhere(&collector.otlp).await.expect("it listens");
    let mut took = Vec::new();
    for _ in 0..30 {
        let begun = Instant::now();
        let stream = connect(&collector.otlp, &ca, Some(&own), "http/1.1")
            .await
            .expect("TLS");
        let answer = ask_over(stream, "POST /v1/traces", &[JSON], SPAN.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        took.push(begun.elapsed());
        if let Ok(stream) = connect(&collector.otlp, &ca, Some(&expired), "http/1.1").await {
            assert_eq!(
                ask_over(stream, "POST /v1/traces", &[JSON], SPAN.as_bytes()).await,
                ""
            );
        }
        let mut stream = from_elsewhere(&collector.otlp).await.expect("it listens");
        let _ = stream.write_all(b"POST /v1/traces HTTP/1.1\r\n\r\n").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    took.sort_unstable();
    eprintln!(
        "beside expired certificates and garbage at TLS: median {:.1?}, slowest {:.1?}",
        took[15], took[29]
    );
    let mut silent = silent;
    let _ = silent.read_to_end(&mut Vec::new()).await;
    let stream = connect(&collector.pages, &ca, Some(&own), "http/1.1")
        .await
        .expect("TLS");
    let metrics = ask_over(stream, "GET /metrics", &[], b"").await;
    for (cause, count) in [
        ("client_certificate", 30),
        ("tls_handshake", 30),
        ("tls_timeout", 1),
    ] {
        assert_eq!(
            turned_away(&metrics, "otlp_http", cause),
            count,
            "{cause}: {metrics}"
        );
    }
    assert!(
        metrics.contains("stroboscope_otlp_requests_total 30\n"),
        "{metrics}"
    );
}
