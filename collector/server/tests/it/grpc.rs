//! The gRPC server, over real sockets.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use stroboscope::burst::BurstConfig;
use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::directive::Kind;
use stroboscope_proto::v1::{Batch, ControlRequest, ShipOutcome, ShipReply, ShipRequest};
use stroboscope_server::collect::{Collector, CollectorSettings};
use stroboscope_server::grpc::ListenAddresses;
use stroboscope_server::ingest::{Options, Stop};
use stroboscope_server::net::NetSettings;
use stroboscope_server::redact::RedactSettings;
use stroboscope_store::limits::Limits;
use stroboscope_store::tables::{Store, TraceReader, read_batches};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

pub(super) fn settings(data: &Path) -> CollectorSettings {
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    CollectorSettings {
        data: data.to_owned(),
        listen: ListenAddresses {
            grpc: anywhere,
            unix: None,
        },
        otlp_http: Some(anywhere),
        http: Some(anywhere),
        site: None,
        forward: None,
        burst_config: None,
        doors: NetSettings::default(),
        redact: RedactSettings::default(),
        intake: Options {
            flush_interval: Duration::from_secs(3_600),
            ..Options::default()
        },
        publishing: None,
        limits: Limits {
            records_per_batch_max: 1_000,
            message_bytes_max: 1 << 20,
            ..Limits::default()
        },
    }
}

async fn client(collector: &Collector) -> CollectorClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", collector.grpc_address())).unwrap();
    CollectorClient::new(channel.connect().await.unwrap())
        .send_compressed(CompressionEncoding::Zstd)
}

