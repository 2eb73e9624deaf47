//! Redacted values are nowhere: neither in the log nor in the store.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use prost::Message as _;
use serde_json::{Value, json};
use stroboscope_fixtures::batches::{batch, provenance_log};
use stroboscope_proto::v1::collector_client::CollectorClient;
use stroboscope_proto::v1::{AttributeKind, Attributes, ShipOutcome, ShipRequest};
use stroboscope_tests::{Program, Random};
use tonic::Code;

use crate::client::{EXPORT, ask, call, metrics};
use crate::collect;

const RULES: [&str; 7] = [
    "hash:log.body",
    "drop:log.severity_text",
    "keep:drop.not.*",
    "drop:drop.*",
    "hash:hash.*",
    "drop:otel.status_description",
    "hash:w3c.*",
];

/// A value, before it is written in one form or the other.
#[derive(Clone, Debug)]
enum Told {
    Text(String),
    Int(i64),
    List(Vec<Told>),
    Map(Vec<(String, Told)>),
}

/// True if an attribute is redacted; `None` if this depends on its content.
type Fate = Option<bool>;

/// Generates attributes, and remembers the values that must and must not be found.
struct Teller {
    random: Random,
    number: u64,
    secrets: Vec<String>,
    kept: Vec<String>,
}

impl Teller {
    fn text(&mut self, is_secret: bool) -> String {
        self.number += 1;
        let text = format!("{:08x}-{}", self.random.next_u64() as u32, self.number);
        let all = if is_secret {
            &mut self.secrets
        } else {
            &mut self.kept
        };
        all.push(text.clone());
        text
    }

    fn value(&mut self, fate: Fate, depth: u64) -> Told {
        match self.random.below(if depth < 3 { 5 } else { 2 }) {
            0 | 1 => Told::Text(self.text(fate == Some(true))),
            2 => {
                let int = 1_000_000_000_000_000 + self.random.below(1 << 50) as i64;
                let all = if fate == Some(true) {
                    &mut self.secrets
                } else {
                    &mut self.kept
                };
                all.push(int.to_string());
                Told::Int(int)
            }
            3 => Told::List(
                (0..self.random.below(3))
                    .map(|_| self.value(fate, depth + 1))
                    .collect(),
            ),
            _ => Told::Map(self.attributes(fate, depth + 1)),
        }
    }

    fn attributes(&mut self, around: Fate, depth: u64) -> Vec<(String, Told)> {
        let attribute = |_| {
            self.number += 1;
            let kind = self.random.below(5) as usize;
            let (key, fate) = [
                ("drop", Some(true)),
                ("Drop.Header", Some(true)),
                ("hash", Some(true)),
                // Deeper, its path is another one, and its content decides.
                ("drop.not", (depth == 0).then_some(false)),
                ("plain", None),
            ][kind];
            let value = self.value(around.or(fate), depth);
            (format!("{key}.{}", self.number), value)
        };
        (0..5).map(attribute).collect()
    }
}

fn any(told: &Told) -> AnyValue {
    let value = match told {
        Told::Text(text) => Any::StringValue(text.clone()),
        Told::Int(int) => Any::IntValue(*int),
        Told::List(list) => Any::ArrayValue(ArrayValue {
            values: list.iter().map(any).collect(),
        }),
        Told::Map(map) => Any::KvlistValue(KeyValueList { values: pairs(map) }),
    };
    AnyValue { value: Some(value) }
}

fn pairs(told: &[(String, Told)]) -> Vec<KeyValue> {
    let pair = |(key, value): &(String, Told)| KeyValue {
        key: key.clone(),
        value: Some(any(value)),
        ..KeyValue::default()
    };
    told.iter().map(pair).collect()
}

fn json_any(told: &Told, is_snake: bool) -> Value {
    let name = |camel: &'static str, snake: &'static str| if is_snake { snake } else { camel };
    match told {
        Told::Text(text) => json!({name("stringValue", "string_value"): text}),
        Told::Int(int) => json!({name("intValue", "int_value"): int.to_string()}),
        Told::List(list) => {
            let list: Vec<Value> = list.iter().map(|told| json_any(told, is_snake)).collect();
            json!({name("arrayValue", "array_value"): {"values": list}})
        }
        Told::Map(map) => {
            json!({name("kvlistValue", "kvlist_value"): {"values": json_pairs(map, is_snake)}})
        }
    }
}

fn json_pairs(told: &[(String, Told)], is_snake: bool) -> Vec<Value> {
    let pair =
        |(key, value): &(String, Told)| json!({"key": key, "value": json_any(value, is_snake)});
    told.iter().map(pair).collect()
}

const START_NS: u64 = 1_700_000_000_000_000_000;

