//! Invalid input at every port: the error states what is wrong and where, nothing panics, and no
//! other data is lost.

use std::io::Write as _;
use std::net::TcpStream;

use stroboscope_proto::v1::{self, ShipOutcome, collector_client::CollectorClient};
use stroboscope_tests::{Line, Program, Server, event_lines};
use tonic::transport::Endpoint;

fn line(trace: &str, task: &str, event: &str, ts_ns: i64) -> Line {
    Line {
        trace: trace.into(),
        host: "web1".into(),
        ts_ns,
        event: event.into(),
        task: task.into(),
    }
}

/// Returns the lines of two tasks, one after the other.
fn good_lines() -> String {
    event_lines(&[
        line("r1", "server", "begin", 1_000),
        line("r1", "server", "sent", 2_000),
        line("r1", "page", "begin", 3_000),
        line("r1", "page", "shown", 5_000),
    ])
}

#[test]
fn command_line() {
    Program::run_plain(&["dance"]).fails_with(2, &["unrecognized subcommand 'dance'", "--help"]);
    Program::run_plain(&["burst", "--config", "sometimes"])
        .fails_with(2, &["sometimes", "4ms/32ms"]);
    let both = ["\"11100\"", "write 0b11100", "write 0x2b5c"];
    Program::run_plain(&["burst", "--config", "11100"]).fails_with(2, &both);
    Program::run_plain(&["collect", "--burst-config", "11100"]).fails_with(2, &both);
    Program::run_plain(&["demo", "--fault", "disk=+1ms"]).fails_with(2, &["disk", "store.read"]);
    Program::run_plain(&["demo", "--burst-config", "1ms"]).fails_with(2, &["1ms", "4ms/32ms"]);
    Program::run_plain(&["collect", "--listen", "here"]).fails_with(2, &["--listen", "here"]);
    let program = Program::new();
    program
        .run(&["infer"])
        .fails_with(2, &["no data directory", " collect --data "]);
    // Refused before anything is started, or made.
    program
        .run(&["demo", "--burst-config", "off"])
        .fails_with(2, &["never records", "256ms/1024ms"]);
    program
        .run(&["demo", "--seconds", "0"])
        .fails_with(2, &["0 s"]);
    assert!(!program.data().exists());
    program
        .run(&["critical-path", "--tolerance", "2"])
        .fails_with(2, &["--tolerance", "0 to 1"]);
}

#[test]
fn environment_of_a_service() {
    let store = |name: &str, value: &str| {
        let mut command = std::process::Command::new(Program::path());
        command.args([
            "newsfeed",
            "store",
            "--listen",
            "127.0.0.1:0",
            "--stop-with-stdin",
        ]);
        command
            .env("STROBOSCOPE_COLLECTOR", "http://127.0.0.1:9")
            .env(name, value);
        let output = command
            .stdin(std::process::Stdio::null())
            .output()
            .expect("it starts");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let check = |name: &str, value: &str, words: &[&str]| {
        let (success, said) = store(name, value);
        assert!(!success, "{name}={value} was accepted: {said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {said:?}");
        }
        assert!(!said.contains("panicked"), "{said}");
    };
    check(
        "STROBOSCOPE_BURST_CONFIG",
        "often",
        &["STROBOSCOPE_BURST_CONFIG", "often", "4ms/32ms", "0b11100"],
    );
    check(
        "STROBOSCOPE_BURST_CONFIG",
        "11100",
        &["STROBOSCOPE_BURST_CONFIG", "write 0b11100", "write 0x2b5c"],
    );
    check(
        "STROBOSCOPE_TRACING",
        "shop=loud",
        &["STROBOSCOPE_TRACING", "shop=loud", "info,shop::cart=debug"],
    );
    check(
        "STROBOSCOPE_SAMPLE",
        "most",
        &["STROBOSCOPE_SAMPLE", "most", "follow"],
    );
    check(
        "STROBOSCOPE_COLLECTOR",
        "localhost:4317",
        &["STROBOSCOPE_COLLECTOR", "localhost:4317", "http://"],
    );
    // A misspelt variable only causes a warning: it must not stop a service.
    let (success, said) = store("STROBOSCOPE_BURSTCONFIG", "always");
    assert!(success, "{said}");
    assert!(
        said.contains("STROBOSCOPE_BURSTCONFIG is not known")
            && said.contains("STROBOSCOPE_BURST_CONFIG?"),
        "{said}"
    );
    let (success, said) = store("STROBOSCOPE_TEST_ANYTHING", "1");
    assert!(success && !said.contains("is not known"), "{said}");
}

/// Starts a collector on free ports. Returns it with its addresses for gRPC and for pages.
fn collect(program: &Program, more: &[&str]) -> (Server, String, String) {
    let mut command = program.command(&["collect"]);
    command
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(["--otlp-http", "127.0.0.1:0"])
        .args(more);
    let mut server = Server::start(command);
    let address = server.collector_address();
    let pages = server.after("page on http://");
    (server, address, pages)
}

