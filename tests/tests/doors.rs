//! Bad input at every door: a clear complaint that says what and where, no panic, and nothing else lost.

use std::io::Write as _;
use std::net::TcpStream;

use stroboscope_proto::v1::{self, ShipOutcome, collector_client::CollectorClient};
use stroboscope_tests::{Line, Program, Server, event_lines};
use tonic::transport::Endpoint;

fn line(trace: &str, task: &str, event: &str, ts_ns: i64) -> Line {
    Line { trace: trace.into(), host: "web1".into(), ts_ns, event: event.into(), task: task.into() }
}

/// Two tasks, one after the other.
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
    Program::run_plain(&["burst", "--config", "sometimes"]).fails_with(2, &["sometimes", "4ms/32ms"]);
    Program::run_plain(&["demo", "--fault", "disk=+1ms"]).fails_with(2, &["disk", "store.read"]);
    Program::run_plain(&["demo", "--burst-config", "1ms"]).fails_with(2, &["1ms", "4ms/32ms"]);
    Program::run_plain(&["collect", "--listen", "here"]).fails_with(2, &["--listen", "here"]);
    let program = Program::new();
    program.run(&["infer"]).fails_with(2, &["no data folder", " collect --data "]);
    // Refused before anything is started, or made.
    program.run(&["demo", "--burst-config", "off"]).fails_with(2, &["never records", "256ms/1024ms"]);
    program.run(&["demo", "--seconds", "0"]).fails_with(2, &["0 s"]);
    assert!(!program.data().exists());
    program.run(&["critical-path", "--tolerance", "2"]).fails_with(2, &["--tolerance", "0 to 1"]);
}

#[test]
fn environment_of_a_service() {
    let check = |name: &str, value: &str, words: &[&str]| {
        let mut command = std::process::Command::new(Program::path());
        command.args(["newsfeed", "store", "--listen", "127.0.0.1:0", "--stop-with-stdin"]);
        command.env("STROBOSCOPE_COLLECTOR", "http://127.0.0.1:9").env(name, value);
        let output = command.stdin(std::process::Stdio::null()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{name}={value} was accepted: {said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {said:?}");
        }
        assert!(!said.contains("panicked"), "{said}");
    };
    check("STROBOSCOPE_BURST_CONFIG", "often", &["STROBOSCOPE_BURST_CONFIG", "often", "4ms/32ms", "0b11100"]);
    check("STROBOSCOPE_SAMPLE", "most", &["STROBOSCOPE_SAMPLE", "most", "follow"]);
    check("STROBOSCOPE_COLLECTOR", "localhost:4317", &["STROBOSCOPE_COLLECTOR", "localhost:4317", "http://"]);
}

#[test]
fn hostile_event_logs_lose_nothing_but_their_bad_lines() {
    let program = Program::new();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let bad: Vec<Vec<u8>> = vec![
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"ts_n".to_vec(),
        b"not json".to_vec(),
        b"[]".to_vec(),
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"event\":\"e\",\"task\":\"t\"}".to_vec(),
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"ts_ns\":\"soon\",\"event\":\"e\",\"task\":\"t\"}".to_vec(),
        b"{\"trace\":\"r1\",\"host\":\"web1\",\"ts_ns\":1e300,\"event\":\"e\",\"task\":\"t\"}".to_vec(),
        b"{\"trace\":7,\"host\":\"web1\",\"ts_ns\":1,\"event\":\"e\",\"task\":\"t\"}".to_vec(),
        b"{\"trace\":\"\xff\xfe\",\"host\":\"web1\",\"ts_ns\":1,\"event\":\"e\",\"task\":\"t\"}".to_vec(),
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
    let places: Vec<String> = (5..15).map(|number| format!("hostile.jsonl:{number}")).collect();
    let words: Vec<&str> = places.iter().map(String::as_str).collect();
    run.fails_with(1, &words);
    let inferred = program.run(&["infer", "--json"]).succeeds().json();
    assert_eq!(
        (inferred["traces"].as_u64(), inferred["segments"].as_array().map(Vec::len)),
        (Some(2), Some(2))
    );
    assert_eq!(inferred["happens_before"].as_array().map(Vec::len), Some(1));

    program.run(&["import", "/no/such/file.jsonl"]).fails_with(2, &["/no/such/file.jsonl"]);
    program.run_with_input(&["import", "-"], b"\0\0\0\n").fails_with(2, &["standard input:1"]);
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
    for damaged in [&whole[..whole.len() / 2], &[0u8; 64][..], &b"PAR1"[..], &[][..]] {
        std::fs::write(&files[0], damaged).expect("damaged");
        let name = files[0].file_name().expect("a name").to_string_lossy().into_owned();
        let run = program.run(&["infer", "--json"]);
        let inferred = run.json();
        assert_eq!(inferred["traces"].as_u64(), Some(1), "the other file is read");
        run.fails_with(1, &[&name]);
    }
    // Bytes turned over in the middle: either noticed and named, or of no consequence; never a panic.
    for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
        let mut turned = whole.clone();
        turned[at] ^= 0xff;
        std::fs::write(&files[0], &turned).expect("damaged");
        let run = program.run(&["infer", "--json"]);
        assert!(!run.stderr.contains("panicked"), "byte {at}: {run:?}");
        assert!(matches!(run.status.code(), Some(0 | 1)), "byte {at}: {run:?}");
    }
}

fn parquet_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            found.extend(parquet_files(&entry.path()));
        } else if entry.path().extension().is_some_and(|extension| extension == "parquet") {
            found.push(entry.path());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_over_grpc_is_refused_by_name_and_others_are_served() {
    let program = Program::new();
    let mut command = program.command(&["collect"]);
    command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let mut server = Server::start(command);
    let after = |said: &str, mark: &str| {
        let line = said.lines().find(|line| line.contains(mark))?;
        line.split(mark).nth(1).map(|rest| rest.trim().trim_end_matches('/').to_owned())
    };
    let address = server.wait_for("its address", |said| after(said, "collecting on grpc "));
    let pages = server.wait_for("its pages", |said| after(said, "page on http://"));
    // Bytes that are no HTTP/2 at all.
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xffu8; 4_096][..],
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxx"[..],
    ] {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        // It may hang up first.
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
    let ragged =
        v1::Batch { spans: Some(v1::Spans { span_ids: vec![1, 2], ..v1::Spans::default() }), ..good(1) };
    let nameless = v1::Batch { process: None, ..good(2) };
    let batches = [Some(good(0)), Some(ragged), Some(nameless), None, Some(good(1))];
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
    assert!(refused.iter().all(|detail| detail.len() > 10), "each says why: {refused:?}");
    assert!(refused[0].contains("spans"), "{refused:?}");
    let metrics = get(&pages, "/metrics");
    assert!(metrics.contains("refus"), "{metrics}");
    assert!(get(&pages, "/healthz").contains("ok"));
    assert!(server.stop(libc::SIGTERM).success());
    assert!(!server.said().contains("panicked"), "{}", server.said());
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).expect("answered");
    answer
}