fn protobuf(teller: &mut Teller, id: u64) -> Vec<u8> {
    let mut told = || pairs(&teller.attributes(None, 0));
    let (resource, scope, event, link, of_span) = (told(), told(), told(), told(), told());
    let span = Span {
        trace_id: vec![7; 16],
        span_id: id.to_be_bytes().to_vec(),
        name: "span".to_owned(),
        start_time_unix_nano: START_NS,
        end_time_unix_nano: START_NS + 1_000,
        trace_state: format!("vendor={}", teller.text(true)),
        attributes: of_span,
        events: vec![Event {
            time_unix_nano: START_NS + 1,
            name: "event".to_owned(),
            attributes: event,
            ..Event::default()
        }],
        links: vec![Link {
            trace_id: vec![8; 16],
            span_id: vec![8; 8],
            attributes: link,
            ..Link::default()
        }],
        status: Some(Status {
            message: teller.text(true),
            code: 2,
        }),
        ..Span::default()
    };
    let scope = InstrumentationScope {
        attributes: scope,
        ..InstrumentationScope::default()
    };
    let spans = ResourceSpans {
        resource: Some(Resource {
            attributes: resource,
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            scope: Some(scope),
            spans: vec![span],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![spans],
    };
    request.encode_to_vec()
}

fn json_request(teller: &mut Teller, id: u64, is_snake: bool) -> Vec<u8> {
    let mut told = || json_pairs(&teller.attributes(None, 0), is_snake);
    let (resource, scope, event, link, of_span) = (told(), told(), told(), told(), told());
    let name = |camel: &'static str, snake: &'static str| if is_snake { snake } else { camel };
    let span = json!({
        name("traceId", "trace_id"): "07".repeat(16), name("spanId", "span_id"): format!("{id:016x}"), "name": "span",
        name("startTimeUnixNano", "start_time_unix_nano"): START_NS.to_string(),
        name("endTimeUnixNano", "end_time_unix_nano"): (START_NS + 1_000).to_string(),
        name("traceState", "trace_state"): format!("vendor={}", teller.text(true)),
        "attributes": of_span,
        "events": [{name("timeUnixNano", "time_unix_nano"): (START_NS + 1).to_string(), "name": "event", "attributes": event}],
        "links": [{name("traceId", "trace_id"): "08".repeat(16), name("spanId", "span_id"): "08".repeat(8), "attributes": link}],
        "status": {"message": teller.text(true), "code": 2},
    });
    let spans = json!({
        "resource": {"attributes": resource},
        name("scopeSpans", "scope_spans"): [{"scope": {"attributes": scope}, "spans": [span]}],
    });
    json!({name("resourceSpans", "resource_spans"): [spans]})
        .to_string()
        .into_bytes()
}

/// Encodes a request of log records.
fn logs(teller: &mut Teller, id: u64) -> Vec<u8> {
    let mut told = || pairs(&teller.attributes(None, 0));
    let (resource, scope, of_record) = (told(), told(), told());
    let record = LogRecord {
        trace_id: vec![7; 16],
        span_id: id.to_be_bytes().to_vec(),
        time_unix_nano: START_NS + 2,
        severity_text: teller.text(true),
        body: Some(any(&teller.value(Some(true), 0))),
        attributes: of_record,
        ..LogRecord::default()
    };
    let scope = InstrumentationScope {
        attributes: scope,
        ..InstrumentationScope::default()
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: resource,
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope),
                log_records: vec![record],
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    request.encode_to_vec()
}

fn json_logs(teller: &mut Teller, id: u64, is_snake: bool) -> Vec<u8> {
    let mut told = || json_pairs(&teller.attributes(None, 0), is_snake);
    let (resource, scope, of_record) = (told(), told(), told());
    let name = |camel: &'static str, snake: &'static str| if is_snake { snake } else { camel };
    let record = json!({
        name("traceId", "trace_id"): "07".repeat(16), name("spanId", "span_id"): format!("{id:016x}"),
        name("timeUnixNano", "time_unix_nano"): (START_NS + 2).to_string(),
        name("severityText", "severity_text"): teller.text(true),
        "body": json_any(&teller.value(Some(true), 0), is_snake),
        "attributes": of_record,
    });
    let logs = json!({
        "resource": {"attributes": resource},
        name("scopeLogs", "scope_logs"): [{"scope": {"attributes": scope}, name("logRecords", "log_records"): [record]}],
    });
    json!({name("resourceLogs", "resource_logs"): [logs]})
        .to_string()
        .into_bytes()
}

/// Makes a batch with attributes of texts and ints on its first span and first event, and with
/// tracked items.
fn native(teller: &mut Teller, sequence: u64) -> stroboscope_proto::v1::Batch {
    let mut batch = batch(7, sequence, 3);
    let mut strings = std::mem::take(&mut batch.strings);
    let mut columns = |count: &mut Vec<u32>, records: usize| {
        let mut all = Attributes::default();
        let mut told = teller.attributes(None, 3);
        // Our protocol has no lists and maps.
        told.retain(|(_, told)| matches!(told, Told::Text(_) | Told::Int(_)));
        *count = vec![0; records];
        count[0] = u32::try_from(told.len()).expect("few");
        let mut intern = |text: &str| {
            strings.push(text.to_owned());
            u32::try_from(strings.len() - 1).expect("few")
        };
        for (key, told) in told {
            all.key_string.push(intern(&key));
            match told {
                Told::Int(int) => {
                    all.kind.push(AttributeKind::Int as i32);
                    all.int_values.push(int);
                }
                Told::Text(text) => {
                    all.kind.push(AttributeKind::String as i32);
                    all.string_values.push(intern(&text));
                }
                Told::List(_) | Told::Map(_) => {}
            }
        }
        Some(all)
    };
    let spans = batch.spans.as_mut().expect("spans");
    spans.attributes = columns(&mut spans.attribute_count, 3);
    let events = batch.events.as_mut().expect("events");
    events.attributes = columns(&mut events.attribute_count, 2);
    batch.strings = strings;
    let [dropped, kept, content] = [true, false, true].map(|is_secret| teller.text(is_secret));
    let items: [(&str, &[u8]); 2] = [
        (&format!("drop.{dropped}"), b""),
        (&kept, content.as_bytes()),
    ];
    batch.provenance[0].log = provenance_log(&items);
    batch
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns all bytes of a data directory, and the decompressed content of its tables.
pub(crate) fn everything(data: &Path) -> Vec<u8> {
    let mut paths = Vec::new();
    files(data, &mut paths);
    let mut all = Vec::new();
    for path in paths {
        all.extend(std::fs::read(&path).expect("a file"));
        if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            let reader = SerializedFileReader::new(std::fs::File::open(&path).expect("a file"));
            for row in reader.expect("Parquet").get_row_iter(None).expect("rows") {
                let row = row.expect("a row");
                all.extend(row.to_string().into_bytes());
                for (_, field) in row.get_column_iter() {
                    if let Field::Bytes(bytes) = field {
                        all.extend(bytes.data());
                    }
                }
            }
        }
    }
    all
}

/// Returns the values that occur in these bytes: texts, and integers as texts and as varints.
pub(crate) fn found<'a>(all: &[u8], values: &'a [String]) -> Vec<&'a String> {
    // Values are looked up by their first eight bytes.
    let mut places: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, window) in all.windows(8).enumerate() {
        places.entry(window).or_default().push(at);
    }
    let is_in = |bytes: &[u8]| {
        let at = bytes.get(..8).and_then(|first| places.get(first));
        at.is_some_and(|at| at.iter().any(|&at| all[at..].starts_with(bytes)))
    };
    let varint = |mut value: u64| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let is_there = |value: &&String| {
        let int = value.parse::<u64>().ok();
        // Plain, and as zigzag.
        let of_int = int.is_some_and(|int| is_in(&varint(int)) || is_in(&varint(int << 1)));
        of_int || is_in(value.as_bytes())
    };
    values.iter().filter(is_there).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_redacted_is_nowhere() {
    const ROUNDS: u64 = 40;
    let program = Program::new();
    let arguments: Vec<&str> = RULES
        .into_iter()
        .flat_map(|rule| ["--redact", rule])
        .collect();
    let collector = collect(&program, &arguments);
    let mut teller = Teller {
        random: Random::new(1),
        number: 0,
        secrets: Vec::new(),
        kept: Vec::new(),
    };
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", collector.grpc));
    let channel = channel.expect("an address").connect().await;
    let mut client = CollectorClient::new(channel.expect("it listens"));
    for round in 0..ROUNDS {
        let status = call(
            &collector.grpc,
            EXPORT,
            &[],
            &protobuf(&mut teller, 10 * round + 1),
        )
        .await;
        assert_eq!(status.code(), Code::Ok, "{status:?}");
        let kind = ["Content-Type: application/x-protobuf"];
        let request = protobuf(&mut teller, 10 * round + 2);
        let answer = ask(&collector.otlp, "POST /v1/traces", &kind, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        let request = logs(&mut teller, 10 * round + 1);
        let answer = ask(&collector.otlp, "POST /v1/logs", &kind, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        for (id, is_snake) in [(3, false), (4, true)] {
            let request = json_logs(&mut teller, 10 * round + id, is_snake);
            let kind = ["Content-Type: application/json"];
            let answer = ask(&collector.otlp, "POST /v1/logs", &kind, &request).await;
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{}"),
                "{answer}"
            );
        }
        for (id, is_snake) in [(3, false), (4, true)] {
            let request = json_request(&mut teller, 10 * round + id, is_snake);
            let kind = ["Content-Type: application/json"];
            let answer = ask(&collector.otlp, "POST /v1/traces", &kind, &request).await;
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{}"),
                "{answer}"
            );
        }
        let request = ShipRequest {
            batch: Some(native(&mut teller, round)),
        };
        let mut replies = client
            .ship(tokio_stream::iter([request]))
            .await
            .expect("a stream")
            .into_inner();
        let reply = replies.message().await.expect("an answer").expect("one");
        assert_eq!(reply.outcome(), ShipOutcome::Stored, "{}", reply.detail);
    }
    let counted = metrics(&collector.pages).await;
    for action in ["drop", "hash"] {
        let none = format!("redacted_values_total{{action=\"{action}\"}} 0\n");
        assert!(!counted.contains(&none), "{counted}");
    }
    // In the log.
    collector.server.kill();
    let check = |what: &str| {
        let all = everything(&program.data());
        let found_secrets = found(&all, &teller.secrets);
        assert!(found_secrets.is_empty(), "{what}: {found_secrets:?}");
        let kept: HashSet<&String> = found(&all, &teller.kept).into_iter().collect();
        let lost: Vec<&String> = teller
            .kept
            .iter()
            .filter(|value| !kept.contains(value))
            .collect();
        assert!(
            lost.is_empty(),
            "{what}, not redacted, and not there: {lost:?}"
        );
    };
    let (secrets, kept) = (teller.secrets.len(), teller.kept.len());
    eprintln!("{secrets} values to be redacted, and {kept} others");
    assert!(teller.secrets.len() > 1_000 && teller.kept.len() > 1_000);
    check("in the log");
    let key = std::fs::metadata(program.data().join("redact.key")).expect("a key");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777,
        0o600
    );
    // In the store. Needs no rules now, because the values in the log are redacted already.
    let mut again = collect(&program, &[]).server;
    assert!(again.stop(libc::SIGTERM).success(), "{}", again.said());
    check("in the store");
}

