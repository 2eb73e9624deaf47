//! OpenTelemetry's own SDKs and exporters, and an agent between them and the collector, as
//! processes. Acknowledged data is stored field by field, and the analysis sees it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use stroboscope_tests::{Program, Server};

use crate::store::{Row, ask, attributes, collect, collect_with, number, rows, rows_in_sql, text};

const REQUESTS: usize = 50;
const SERVER: i128 = 128;
const CLIENT: i128 = 64;

/// Returns the Python that has OpenTelemetry's packages. If there is none, prints this and returns
/// `None`.
pub(crate) fn python(test: &str) -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let packages =
        "import opentelemetry.exporter.otlp.proto.http, opentelemetry.exporter.otlp.proto.grpc";
    let has_them = succeeds(Command::new(&python).args(["-c", packages]));
    if !has_them {
        eprintln!(
            "SKIPPED: {test}: pip install opentelemetry-sdk opentelemetry-exporter-otlp, and name its python by \
             STROBOSCOPE_TEST_PYTHON"
        );
    }
    has_them.then_some(python)
}

/// Returns the directory with OpenTelemetry's packages for JavaScript. If there is none, prints
/// this and returns `None`.
pub(crate) fn node_modules(test: &str) -> Option<String> {
    let directory = std::env::var("STROBOSCOPE_TEST_NODE_MODULES").unwrap_or_default();
    let package = "require('@opentelemetry/exporter-trace-otlp-http')";
    let mut node = Command::new("node");
    let has_it = succeeds(node.env("NODE_PATH", &directory).args(["-e", package]));
    if !has_it {
        eprintln!(
            "SKIPPED: {test}: npm install @opentelemetry/{{api,api-logs,resources,sdk-trace-base,sdk-logs,\
             exporter-trace-otlp-http,exporter-logs-otlp-http}}, and name its node_modules by \
             STROBOSCOPE_TEST_NODE_MODULES"
        );
    }
    has_it.then_some(directory)
}

/// Returns the path of rotel, an agent that forwards OTLP, inside its package of Python.
fn rotel(test: &str, python: &str) -> Option<PathBuf> {
    let place =
        "import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'))";
    let found = Command::new(python).args(["-c", place]).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let is_there = succeeds(Command::new(&path).arg("--help"));
    if !is_there {
        eprintln!("SKIPPED: {test}: pip install --pre rotel, where STROBOSCOPE_TEST_PYTHON is");
    }
    is_there.then_some(path)
}