/// Starts a process of the newsfeed that ships to an address.
fn service(collector: &str) -> Server {
    let mut command = std::process::Command::new(Program::path());
    command
        .args(["newsfeed", "store", "--listen", "127.0.0.1:0"])
        .stdin(std::process::Stdio::null());
    command.env("STROBOSCOPE_COLLECTOR", collector);
    Server::start(command)
}

#[test]
fn a_burst_config_that_is_rounded_says_so() {
    let program = Program::new();
    let (mut server, _, pages) = collect(&program, &["--burst-config", "4ms/30ms"]);
    let said = server.said();
    assert!(
        said.contains("burst-config 4ms/30ms rounded to 0b11100 (4ms/32ms)"),
        "{said}"
    );
    assert!(get(&pages, "/burst-config").contains("0b11100"));
    assert!(server.stop(libc::SIGTERM).success());
    let program = Program::new();
    let (server, ..) = collect(&program, &["--burst-config", "4ms/32ms"]);
    assert!(!server.said().contains("rounded"), "{}", server.said());
}

/// However a service ends, the collector logs its name, and not as an error.
#[test]
fn the_end_of_a_service_is_said_with_its_name() {
    let program = Program::new();
    let (mut server, address, pages) = collect(&program, &[]);
    let wait_for_processes = |count: u32| {
        let line = format!("\nstroboscope_processes {count}\n");
        let is_there = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            get(&pages, "/metrics").contains(&line)
        };
        assert!((0..3_000).any(is_there), "{}", get(&pages, "/metrics"));
    };
    let killed = service(&format!("http://{address}"));
    wait_for_processes(1);
    let who = format!("store (process {} on ", killed.pid());
    killed.kill();
    let line = server.wait_for("the end of a killed service", |said| {
        said.lines()
            .find(|line| line.contains(&who))
            .map(str::to_owned)
    });
    assert!(
        line.contains("INFO") && line.contains("disconnected without ending its stream"),
        "{line}"
    );
    assert!(line.contains("incarnation "), "{line}");

    let mut ended = service(&format!("http://{address}"));
    wait_for_processes(2);
    let who = format!("store (process {} on ", ended.pid());
    assert!(ended.stop(libc::SIGTERM).success(), "{}", ended.said());
    let line = server.wait_for("the end of a service that was stopped", |said| {
        said.lines()
            .find(|line| line.contains(&who))
            .map(str::to_owned)
    });
    assert!(
        line.contains("INFO") && line.contains("ended its stream after "),
        "{line}"
    );

    assert!(server.stop(libc::SIGTERM).success());
    let said = server.said();
    assert!(
        !said.contains("WARN") && !said.contains("stream broke"),
        "{said}"
    );
}

#[test]
fn a_service_at_the_wrong_port_is_told_the_right_one() {
    let program = Program::new();
    let (mut server, address, pages) = collect(&program, &[]);
    let port = address.rsplit(':').next().expect("a port");
    let otlp = server.wait_for("OTLP's address", |said| {
        let rest = said
            .lines()
            .find_map(|line| line.strip_prefix("collecting OTLP on "))?;
        Some(
            rest.trim()
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .to_owned(),
        )
    });
    for (wrong, is_for) in [
        (&pages, "port for pages"),
        (&otlp, "port for OTLP over HTTP"),
    ] {
        let mut lost = service(&format!("http://{wrong}"));
        let line = lost.wait_for("an explanation", |said| {
            said.lines()
                .find(|line| line.starts_with("stroboscope: "))
                .map(str::to_owned)
        });
        for words in [
            wrong,
            is_for,
            &format!("STROBOSCOPE_COLLECTOR=http://127.0.0.1:{port}"),
        ] {
            assert!(line.contains(words), "{words:?} is not in {line:?}");
        }
    }
    let page = get(&pages, "/nothing");
    assert!(
        page.starts_with("HTTP/1.1 404") && page.contains("No such page"),
        "{page}"
    );
    let otlp = get(&pages, "/v1/traces");
    assert!(
        otlp.starts_with("HTTP/1.1 404") && otlp.contains("--otlp-http"),
        "{otlp}"
    );
}

/// Calls any gRPC method with an empty message.
async fn call(address: &str, path: &str) -> tonic::Status {
    call_with(address, path, &[0; 5]).await
}