/// A value has the same hash in JSON and in protobuf, and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hashes_are_the_same_in_every_form() {
    let program = Program::new();
    let user = KeyValue {
        key: "user.id".to_owned(),
        value: Some(any(&Told::Text("alice".to_owned()))),
        ..KeyValue::default()
    };
    let span = Span {
        trace_id: vec![7; 16],
        span_id: vec![1; 8],
        attributes: vec![user],
        ..Span::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![span],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    let json = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{
        "traceId": "07".repeat(16), "spanId": "02".repeat(8),
        "attributes": [{"key": "user.id", "value": {"stringValue": "alice"}}],
    }]}]}]});
    for _ in 0..2 {
        let mut collector = collect(&program, &["--redact", "hash:user.*"]);
        let kind = ["Content-Type: application/json"];
        let answer = ask(
            &collector.otlp,
            "POST /v1/traces",
            &kind,
            json.to_string().as_bytes(),
        )
        .await;
        assert!(answer.ends_with("{}"), "{answer}");
        let status = call(&collector.grpc, EXPORT, &[], &request.encode_to_vec()).await;
        assert_eq!(status.code(), Code::Ok, "{status:?}");
        assert!(collector.server.stop(libc::SIGTERM).success());
    }
    let all = String::from_utf8_lossy(&everything(&program.data())).into_owned();
    let mut hashes: Vec<&str> = all
        .match_indices("hmac:")
        .map(|(at, _)| &all[at..at + 37])
        .collect();
    // In rows; the files have them, too, as minimum and maximum.
    assert!(hashes.len() >= 4, "{hashes:?}");
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 1, "{hashes:?}");
    assert!(!all.contains("alice"));
}

/// The answer to a malformed request quotes it. The log quotes it only without redaction rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_malformed_is_not_quoted_in_the_log() {
    let json = ["Content-Type: application/json"];
    let request = br#"{"resourceSpans":"alice@example.com"}"#;
    for is_redacted in [false, true] {
        let rules: &[&str] = match is_redacted {
            true => &["--redact", "drop:user.*"],
            false => &[],
        };
        let program = Program::new();
        let mut collector = collect(&program, rules);
        let answer = ask(&collector.otlp, "POST /v1/traces", &json, request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("alice@example.com"), "{answer}");
        assert!(collector.server.stop(libc::SIGTERM).success());
        let said = collector.server.said();
        assert!(said.contains("refused a request of OTLP: "), "{said}");
        let is_quoted = said.contains("alice@example.com");
        assert_eq!(is_quoted, !is_redacted, "{said}");
    }
}
