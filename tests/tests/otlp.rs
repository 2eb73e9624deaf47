//! OpenTelemetry's own SDKs and exporters, as processes: what they sent is what is stored, field by field.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use stroboscope_tests::{Program, Server};

/// The Python that has OpenTelemetry's packages.
fn python(test: &str) -> Option<String> {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let packages =
        "import opentelemetry.exporter.otlp.proto.http, opentelemetry.exporter.otlp.proto.grpc";
    let has_them = Command::new(&python)
        .args(["-c", packages])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_them {
        eprintln!(
            "SKIPPED: {test}: pip install opentelemetry-sdk opentelemetry-exporter-otlp, and name its python by \
             STROBOSCOPE_TEST_PYTHON"
        );
    }
    has_them.then_some(python)
}

/// A collector on free ports: where it takes gRPC, OTLP over HTTP, and shows pages.
fn collect(program: &Program) -> (Server, String, String, String) {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let mut server = Server::start(command);
    let after = |said: &str, mark: &str| {
        let rest = said.lines().find_map(|line| line.strip_prefix(mark))?;
        Some(rest.trim().trim_end_matches('/').to_owned())
    };
    let grpc = server.wait_for("its address", |said| after(said, "collecting on grpc "));
    let http = server.wait_for("OTLP's", |said| after(said, "collecting OTLP on "));
    let pages = server.wait_for("its pages", |said| after(said, "page on http://"));
    (server, grpc, http, pages)
}

/// Rows of a table, as names and fields.
fn rows(data: &Path, table: &str) -> Vec<BTreeMap<String, Field>> {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files(&path, found);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "parquet")
            {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    files(&data.join(table), &mut found);
    let read = |path: PathBuf| {
        let file = std::fs::File::open(path).expect("a file");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| row.expect("a row").into_columns().into_iter().collect())
            .collect();
        rows
    };
    found.into_iter().flat_map(read).collect()
}

fn text(field: &Field) -> String {
    match field {
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => match bytes.as_utf8() {
            Ok(text) => text.to_owned(),
            Err(_) => panic!("{field:?} is no text"),
        },
        other => panic!("{other:?} is no text"),
    }
}

