//! The log: one line an event, for people and for programs.

use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use serde_json::Value;
use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::ShipOutcome;
use stroboscope_tests::{Program, Server};

use crate::{collect, get, metric, ship};

const READ: &str = "tOken-of-those-who-read";

/// Parses all lines, each of which must be a JSON object.
fn lines(said: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    said.lines().map(parse).collect()
}

#[test]
fn programs_read_it_as_json() {
    let program = Program::new();
    let tokens = program.file("tokens", format!("read {READ}\n"));
    let mut command =
        program.command(&["collect", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    command.args([
        "--otlp-http",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--token-file",
        &tokens,
    ]);
    command.args(["--log-level", "debug"]);
    let mut server = Server::start(command);
    let address = |said: &str, door: &str| {
        let line = lines(said)
            .into_iter()
            .find(|line| line["door"] == door && line["what"] == "listening")?;
        Some(line["address"].as_str()?.to_owned())
    };
    let pages = server.wait_for("its pages", |said| address(said, "pages"));
    for door in ["grpc", "otlp_http"] {
        let _ = server.wait_for(door, |said| address(said, door));
    }
    // One request without a token, and one with an unknown token.
    let pages = pages.trim_start_matches("http://").trim_end_matches('/');
    for header in ["", "Authorization: Bearer tOken-of-nobody\r\n"] {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(pages).expect("it listens");
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
    assert!(server.stop(libc::SIGTERM).success());
    let said = server.said();
    let lines = lines(&said);
    for line in &lines {
        for key in ["time", "level", "what"] {
            assert!(
                line[key].as_str().is_some_and(|text| !text.is_empty()),
                "{key}: {line}"
            );
        }
    }
    let refused = |cause: &str| {
        lines
            .iter()
            .find(|line| line["cause"] == cause)
            .cloned()
            .expect(cause)
    };
    for cause in ["token_missing", "token_unknown"] {
        let line = refused(cause);
        assert_eq!(
            (&line["level"], &line["door"], &line["count"]),
            (&"warn".into(), &"pages".into(), &1.into())
        );
        assert!(
            line["peer"]
                .as_str()
                .is_some_and(|peer| peer.starts_with("127.0.0.1:")),
            "{line}"
        );
    }
    assert!(
        lines.iter().any(|line| line["role"] == "write and control"),
        "{said}"
    );
    assert!(!said.contains("tOken-"), "{said}");
    // An error that prevents the start has the same form.
    let program = Program::new();
    let run = program.run(&[
        "collect",
        "--log-format",
        "json",
        "--token-file",
        "/no/such/file",
    ]);
    assert_eq!(lines_of_failure(&run.stderr)["level"], "error", "{run:#?}");
    run.fails_with(2, &["cannot read /no/such/file"]);
}

fn lines_of_failure(said: &str) -> Value {
    lines(said).pop().expect("a line")
}

/// Continuous garbage does not fill the log, and a name in a rejected batch cannot forge a line of
/// the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_cut_and_no_value_is_told() {
    let program = Program::new();
    let arguments = ["--redact", "drop:password", "--log-level", "debug"];
    let mut collector = collect(&program, &arguments, &[]);
    let bad = |sequence| {
        let mut bad = batch(9, sequence, 2);
        // An incarnation of 3 bytes is invalid.
        bad.process.as_mut().expect("a process").incarnation = vec![1, 2, 3];
        bad.process.as_mut().expect("a process").host = "h\nERROR forged\u{1b}[31m".to_owned();
        bad
    };
    let replies = ship(&collector.grpc, (0..500).map(bad).collect()).await;
    assert_eq!(replies.len(), 500);
    for sequence in 0..100 {
        assert_eq!(
            ship(&collector.grpc, vec![batch(3, sequence, 1)])
                .await
                .len(),
            1
        );
    }
    let left_out = metric(&collector.pages, "log_lines_left_out_total");
    assert!(left_out >= 300.0, "{left_out}");
    assert!(get(&collector.pages, "/metrics").contains("refused_batches_total"));
    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    let count = said.matches("refused batch").count();
    assert!((1..=100).contains(&count), "{count}: {said}");
    let count = said.matches("ended its stream").count();
    assert!((1..=80).contains(&count), "{count}: {said}");
    assert!(
        !said.lines().any(|line| line.starts_with("ERROR")) && !said.contains('\u{1b}'),
        "{said}"
    );
}

/// If standard error is read by systemd's journal, lines begin with a priority and have no time.
#[test]
fn the_journal_gets_priorities() {
    let program = Program::new();
    let log = program.file("journal", "");
    let file = std::fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .expect("a file");
    let about = file.metadata().expect("a file");
    let mut command =
        program.command(&["collect", "--listen", "127.0.0.1:0", "--otlp-http", "none"]);
    command.args(["--http", "127.0.0.1:0", "--insecure-listen"]);
    command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()));
    let mut child = command
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .expect("it starts");
    let ready = |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        program.data().join("lock").exists()
    };
    assert!((0..1_500).any(ready), "it starts");
    // SAFETY: a plain system call on a child that was not waited for.
    #[allow(unsafe_code)]
    unsafe {
        libc::kill(child.id().cast_signed(), libc::SIGTERM)
    };
    assert!(child.wait().expect("it ends").success());
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.lines().any(|line| line == "<6>stopping"), "{said}");
}

/// A collector without its checkpoint would store repeated data twice, so it logs this with the
/// remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_checkpoint_is_told_with_its_remedy() {
    const REMEDY: &str = "stroboscope store check --repair --data ";
    let program = Program::new();
    let mut collector = collect(&program, &[], &[]);
    ship(&collector.grpc, vec![batch(3, 0, 1)]).await;
    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    assert!(!said.contains(REMEDY), "{said}");

    std::fs::remove_file(program.data().join("checkpoint.json")).expect("a checkpoint");
    let mut collector = collect(&program, &[], &[]);
    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    assert!(said.contains(REMEDY), "{said}");

    let _ = program.run(&["store", "check", "--repair"]).succeeds();
    let mut collector = collect(&program, &[], &[]);
    let replies = ship(&collector.grpc, vec![batch(3, 0, 1)]).await;
    assert_eq!(replies[0].outcome(), ShipOutcome::Duplicate);
    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    assert!(!said.contains(REMEDY), "{said}");
}