/// Calls a gRPC method with a message, or only with its beginning.
async fn call_with(address: &str, path: &str, message: &'static [u8]) -> tonic::Status {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("it listens");
    let (client, connection) = h2::client::handshake(stream)
        .await
        .expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("user-agent", "OTel-OTLP-Exporter-Test/1.0")
        .body(())
        .expect("a request");
    let (response, mut body) = client
        .ready()
        .await
        .expect("ready")
        .send_request(request, false)
        .expect("sent");
    // The collector may answer before.
    let _ = body.send_data(message.into(), true);
    let response = response.await.expect("an answer");
    if let Some(status) = tonic::Status::from_header_map(response.headers()) {
        return status;
    }
    // The status is in the trailers.
    let mut body = response.into_body();
    while let Some(chunk) = body.data().await {
        let _ = chunk.expect("a body");
    }
    let trailers = body.trailers().await.expect("trailers").expect("some");
    tonic::Status::from_header_map(&trailers).expect("a status")
}

/// An OpenTelemetry exporter of unsupported data gets an explanation, and the collector logs the
/// exporter once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn otlp_clients_are_told_what_is_taken() {
    let program = Program::new();
    let (mut server, address, pages) = collect(&program, &[]);
    let otlp = |signal: &str, version: &str, service: &str| {
        format!("/opentelemetry.proto.collector.{signal}.{version}.{service}/Export")
    };
    // Five bytes are an empty request, which is a success.
    let traces = call(&address, &otlp("trace", "v1", "TraceService")).await;
    assert_eq!(traces.code(), tonic::Code::Ok, "{traces:?}");
    // A message of 65 MiB is too large. No client may take this for overload, and retry.
    let large = &[0, 0x04, 0x10, 0, 0];
    let large = call_with(&address, &otlp("trace", "v1", "TraceService"), large).await;
    assert_eq!(large.code(), tonic::Code::ResourceExhausted, "{large:?}");
    assert!(
        large.details().is_empty() && large.message().contains("67108864"),
        "{large:?}"
    );
    let logs = call(&address, &otlp("logs", "v1", "LogsService")).await;
    assert_eq!(logs.code(), tonic::Code::Ok, "{logs:?}");
    for _ in 0..4 {
        let metrics = call(&address, &otlp("metrics", "v1", "MetricsService")).await;
        assert_eq!(metrics.code(), tonic::Code::Unimplemented);
        assert!(
            metrics.message().contains("Stroboscope collector")
                && metrics.message().contains("accepts only"),
            "{metrics:?}"
        );
    }
    let other = call(&address, "/jaeger.api_v2.CollectorService/PostSpans").await;
    assert_eq!(other.code(), tonic::Code::Unimplemented);
    assert!(
        other.message().contains("jaeger.api_v2") && other.message().contains("stroboscope.v1"),
        "{other:?}"
    );

    let line = server.wait_for("who it was", |said| {
        said.lines()
            .find(|line| line.contains("OpenTelemetry's \"metrics\""))
            .map(str::to_owned)
    });
    for words in [
        "WARN",
        "127.0.0.1:",
        "OTel-OTLP-Exporter-Test/1.0",
        "OTEL_METRICS_EXPORTER=none",
    ] {
        assert!(line.contains(words), "{words:?} is not in {line:?}");
    }
    let counted = get(&pages, "/metrics");
    assert!(
        counted.contains("refused_batches_total{cause=\"otlp_grpc\"} 4"),
        "{counted}"
    );
    assert!(
        counted.contains("refused_batches_total{cause=\"unknown_method\"} 1"),
        "{counted}"
    );
    assert!(server.stop(libc::SIGTERM).success());
    assert_eq!(
        server.said().matches("OpenTelemetry's").count(),
        1,
        "{}",
        server.said()
    );
}

#[test]
fn hostile_event_logs_lose_nothing_but_their_bad_lines() {
    let program = Program::new();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let bad: Vec<Vec<u8>> = vec![
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"ts_n".to_vec(),
        b"not json".to_vec(),
        b"[7]".to_vec(),
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"event\":\"e\",\"task\":\"t\"}".to_vec(),
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"ts_ns\":\"soon\",\"event\":\"e\",\"task\":\"t\"}"
            .to_vec(),
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"ts_ns\":1e300,\"event\":\"e\",\"task\":\"t\"}"
            .to_vec(),
        b"{\"trace\":7,\"host\":\"web1\",\"ts_ns\":1,\"event\":\"e\",\"task\":\"t\"}".to_vec(),
        b"{\"trace\":\"\xff\xfe\",\"host\":\"web1\",\"ts_ns\":1,\"event\":\"e\",\"task\":\"t\"}"
            .to_vec(),
        format!("{{\"trace\":\"r1\",\"attrs\":{deep}}}").into_bytes(),
        vec![b'x'; 3 << 20],
    ];
    let mut log = good_lines().into_bytes();
    for line in &bad {
        log.extend_from_slice(line);
        log.push(b'\n');
    }
    log.extend_from_slice(good_lines().replace("r1", "r2").as_bytes());
    let path = program.file("hostile.jsonl", &log);
    let run = program.run(&["import", &path]);
    // Each bad line is named with its place.
    let places: Vec<String> = (5..15)
        .map(|number| format!("hostile.jsonl:{number}"))
        .collect();
    let words: Vec<&str> = places.iter().map(String::as_str).collect();
    run.fails_with(1, &words);
    let inferred = program.run(&["infer", "--json"]).succeeds().json();
    assert_eq!(
        (
            inferred["traces"].as_u64(),
            inferred["segments"].as_array().map(Vec::len)
        ),
        (Some(2), Some(2))
    );
    assert_eq!(inferred["happens_before"].as_array().map(Vec::len), Some(1));

    program
        .run(&["import", "/no/such/file.jsonl"])
        .fails_with(2, &["/no/such/file.jsonl"]);
    program
        .run_with_input(&["import", "-"], b"\0\0\0\n")
        .fails_with(2, &["standard input holds", "--map"]);
}