fn hex(field: &Field) -> String {
    let Field::Bytes(bytes) = field else {
        panic!("{field:?} is no id")
    };
    bytes
        .data()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn number(field: &Field) -> i128 {
    match field {
        Field::Long(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Int(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        other => panic!("{other:?} is no number"),
    }
}

/// Those in columns, and those that have none.
fn attributes(row: &BTreeMap<String, Field>) -> Value {
    let mut found = match &row["attributes"] {
        Field::Null => json!({}),
        field => serde_json::from_str(&text(field)).expect("JSON"),
    };
    for (name, field) in row {
        let value = match (name.split_once(':'), field) {
            (None, _) | (_, Field::Null) => continue,
            (Some((_, key)), Field::Str(text)) => (key, json!(text)),
            (Some((_, key)), Field::Long(number)) => (key, json!(number)),
            (Some((_, key)), Field::Double(number)) => (key, json!(number)),
            (Some((_, key)), Field::Bool(is_so)) => (key, json!(is_so)),
            (_, other) => panic!("{name}: {other:?}"),
        };
        found[value.0] = value.1;
    }
    found
}

const SERVER: i128 = 128;
const CLIENT: i128 = 64;

/// Compares a stored span with what its sender said of it.
fn check_span(told: &Value, row: &BTreeMap<String, Field>, events: &[BTreeMap<String, Field>]) {
    assert_eq!(hex(&row["trace_id"]), told["trace_id"]);
    assert_eq!(
        number(&row["parent_id"]),
        i128::from(told["parent_id"].as_u64().expect("an id"))
    );
    for (column, key) in [("start_ns", "start_ns"), ("end_ns", "end_ns")] {
        assert_eq!(
            number(&row[column]),
            i128::from(told[key].as_u64().expect("a time"))
        );
    }
    let texts = ["service", "name", "host"].map(|column| text(&row[column]));
    assert_eq!(
        texts,
        ["shop", told["name"].as_str().expect("a name"), "web1"]
    );
    let kinds = BTreeMap::from([("SERVER", SERVER), ("CLIENT", CLIENT)]);
    let kind = told["kind"].as_str().expect("a kind");
    assert_eq!(number(&row["flags"]), kinds.get(kind).copied().unwrap_or(0));
    let stored = attributes(row);
    for (key, value) in told["attributes"].as_object().expect("attributes") {
        assert_eq!(&stored[key], value, "{key}");
    }
    let mut expected = json!({
        "resource.deployment.zone": "a", "resource.host.name": "web1", "resource.telemetry.sdk.language": "python",
        "otel.scope.name": "shop.tracing", "otel.scope.version": "1.2", "scope.scope.says": "so",
    });
    if kind == "PRODUCER" {
        expected["span.kind"] = "producer".into();
        expected["error"] = true.into();
        expected["otel.status_description"] = "queue is full".into();
    }
    if told["status"] == "OK" {
        expected["otel.status_code"] = "OK".into();
    }
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&stored[key], value, "{key} of {stored:#}");
    }
    for (at, link) in told["links"].as_array().expect("links").iter().enumerate() {
        for key in ["trace_id", "span_id"] {
            assert_eq!(stored["links"][at][key], link[key]);
        }
    }
    let told_events = told["events"].as_array().expect("events");
    assert_eq!(events.len(), told_events.len());
    for (event, told) in events.iter().zip(told_events) {
        assert_eq!(text(&event["name"]), told["name"]);
        assert_eq!(
            number(&event["time_ns"]),
            i128::from(told["time_ns"].as_u64().expect("a time"))
        );
        assert_eq!(attributes(event), told["attributes"]);
    }
}

/// Sends requests by Python's SDK, and compares what was acknowledged with what is stored.
fn check_python(protocol: &str) {
    let Some(python) = python(&format!("Python's exporter over {protocol}")) else {
        return;
    };
    const REQUESTS: usize = 50;
    let program = Program::new();
    let (mut server, grpc, http, pages) = collect(&program);
    let endpoint = if protocol == "grpc" {
        format!("http://{grpc}")
    } else {
        http
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/otlp_client.py");
    let sent = Command::new(python)
        .arg(script)
        .args([protocol, &endpoint, &REQUESTS.to_string()])
        .output()
        .expect("Python starts");
    assert!(
        sent.status.success(),
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let metrics = ask(&pages, "GET", "/metrics", &[], b"").1;
    assert!(!metrics.contains("otlp_requests_total 0\n"), "{metrics}");
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());

    let told: Vec<Value> = String::from_utf8_lossy(&sent.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        told.len(),
        3 * REQUESTS,
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let (spans, events) = (
        rows(&program.data(), "spans"),
        rows(&program.data(), "events"),
    );
    assert_eq!(spans.len(), told.len());
    for told in &told {
        let id = i128::from(told["span_id"].as_u64().expect("an id"));
        let is_it = |row: &&BTreeMap<String, Field>| number(&row["span_id"]) as u64 == id as u64;
        let row = spans
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{told:#} is lost"));
        let of_span: Vec<_> = events.iter().filter(is_it).cloned().collect();
        check_span(told, row, &of_span);
    }
    // And the analysis sees them as requests.
    let model = program.run(&["infer", "--json"]).succeeds().json();
    assert_eq!(model["traces"], REQUESTS);
    let path = program
        .run(&["critical-path", "--by", "http.route", "--json"])
        .succeeds();
    assert!(path.stdout.contains("/cart"), "{}", path.stdout);
}

#[test]
fn pythons_exporter_over_grpc() {
    check_python("grpc");
}

#[test]
fn pythons_exporter_over_http() {
    check_python("http");
}

/// One request over HTTP/1.1; status line and headers, and the body.
fn ask(address: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("asked");
    // It may answer before it has read all.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

/// A request of one span; `{ID}` is its id.
const REQUEST: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"js"}}]},
    "scopeSpans":[{"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"{ID}","name":"pay","kind":2,
    "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,"futureKey":[1]}]}]}]}"#;

#[test]
fn what_is_wrong_is_said_as_the_protocol_has_it() {
    let program = Program::new();
    let (mut server, _, http, pages) = collect(&program);
    let address = http
        .trim_start_matches("http://")
        .trim_end_matches("/v1/traces");
    let json = "Content-Type: application/json";
    let post = |headers: &[&str], body: &[u8]| ask(address, "POST", "/v1/traces", headers, body);
    let check = |(head, body): (String, String), status: &str, code: i32, words: &str| {
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}\n{body}"
        );
        let said: Value =
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body:?} is no JSON"));
        assert_eq!(said["code"], code, "{said}");
        let message = said["message"].as_str().expect("a message");
        assert!(message.contains(words), "{words:?} is not in {message:?}");
    };
    let good = REQUEST.replace("{ID}", "EEE19B7EC3C1B174");
    let (head, body) = post(&[json], good.as_bytes());
    assert!(
        head.starts_with("HTTP/1.1 200") && body == "{}",
        "{head}\n{body}"
    );
    assert!(
        head.to_ascii_lowercase()
            .contains("content-type: application/json"),
        "{head}"
    );
    // Keys as protobuf has them are read, and not ignored.
    let (_, body) = post(
        &[json],
        br#"{"resource_spans":[{"scope_spans":[{"spans":[{"trace_id":"0"}]}]}]}"#,
    );
    assert!(body.contains("rejectedSpans"), "{body}");
    // An empty request is a success; one whose span is wrong is, too, and says what.
    assert_eq!(post(&[json], b"{}").1, "{}");
    let (head, body) = post(
        &[json],
        REQUEST.replace("{ID}", "0000000000000000").as_bytes(),
    );
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let partial: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(partial["partialSuccess"]["rejectedSpans"], "1", "{partial}");
    let message = partial["partialSuccess"]["errorMessage"].to_string();
    assert!(
        message.contains("spanId is `0000000000000000`"),
        "{message}"
    );

    check(post(&[json], b"{\"resourceSpans\":7"), "400", 3, "OTLP");
    check(
        post(&["Content-Type: text/plain"], b"x"),
        "415",
        3,
        "application/x-protobuf",
    );
    check(
        post(&[json, "Content-Encoding: br"], b"x"),
        "415",
        3,
        "gzip",
    );
    check(
        post(&[json, "Content-Encoding: gzip"], b"no gzip"),
        "400",
        3,
        "damaged",
    );
    check(
        ask(address, "GET", "/v1/traces", &[], b""),
        "405",
        3,
        "POST",
    );
    check(
        ask(address, "POST", "/v1/logs", &[json], b"{}"),
        "404",
        12,
        "no use for logs",
    );
    // In protobuf where the request is: a Status of code 3.
    let protobuf = "Content-Type: application/x-protobuf";
    let (head, body) = post(&[protobuf], b"\x0a\xff\x01garbage");
    assert!(
        head.starts_with("HTTP/1.1 400") && body.starts_with("\u{8}\u{3}\u{12}"),
        "{head}\n{body:?}"
    );
    // A gigabyte of zeros is a megabyte of gzip.
    let bomb = Command::new("sh")
        .args(["-c", "head -c 1000000000 /dev/zero | gzip -1"])
        .output()
        .expect("gzip");
    check(
        post(&[json, "Content-Encoding: gzip"], &bomb.stdout),
        "413",
        8,
        "67108864 bytes",
    );
    let long = vec![b' '; (64 << 20) + 1];
    check(post(&[json], &long), "413", 8, "67108864 bytes");

    let metrics = ask(&pages, "GET", "/metrics", &[], b"").1;
    for line in [
        "otlp_requests_total 1",
        "otlp_rejected_spans_total 2",
        "refused_batches_total{cause=\"otlp_too_large\"} 2",
        "refused_batches_total{cause=\"otlp_invalid\"} 3",
        "refused_batches_total{cause=\"otlp_unsupported\"} 2",
    ] {
        assert!(
            metrics.contains(&format!("stroboscope_{line}\n")),
            "{line}\n{metrics}"
        );
    }
    assert!(server.stop(libc::SIGTERM).success());
    let said = server.said();
    assert!(
        said.contains("stored 1 records in 0 batches and 1 requests of OTLP"),
        "{said}"
    );
    // Seven were refused for good.
    assert_eq!(
        said.matches("refused a request of OTLP").count(),
        3,
        "{said}"
    );
    let spans = rows(&program.data(), "spans");
    assert_eq!(spans.len(), 1, "{spans:#?}");
}

/// What was acknowledged before the collector was killed is there when it comes back.
#[test]
fn acknowledged_requests_outlive_a_kill() {
    let program = Program::new();
    let mut acknowledged = 0;
    for round in 0..5 {
        let (server, _, http, _) = collect(&program);
        let address = http
            .trim_start_matches("http://")
            .trim_end_matches("/v1/traces")
            .to_owned();
        for number in 0..20 {
            let request = REQUEST.replace("{ID}", &format!("{:016x}", 1 + round * 100 + number));
            let (head, _) = ask(
                &address,
                "POST",
                "/v1/traces",
                &["Content-Type: application/json"],
                request.as_bytes(),
            );
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            acknowledged += 1;
        }
        server.kill();
    }
    let (mut server, ..) = collect(&program);
    assert!(server.stop(libc::SIGTERM).success());
    let mut ids: Vec<i128> = rows(&program.data(), "spans")
        .iter()
        .map(|row| number(&row["span_id"]))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), acknowledged);
    assert_eq!(
        rows(&program.data(), "spans").len(),
        acknowledged,
        "none twice"
    );
}