/// Ships batches on one stream without waiting for replies. Returns the replies, and the status if
/// the stream failed.
pub(super) async fn ship(
    collector: &Collector,
    batches: Vec<Option<Batch>>,
) -> (Vec<ShipReply>, Option<tonic::Status>) {
    let requests: Vec<_> = batches
        .into_iter()
        .map(|batch| ShipRequest { batch })
        .collect();
    let mut replies = client(collector)
        .await
        .ship(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut all = Vec::new();
    loop {
        match replies.message().await {
            Ok(Some(reply)) => all.push(reply),
            Ok(None) => return (all, None),
            Err(status) => return (all, Some(status)),
        }
    }
}

pub(super) fn count(replies: &[ShipReply], outcome: ShipOutcome) -> usize {
    replies
        .iter()
        .filter(|reply| reply.outcome() == outcome)
        .count()
}

async fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

pub(super) async fn get(collector: &Collector, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    http(collector.http_address().unwrap(), &request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_over_a_socket_is_kept_once_through_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(directory.path())).await.unwrap();
    let mut sent: Vec<_> = (0..300)
        .map(|sequence| Some(batch(7, sequence, 3)))
        .collect();
    sent.extend((0..100).map(|sequence| Some(batch(7, sequence, 3))));
    let (replies, ending) = ship(&collector, sent).await;
    assert!(ending.is_none(), "{ending:?}");
    assert_eq!(
        (
            count(&replies, ShipOutcome::Stored),
            count(&replies, ShipOutcome::Duplicate)
        ),
        (300, 100)
    );
    let (replies, _) = ship(
        &collector,
        (0..50)
            .map(|sequence| Some(batch(8, sequence, 3)))
            .collect(),
    )
    .await;
    assert_eq!(count(&replies, ShipOutcome::Stored), 50);
    // The store is still empty, as after a kill.
    collector.stop(Stop::Now).await.unwrap();

    let collector = Collector::start(settings(directory.path())).await.unwrap();
    let (replies, _) = ship(
        &collector,
        vec![Some(batch(7, 299, 3)), Some(batch(8, 50, 3))],
    )
    .await;
    assert_eq!(
        (
            count(&replies, ShipOutcome::Duplicate),
            count(&replies, ShipOutcome::Stored)
        ),
        (1, 1)
    );
    collector.stop(Stop::Flush).await.unwrap();
    let store = tokio::task::spawn_blocking({
        let (data, runtime) = (
            directory.path().to_owned(),
            tokio::runtime::Handle::current(),
        );
        move || {
            let store = Store::local(&data, runtime).unwrap();
            let keys: Vec<_> = read_batches(&store)
                .unwrap()
                .map(|b| (b.process, b.sequence))
                .collect();
            let spans: usize = TraceReader::open(&store)
                .unwrap()
                .map(|trace| trace.spans.len())
                .sum();
            (keys, spans)
        }
    });
    let (keys, spans) = store.await.unwrap();
    let expected: Vec<_> = (0..300)
        .map(|s| (7, s))
        .chain((0..51).map(|s| (8, s)))
        .collect();
    assert_eq!(keys, expected);
    assert_eq!(spans, 351 * 3);
}

/// Checks that a request that hashes make too large is rejected permanently, and counted as such.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_redaction_enlarges_too_much_is_refused() {
    let attributes: Vec<String> = (0..20)
        .map(|number| format!(r#"{{"key":"k{number}","value":{{"stringValue":"x"}}}}"#))
        .collect();
    let body = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{:032x}","spanId":"{:016x}","name":"work","startTimeUnixNano":"1000","endTimeUnixNano":"2000","attributes":[{}]}}]}}]}}]}}"#,
        1,
        1,
        attributes.join(",")
    );
    let request = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    for (rules, status) in [(vec![], "HTTP/1.1 200"), (vec!["hash:*"], "HTTP/1.1 413")] {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(directory.path());
        settings.limits.otlp_request_bytes_max = body.len();
        settings.redact.rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let collector = Collector::start(settings).await.unwrap();
        let answer = http(collector.otlp_http_address().unwrap(), &request).await;
        assert!(answer.starts_with(status), "{rules:?}: {answer}");
        let metrics = get(&collector, "/metrics").await;
        let is_counted = metrics.contains("refused_batches_total{cause=\"otlp_too_large\"} 1");
        assert_eq!(is_counted, !rules.is_empty(), "{metrics}");
        collector.stop(Stop::Now).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_batches_are_refused_and_the_rest_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(directory.path())).await.unwrap();
    let mut malformed = batch(1, 1, 3);
    malformed.spans.as_mut().unwrap().flags.clear();
    let sent = vec![
        Some(batch(1, 0, 3)),
        Some(malformed),
        None,
        Some(batch(1, 3, 900)),
        Some(batch(1, 4, 3)),
    ];
    let (replies, ending) = ship(&collector, sent).await;
    assert!(ending.is_none(), "{ending:?}");
    assert_eq!(
        (
            count(&replies, ShipOutcome::Stored),
            count(&replies, ShipOutcome::Refused)
        ),
        (2, 3)
    );
    let details: Vec<_> = replies.iter().map(|reply| reply.detail.as_str()).collect();
    for part in [
        "spans.flags has 0 elements, expected 3",
        "holds no batch",
        "1350 records, the limit is 1000",
    ] {
        assert!(
            details.iter().any(|detail| detail.contains(part)),
            "{part}: {details:?}"
        );
    }
    let metrics = get(&collector, "/metrics").await;
    for line in [
        "stroboscope_batches_total{outcome=\"stored\"} 2",
        "stroboscope_refused_batches_total{cause=\"column_length\"} 1",
        "stroboscope_refused_batches_total{cause=\"no_batch\"} 1",
        "stroboscope_refused_batches_total{cause=\"too_many_records\"} 1",
        "stroboscope_missing_batches 3",
        "stroboscope_lost_records_total{service=\"web\",cause=\"ring_full\"} 4",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    collector.stop(Stop::Now).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_messages_and_garbage_end_only_their_stream() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(directory.path())).await.unwrap();
    // The message exceeds the limit only after decompression.
    let mut bomb = batch(1, 0, 1);
    bomb.strings.push("x".repeat(2 << 20));
    let (replies, ending) = ship(&collector, vec![Some(bomb)]).await;
    assert!(replies.is_empty());
    assert!(ending.unwrap().message().contains("limit"));
    for garbage in [
        "GET / HTTP/1.1\r\n\r\n",
        "\0\0\0\0\0\0",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u{1}\u{2}\u{3}garbage",
    ] {
        let mut stream = TcpStream::connect(collector.grpc_address()).await.unwrap();
        stream.write_all(garbage.as_bytes()).await.unwrap();
    }
    let (replies, _) = ship(&collector, vec![Some(batch(1, 0, 3))]).await;
    assert_eq!(count(&replies, ShipOutcome::Stored), 1);
    collector.stop(Stop::Now).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_config_reaches_all_at_the_same_instant() {
    let directory = tempfile::tempdir().unwrap();
    let start = CollectorSettings {
        burst_config: Some(BurstConfig::from_bits(28)),
        ..settings(directory.path())
    };
    let collector = Collector::start(start).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let stream = client(&collector)
            .await
            .control(ControlRequest::default())
            .await
            .unwrap();
        streams.push(stream.into_inner());
    }
    let mut told = Vec::new();
    for stream in &mut streams {
        match stream.message().await.unwrap().unwrap().kind {
            Some(Kind::SetBurstConfig(set)) => assert_eq!((set.burst_config, set.at_ns), (28, 0)),
            other => panic!("{other:?}"),
        }
    }
    let body = "8ms/64ms";
    let address = collector.http_address().unwrap();
    let post = |body: &str| {
        format!(
            "POST /burst-config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    assert!(http(address, &post(body)).await.starts_with("HTTP/1.1 200"));
    for stream in &mut streams {
        match stream.message().await.unwrap().unwrap().kind {
            Some(Kind::SetBurstConfig(set)) => told.push((set.burst_config, set.at_ns)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0, 0b111000);
    let now_ns = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    assert!(told[0].1 > now_ns && told[0].1 < now_ns + 1_100_000_000);
    assert!(get(&collector, "/burst-config").await.contains("0b111000"));
    let bad = http(address, &post("often")).await;
    assert!(
        bad.starts_with("HTTP/1.1 400") && bad.contains("often"),
        "{bad}"
    );
    // Sets the burst-config by the form of the page.
    let form = |body: &str| post(body).replace("/burst-config", "/fleet?since=1h");
    let set = http(address, &form("config=4ms%2F32ms")).await;
    assert!(
        set.starts_with("HTTP/1.1 200") && set.contains("The burst-config is "),
        "{set}"
    );
    assert!(set.contains("action=\"/fleet?since=1h\""), "{set}");
    assert!(get(&collector, "/burst-config").await.contains("0b11100"));
    let bad = http(address, &form("config=%3Cscript%3E")).await;
    assert!(
        bad.starts_with("HTTP/1.1 400") && bad.contains("&lt;script&gt;"),
        "{bad}"
    );
    assert!(!bad.contains("<script>"), "{bad}");
    // Open control streams do not keep the collector from stopping.
    let begun = std::time::Instant::now();
    collector.stop(Stop::Now).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_say_what_is_there_and_escape_it() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(directory.path())).await.unwrap();
    assert!(
        get(&collector, "/")
            .await
            .contains("Nothing has arrived yet")
    );
    let mut hostile = batch(1, 0, 3);
    hostile.process.as_mut().unwrap().service = "<script>\"\n".into();
    ship(&collector, vec![Some(hostile)]).await;
    let page = get(&collector, "/").await;
    assert!(
        page.contains("&lt;script&gt;&quot;") && !page.contains("<script>"),
        "{page}"
    );
    assert!(
        get(&collector, "/metrics")
            .await
            .contains(r#"service="<script>\"\n""#)
    );
    let json = get(&collector, "/api/processes").await;
    for header in [
        "x-content-type-options: nosniff",
        "content-security-policy: default-src 'none'; frame-ancestors 'none'",
    ] {
        assert!(json.contains(header), "{json}");
    }
    assert!(
        get(&collector, "/healthz")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        get(&collector, "/nothing")
            .await
            .starts_with("HTTP/1.1 404")
    );
    collector.stop(Stop::Now).await.unwrap();
}

/// The page of the fleet starts with 50 processes, and links lead to the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_fleet_is_paged() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(directory.path())).await.unwrap();
    for number in 1..=60 {
        let mut of_process = batch(number, 0, 1);
        of_process.process.as_mut().unwrap().pid = 1_000 + number as u32;
        ship(&collector, vec![Some(of_process)]).await;
    }
    let processes = |page: &str| page.matches("data-label=\"process\"").count();
    let first = get(&collector, "/fleet?since=1h").await;
    assert_eq!(processes(&first), 50);
    let all = "<a href=\"/fleet?rows=all&amp;since=1h#row-";
    assert!(
        first.contains(all) && first.contains(">show all 60</a>"),
        "{first}"
    );
    let all = get(&collector, "/fleet?rows=all").await;
    assert_eq!(processes(&all), 60);
    collector.stop(Stop::Now).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_is_taken_over_only_when_it_is_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    // Leaves a socket file as a killed collector does.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let with_unix = |data: &str| {
        let settings = settings(&directory.path().join(data));
        CollectorSettings {
            listen: ListenAddresses {
                unix: Some(path.clone()),
                ..settings.listen.clone()
            },
            ..settings
        }
    };
    let collector = Collector::start(with_unix("one")).await.unwrap();
    tokio::net::UnixStream::connect(&path).await.unwrap();
    let second = Collector::start(with_unix("two")).await.unwrap_err();
    assert!(second.to_string().contains("--unix takes"), "{second}");
    collector.stop(Stop::Now).await.unwrap();
    assert!(!path.exists());
    std::fs::write(&path, "notes").unwrap();
    let third = Collector::start(with_unix("three")).await.unwrap_err();
    assert!(third.to_string().contains("is not a socket"), "{third}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_disk_pushes_back_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(directory.path())).await.unwrap();
    let wal = directory.path().join("wal");
    std::fs::remove_dir_all(&wal).unwrap();
    let (replies, ending) = ship(&collector, vec![Some(batch(1, 0, 3))]).await;
    let status = ending.unwrap();
    assert!(replies.is_empty());
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(
        status.message().contains("0000000000.wal"),
        "{}",
        status.message()
    );
    assert!(
        get(&collector, "/metrics")
            .await
            .contains("stroboscope_batches_total{outcome=\"pushed_back\"} 1")
    );
    std::fs::create_dir(&wal).unwrap();
    let (replies, ending) = ship(&collector, vec![Some(batch(1, 0, 3))]).await;
    assert!(ending.is_none() && count(&replies, ShipOutcome::Stored) == 1);
    collector.stop(Stop::Flush).await.unwrap();
}