#[test]
fn a_damaged_file_in_the_store_is_named_and_the_rest_is_read() {
    let program = Program::new();
    let first = program.file("first.jsonl", good_lines());
    let second = program.file("second.jsonl", good_lines().replace("r1", "r2"));
    let _ = program.run(&["import", &first]).succeeds();
    let _ = program.run(&["import", &second]).succeeds();
    let mut files = parquet_files(&program.data().join("events"));
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let whole = std::fs::read(&files[0]).expect("a file");
    for damaged in [
        &whole[..whole.len() / 2],
        &[0u8; 64][..],
        &b"PAR1"[..],
        &[][..],
    ] {
        std::fs::write(&files[0], damaged).expect("damaged");
        let name = files[0]
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let run = program.run(&["infer", "--json"]);
        let inferred = run.json();
        assert_eq!(
            inferred["traces"].as_u64(),
            Some(1),
            "the other file is read"
        );
        run.fails_with(1, &[&name]);
    }
    // Inverted bytes are either noticed and named, or have no effect; none causes a panic.
    for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
        let mut turned = whole.clone();
        turned[at] ^= 0xff;
        std::fs::write(&files[0], &turned).expect("damaged");
        let run = program.run(&["infer", "--json"]);
        assert!(!run.stderr.contains("panicked"), "byte {at}: {run:?}");
        assert!(
            matches!(run.status.code(), Some(0 | 1)),
            "byte {at}: {run:?}"
        );
    }
}

fn parquet_files(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        if entry.path().is_dir() {
            found.extend(parquet_files(&entry.path()));
        } else if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            found.push(entry.path());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_over_grpc_is_refused_by_name_and_others_are_served() {
    let program = Program::new();
    let (mut server, address, pages) = collect(&program, &[]);
    // Bytes that are no valid HTTP/2.
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xffu8; 4_096][..],
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxx"[..],
    ] {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        // The collector may close the connection first.
        let _ = stream.write_all(garbage);
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let mut client = CollectorClient::new(endpoint.connect().await.expect("it listens"));
    let process = v1::Process {
        incarnation: vec![7; 16],
        service: "s".into(),
        host: "h".into(),
        pid: 1,
        started_ns: 1,
        sdk_version: "t".into(),
    };
    let good = |sequence| v1::Batch {
        process: Some(process.clone()),
        sequence,
        strings: vec![String::new()],
        ..v1::Batch::default()
    };
    let ragged = v1::Batch {
        spans: Some(v1::Spans {
            span_ids: vec![1, 2],
            ..v1::Spans::default()
        }),
        ..good(1)
    };
    let nameless = v1::Batch {
        process: None,
        ..good(2)
    };
    let batches = [
        Some(good(0)),
        Some(ragged),
        Some(nameless),
        None,
        Some(good(1)),
    ];
    let requests = tokio_stream::iter(batches.map(|batch| v1::ShipRequest { batch }));
    let mut replies = client.ship(requests).await.expect("a stream").into_inner();
    let (mut stored, mut refused) = (0, Vec::new());
    while let Ok(Some(reply)) = replies.message().await {
        match ShipOutcome::try_from(reply.outcome) {
            Ok(ShipOutcome::Stored) => stored += 1,
            Ok(ShipOutcome::Refused) => refused.push(reply.detail),
            other => panic!("{other:?}: {}", reply.detail),
        }
    }
    assert_eq!((stored, refused.len()), (2, 3), "{refused:?}");
    assert!(
        refused.iter().all(|detail| detail.len() > 10),
        "each says why: {refused:?}"
    );
    assert!(refused[0].contains("spans"), "{refused:?}");
    let metrics = get(&pages, "/metrics");
    assert!(metrics.contains("refus"), "{metrics}");
    assert!(get(&pages, "/healthz").contains("ok"));
    assert!(server.stop(libc::SIGTERM).success());
    assert!(!server.said().contains("panicked"), "{}", server.said());
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .expect("asked");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).expect("answered");
    answer
}