fn succeeds(command: &mut Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a client, and returns the data that was acknowledged to it.
fn send(client: &mut Command) -> Vec<Value> {
    let sent = client.output().expect("it starts");
    let errors = String::from_utf8_lossy(&sent.stderr);
    assert!(sent.status.success(), "{errors}");
    let told: Vec<Value> = String::from_utf8_lossy(&sent.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    // Spans, lines and events of all requests, and one line of none.
    assert_eq!(told.len(), 5 * REQUESTS + 1, "{errors}");
    told
}

fn python_client(python: &str, protocol: &str, endpoint: &str) -> Command {
    let mut client = Command::new(python);
    client.arg(script("otlp_client.py"));
    client.args([protocol, endpoint, &REQUESTS.to_string()]);
    client
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

pub(crate) fn has_id(row: &Row, told: &Value) -> bool {
    number(&row["span_id"]) as u64 == number(&told["span_id"]) as u64
}

/// Compares the store with the senders' reports.
fn check(program: &Program, told: &[Value]) {
    let of_signal = |signal: &str| -> Vec<&Value> {
        told.iter()
            .filter(|each| each["signal"] == signal)
            .collect()
    };
    let (told_spans, told_logs) = (of_signal("span"), of_signal("log"));
    let tables = ["spans", "events"];
    let stored = tables.map(|table| rows(&program.data(), table));
    check_rows(&stored, &told_spans, &told_logs);
    if let [Some(spans), Some(events)] = tables.map(|table| rows_in_sql(program, table)) {
        check_rows(&[spans, events], &told_spans, &told_logs);
    }
    // The analysis sees the spans as requests, and distinguishes their routes.
    let model = program.run(&["infer", "--json"]).succeeds().json();
    assert_eq!(model["traces"], REQUESTS);
    let path = program.run(&["critical-path", "--by", "http.route", "--json"]);
    let path = path.succeeds().stdout;
    assert!(
        path.contains("/cart") && path.contains("shop:GET /cart"),
        "{path}"
    );
    // A line of a log cuts no segment. An event does if it lies inside its span and outside the
    // span's children. JavaScript's clock for logs has milliseconds, so hardly any event is inside
    // its span, and one may be inside a child, too.
    let labels = model.to_string();
    let is_inside = |log: &Value, span: &Value| {
        let (at_ns, from_ns) = (number(&log["time_ns"]), number(&span["start_ns"]));
        from_ns < at_ns && at_ns < number(&span["end_ns"])
    };
    let spans_of = |log: &Value, key: &str| -> Vec<&Value> {
        let spans = told_spans.iter().copied();
        spans.filter(|span| span[key] == log["span_id"]).collect()
    };
    let touches = |log: &Value, span: &Value| {
        let (at_ns, from_ns) = (number(&log["time_ns"]), number(&span["start_ns"]));
        from_ns <= at_ns && at_ns <= number(&span["end_ns"])
    };
    let (mut may_cut, mut cuts) = (false, false);
    for log in told_logs
        .iter()
        .filter(|log| log["event_name"] == "cart.paid")
    {
        let is_in = spans_of(log, "span_id")
            .iter()
            .any(|span| is_inside(log, span));
        let is_in_child = spans_of(log, "parent_id")
            .iter()
            .any(|child| touches(log, child));
        may_cut |= is_in;
        cuts |= is_in && !is_in_child;
    }
    let is_cut = labels.contains("cart.paid");
    assert!(is_cut || !cuts, "{labels}");
    assert!(may_cut || !is_cut, "{labels}");
    assert!(!labels.contains("user"), "{labels}");
}

/// Compares spans and events with the senders' reports.
fn check_rows([spans, events]: &[Vec<Row>; 2], told_spans: &[&Value], told_logs: &[&Value]) {
    assert_eq!(spans.len(), told_spans.len());
    for &told in told_spans {
        let row = spans.iter().find(|row| has_id(row, told));
        let row = row.unwrap_or_else(|| panic!("{told:#} is lost"));
        let is_log = |row: &Row| attributes(row).get("log.body").is_some();
        let of_span: Vec<&Row> = events
            .iter()
            .filter(|row| has_id(row, told) && !is_log(row))
            .collect();
        check_span(told, row, &of_span);
    }
    for &told in told_logs {
        let is_it = |row: &&Row| {
            has_id(row, told)
                && number(&row["time_ns"]) == number(&told["time_ns"])
                && attributes(row)["log.body"] == told["body"]
        };
        let found: Vec<&Row> = events.iter().filter(is_it).collect();
        if number(&told["span_id"]) == 0 {
            assert!(found.is_empty(), "{found:?} belongs to no request");
        } else {
            assert_eq!(found.len(), 1, "{told:#}: {found:?}");
            check_log(told, found[0]);
        }
    }
}

pub(crate) fn check_span(told: &Value, row: &Row, events: &[&Row]) {
    assert_eq!(text(&row["trace_id"]), told["trace_id"]);
    let parent_id = number(&row["parent_id"]) as u64;
    assert_eq!(parent_id, number(&told["parent_id"]) as u64);
    for key in ["start_ns", "end_ns"] {
        assert_eq!(number(&row[key]), number(&told[key]));
    }
    let texts = ["service", "name", "host"].map(|column| text(&row[column]));
    let name = told["name"].as_str().expect("a name");
    assert_eq!(texts, ["shop", name, "web1"]);
    let kinds = BTreeMap::from([("SERVER", SERVER), ("CLIENT", CLIENT)]);
    let kind = told["kind"].as_str().expect("a kind");
    assert_eq!(number(&row["flags"]), kinds.get(kind).copied().unwrap_or(0));
    let stored = attributes(row);
    includes(&stored, &told["attributes"]);
    let mut expected = json!({
        "resource.deployment.zone": "a", "resource.host.name": "web1",
        "otel.scope.name": "shop.tracing", "otel.scope.version": "1.2",
    });
    if stored["resource.telemetry.sdk.language"] == "python" {
        expected["scope.scope.says"] = "so".into();
    }
    if kind == "PRODUCER" {
        expected["span.kind"] = "producer".into();
        expected["error"] = true.into();
        expected["otel.status_description"] = "queue is full".into();
    }
    if told["status"] == "OK" {
        expected["otel.status_code"] = "OK".into();
    }
    includes(&stored, &expected);
    for (at, link) in told["links"].as_array().expect("links").iter().enumerate() {
        for key in ["trace_id", "span_id"] {
            assert_eq!(stored["links"][at][key], link[key]);
        }
    }
    let told_events = told["events"].as_array().expect("events");
    assert_eq!(events.len(), told_events.len());
    for (event, told) in events.iter().zip(told_events) {
        assert_eq!(text(&event["name"]), told["name"]);
        assert_eq!(number(&event["time_ns"]), number(&told["time_ns"]));
        assert_eq!(attributes(event), told["attributes"]);
    }
}

fn check_log(told: &Value, row: &Row) {
    assert_eq!(text(&row["trace_id"]), told["trace_id"]);
    let texts = ["service", "host"].map(|column| text(&row[column]));
    assert_eq!(texts, ["shop", "web1"]);
    let stored = attributes(row);
    includes(&stored, &told["attributes"]);
    let expected = json!({
        "resource.deployment.zone": "a", "otel.scope.name": "shop.log", "otel.scope.version": "2.1",
        "log.severity_text": told["severity_text"], "log.severity_number": told["severity_number"],
        "log.observed_time_unix_nano": told["observed_ns"],
    });
    includes(&stored, &expected);
    if told["event_name"] == "" {
        assert_eq!(text(&row["name"]), "user");
        assert_eq!(text(&row["task"]), "shop/worker");
    } else {
        assert_eq!(text(&row["name"]), told["event_name"]);
        assert_eq!(row["task"], Value::Null);
    }
}

fn includes(all: &Value, some: &Value) {
    for (key, value) in some.as_object().expect("an object") {
        assert_eq!(&all[key], value, "{key} of {all:#}");
    }
}

/// Checks the counters, and stops the collector, so that all data is in its tables.
fn end(server: &mut Server, pages: &str) {
    let metrics = ask(pages, "GET", "/metrics", &[], b"").1;
    assert!(!metrics.contains("otlp_requests_total 0\n"), "{metrics}");
    let nobodys = "stroboscope_otlp_logs_without_trace_total 1\n";
    assert!(metrics.contains(nobodys), "{metrics}");
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
}

/// Checks Python's exporter. `way` is grpc, http, or unix: gRPC on a unix socket, for which gRPC
/// makes an authority of the path.
fn check_python(way: &str) {
    let Some(python) = python(&format!("Python's exporter over {way}")) else {
        return;
    };
    let program = Program::new();
    let unix = program.data().with_file_name("collect.sock");
    let unix = unix.to_str().expect("UTF-8");
    let (mut server, grpc, http, pages) = collect_with(&program, &["--unix", unix]);
    let (protocol, endpoint) = match way {
        "grpc" => ("grpc", format!("http://{grpc}")),
        "unix" => ("grpc", format!("unix:{unix}")),
        _ => ("http", http),
    };
    let told = send(&mut python_client(&python, protocol, &endpoint));
    end(&mut server, &pages);
    check(&program, &told);
}

#[test]
fn pythons_exporter_over_grpc() {
    check_python("grpc");
}

#[test]
fn pythons_exporter_on_a_unix_socket() {
    check_python("unix");
}

#[test]
fn pythons_exporter_over_http() {
    check_python("http");
}

#[test]
fn javascripts_exporter_in_json() {
    let Some(modules) = node_modules("JavaScript's exporter") else {
        return;
    };
    let program = Program::new();
    let (mut server, _, http, pages) = collect(&program);
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules)
        .arg(script("otlp_client.cjs"));
    let told = send(node.args([&http, &REQUESTS.to_string()]));
    end(&mut server, &pages);
    check(&program, &told);
}

/// An agent between a service and the collector takes requests apart and puts them together anew.
#[test]
fn an_agent_in_between() {
    let test = "an agent in between";
    let Some(python) = python(test) else { return };
    let Some(rotel) = rotel(test, &python) else {
        return;
    };
    let program = Program::new();
    let (mut server, grpc, _, pages) = collect(&program);
    // rotel cannot report which free port it took.
    let free = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").to_string()
    };
    let (its_grpc, its_http) = (free(), free());
    let mut agent = Command::new(rotel);
    agent.args(["start", "--otlp-grpc-endpoint", &its_grpc]);
    agent.args(["--otlp-http-endpoint", &its_http, "--exporter", "otlp"]);
    agent.args(["--otlp-exporter-endpoint", &format!("http://{grpc}")]);
    agent.args([
        "--otlp-exporter-protocol",
        "grpc",
        "--batch-timeout",
        "200ms",
    ]);
    let mut agent = Server::start(agent);
    agent.wait_for("its port", |_| {
        std::net::TcpStream::connect(&its_grpc).ok().map(drop)
    });
    let told = send(&mut python_client(
        &python,
        "grpc",
        &format!("http://{its_grpc}"),
    ));
    // When the agent ends, it has forwarded all data.
    assert!(agent.stop(libc::SIGTERM).success(), "{}", agent.said());
    end(&mut server, &pages);
    check(&program, &told);
}
