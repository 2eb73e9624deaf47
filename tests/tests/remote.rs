//! Stores in object stores, with real collectors: in a directory (`file://`) always, and in a
//! server of S3 if Python has one (moto, from PyPI).

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stroboscope_tests::{Program, Server};

const SECRET: &str = "not-for-logs-7391";
const BUCKET: &str = "bursts";

/// Destination of publishing.
struct Target {
    url: String,
    variables: Vec<(&'static str, String)>,
    _server: Option<Server>,
    _directory: tempfile::TempDir,
    cache: tempfile::TempDir,
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Sends one request over HTTP/1.1. Returns all of the answer.
fn ask(address: &str, what: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn start_moto(python: &str, port: u16) -> Server {
    let mut command = Command::new(python);
    command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p"]);
    command.arg(port.to_string()).stdin(Stdio::null());
    let server = Server::start(command);
    let address = format!("127.0.0.1:{port}");
    wait_for("a server of S3", || {
        let made = ask(&address, &format!("PUT /{BUCKET}"), "").ok()?;
        made.starts_with("HTTP/1.1 200").then_some(())
    });
    server
}

/// Returns the Python that has moto. If there is none, prints this and returns `None`.
fn python(test: &str) -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python)
        .args(["-c", "import moto.server, flask"])
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    eprintln!(
        "SKIPPED: {test}: pip install 'moto[server]', and name its python by STROBOSCOPE_TEST_PYTHON"
    );
    None
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Target {
    fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self {
            url: format!("file://{}/store", directory.path().display()),
            variables: Vec::new(),
            _server: None,
            _directory: directory,
            cache: tempfile::tempdir().expect("a directory"),
        }
    }

    fn s3(port: u16, server: Option<Server>) -> Self {
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "tests".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        Self {
            url: format!("s3://{BUCKET}/some/prefix"),
            variables: variables.into(),
            _server: server,
            ..Self::file()
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(Program::path());
        command.envs(self.variables.iter().cloned());
        command.env("XDG_CACHE_HOME", self.cache.path());
        command.stdin(Stdio::null());
        command
    }

    fn collect(&self, data: &Path) -> Collector {
        let mut command = self.command();
        command.arg("collect").arg("--data").arg(data);
        for door in ["--listen", "--otlp-http", "--http"] {
            command.args([door, "127.0.0.1:0"]);
        }
        command.args(["--flush-interval", "1s", "--publish", &self.url]);
        let mut server = Server::start(command);
        let after = |said: &str, mark: &str| {
            let rest = said.lines().find_map(|line| line.strip_prefix(mark))?;
            Some(rest.trim().split('/').next()?.to_owned())
        };
        let otlp = server.wait_for("OTLP's door", |said| {
            after(said, "collecting OTLP on http://")
        });
        let pages = server.wait_for("its pages", |said| after(said, "page on http://"));
        Collector {
            server,
            otlp,
            pages,
        }
    }

    /// Returns the output of a subcommand on a store.
    fn says(&self, verb: &str, data: &str) -> Value {
        let output = self
            .command()
            .args([verb, "--json", "--data", data])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{verb} of {data}: {said}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn assert_same(&self, data: &Path) {
        for verb in ["infer", "critical-path"] {
            let here = self.says(verb, &data.display().to_string());
            assert_eq!(self.says(verb, &self.url), here, "{verb}");
        }
    }
}

struct Collector {
    server: Server,
    otlp: String,
    pages: String,
}

impl Collector {
    /// Sends the spans of requests: those of the caller, of the callee, or both.
    fn send(&self, requests: std::ops::Range<u64>, services: &[&str]) {
        let of = |service: &str| {
            let spans: Vec<Value> = requests.clone().map(|at| span(service, at)).collect();
            let name = json!({"key": "service.name", "value": {"stringValue": service}});
            json!({"resource": {"attributes": [name]}, "scopeSpans": [{"spans": spans}]})
        };
        let all: Vec<Value> = services.iter().map(|service| of(service)).collect();
        let body = json!({ "resourceSpans": all }).to_string();
        let answer = ask(&self.otlp, "POST /v1/traces", &body).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = ask(&self.pages, "GET /metrics", "").expect("metrics");
        let value = metrics.lines().find_map(|line| {
            let rest = line.strip_prefix("stroboscope_")?.strip_prefix(name)?;
            rest.trim().parse().ok()
        });
        value.unwrap_or_else(|| panic!("no {name} in {metrics}"))
    }

    /// Stops the collector by SIGTERM, and returns its output.
    fn stop(mut self) -> String {
        assert!(self.server.stop(15).success(), "{}", self.server.said());
        self.server.said()
    }
}

fn span(service: &str, at: u64) -> Value {
    // The times are in one hour, and the same in each run of a test.
    let begin_ns = 1_790_000_000_000_000_000 + at * 1_000_000_000;
    let (id, parent, kind, begin_ns, end_ns) = match service {
        "front" => (1, String::new(), 2, begin_ns, begin_ns + 50_000_000),
        _ => {
            let parent = format!("{:016x}", at * 2 + 1);
            (2, parent, 2, begin_ns + 10_000_000, begin_ns + 30_000_000)
        }
    };
    json!({
        "traceId": format!("{:032x}", at + 1),
        "spanId": format!("{:016x}", at * 2 + id),
        "parentSpanId": parent,
        "name": format!("{service} works"),
        "kind": kind,
        "startTimeUnixNano": begin_ns.to_string(),
        "endTimeUnixNano": end_ns.to_string(),
    })
}

const BOTH: &[&str] = &["front", "back"];

/// Checks publishing, a kill in the midst of it, compaction, declared requests, and a copy of the
/// directory.
fn one_collector(target: &Target) {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let collector = target.collect(&data);
    collector.send(0..20, BOTH);
    wait_for("published", || {
        (collector.metric("published_files_total") > 0.0
            && collector.metric("publish_behind_files") == 0.0)
            .then_some(())
    });
    assert!(collector.metric("publish_last_success_seconds") > 0.0);
    target.assert_same(&data);
    for round in 1..6 {
        collector.send(round * 20..round * 20 + 20, BOTH);
        std::thread::sleep(Duration::from_millis(700));
    }
    collector.server.kill();

    let collector = target.collect(&data);
    collector.send(200..210, BOTH);
    let said = collector.stop();
    assert!(!said.contains(SECRET), "{said}");
    target.assert_same(&data);
    let requests = target.says("critical-path", &target.url);

    // The same rows in other files.
    let compacted = target
        .command()
        .args(["compact", "--data"])
        .arg(&data)
        .output();
    assert!(compacted.expect("it runs").status.success());
    target.collect(&data).stop();
    target.assert_same(&data);
    assert_eq!(target.says("critical-path", &target.url), requests);

    // The declared requests are published, too.
    let declared = target
        .command()
        .args(["store", "set-requests", "back:back works", "--data"])
        .arg(&data)
        .output();
    assert!(declared.expect("it runs").status.success());
    target.collect(&data).stop();
    target.assert_same(&data);
    assert_ne!(target.says("critical-path", &target.url), requests);

    // A copy takes its place.
    let first = target.collect(&data);
    wait_for("its first round", || {
        (first.metric("publish_last_success_seconds") > 0.0).then_some(())
    });
    let copy = directory.path().join("copy");
    let copied = Command::new("cp").arg("-r").args([&data, &copy]).status();
    assert!(copied.expect("cp").success());
    let second = target.collect(&copy);
    wait_for("the copy's first round", || {
        (second.metric("publish_last_success_seconds") > 0.0).then_some(())
    });
    first.send(300..310, BOTH);
    wait_for("fenced", || {
        (first.metric("publish_fenced") == 1.0).then_some(())
    });
    assert_eq!(
        first.metric("publish_failures_total{cause=\"fenced\"}"),
        1.0
    );
    let said = first.stop();
    assert!(said.contains("another collector publishes"), "{said}");
    second.stop();
    target.assert_same(&copy);
}

/// Checks two collectors, each with some spans of every request.
fn two_collectors(target: &Target) {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, two, whole] = ["one", "two", "whole"].map(|name| directory.path().join(name));
    let other = Target::file();
    let (a, b, all) = (
        target.collect(&one),
        target.collect(&two),
        other.collect(&whole),
    );
    for round in 0..3 {
        let requests = round * 10..round * 10 + 10;
        a.send(requests.clone(), &["front"]);
        b.send(requests.clone(), &["back"]);
        all.send(requests, BOTH);
        std::thread::sleep(Duration::from_millis(1_200));
    }
    for collector in [a, b, all] {
        collector.stop();
    }
    target.assert_same(&whole);
}

/// The other manifests are read, and the reader learns which one is damaged.
#[test]
fn a_damaged_manifest_costs_what_is_its_own() {
    let target = Target::file();
    let directory = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
    for (data, requests) in [(&one, 0..10), (&two, 10..30)] {
        let collector = target.collect(data);
        collector.send(requests, BOTH);
        collector.stop();
    }
    let id = |data: &Path| {
        let told = std::fs::read(data.join("published.json")).expect("its id");
        let told: Value = serde_json::from_slice(&told).expect("JSON");
        told["id"].as_str().expect("a text").to_owned()
    };
    assert_eq!(target.says("infer", &target.url)["traces"], 30);
    let there = target.url.trim_start_matches("file://");
    let manifest = format!("{there}/collectors/{}/manifest.json", id(&one));
    std::fs::write(&manifest, b"{\"version\":1,\"files\":7}").expect("damaged");
    let infer = ["infer", "--json", "--data", &target.url];
    let told = target.command().args(infer).output().expect("it runs");
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success(), "{said}");
    assert!(
        said.contains("left out") && said.contains(&id(&one)),
        "{said}"
    );
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(told["traces"], 20);
}

#[test]
fn a_directory_holds_what_a_collector_has() {
    one_collector(&Target::file());
}

#[test]
fn a_bucket_holds_what_a_collector_has() {
    let Some(python) = python("a bucket of one collector") else {
        return;
    };
    let port = free_port();
    one_collector(&Target::s3(port, Some(start_moto(&python, port))));
}

#[test]
fn requests_span_the_collectors_of_a_directory() {
    two_collectors(&Target::file());
}

#[test]
fn requests_span_the_collectors_of_a_bucket() {
    let Some(python) = python("a bucket of two collectors") else {
        return;
    };
    let port = free_port();
    two_collectors(&Target::s3(port, Some(start_moto(&python, port))));
}

#[test]
fn what_is_collected_while_the_bucket_is_away_comes_later() {
    let port = free_port();
    let target = Target::s3(port, None);
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let collector = target.collect(&data);
    collector.send(0..20, BOTH);
    wait_for("it is seen to be away", || {
        (collector.metric("publish_failures_total{cause=\"unavailable\"}") > 0.0
            && collector.metric("publish_behind_files") > 0.0)
            .then_some(())
    });
    if let Some(python) = python("a bucket that comes back") {
        let _server = start_moto(&python, port);
        wait_for("it is published", || {
            (collector.metric("publish_behind_files") == 0.0).then_some(())
        });
        target.assert_same(&data);
        // No such bucket.
        let output = target
            .command()
            .args(["infer", "--data", "s3://elsewhere/x"])
            .output();
        let said = String::from_utf8_lossy(&output.expect("it runs").stderr).into_owned();
        assert!(said.contains("bucket"), "{said}");
    }
    let said = collector.stop();
    assert!(said.contains("cannot publish"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
}

#[test]
fn what_cannot_be_used_is_said() {
    let target = Target::file();
    let fails = |arguments: &[&str], why: &str| {
        let output = target.command().args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!said.contains(SECRET), "{said}");
    };
    fails(&["infer", "--data", &target.url], "published");
    fails(
        &["collect", "--data", &target.url],
        "give a local directory",
    );
    fails(&["infer", "--data", "gs://x/y"], "gs:// is not known");
    let with_secret = format!("s3://me:{SECRET}@bucket/x");
    fails(
        &["collect", "--publish", &with_secret],
        "AWS_SECRET_ACCESS_KEY",
    );
    let away = Target::s3(free_port(), None);
    let output = away.command().args(["infer", "--data", &away.url]).output();
    let said = String::from_utf8_lossy(&output.expect("it runs").stderr).into_owned();
    assert!(said.contains("AWS_ENDPOINT_URL"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
}
