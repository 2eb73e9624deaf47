//! Seeds of mutations: small correct inputs of every kind.

use std::path::Path;

use prost::Message as _;
use stroboscope_otlp::message::{
    AnyKind, AnyValue, ArrayValue, Event, KeyValue, KeyValueList, Link, Resource, ResourceSpans,
    Scope, ScopeSpans, Span, Status,
};
use stroboscope_otlp::{LogRecord, ResourceLogs, ScopeLogs};
use stroboscope_provenance::{Item, Label, Labels, Limits, LogWriter, MergeLog};

const SPANS_JSON: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},
{"key":"host.name","value":{"stringValue":"web1"}}],"droppedAttributesCount":1},"schemaUrl":"r","scopeSpans":[{"scope":{"name":"lib",
"version":"1","attributes":[{"key":"a","value":{"boolValue":true}}]},"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C",
"spanId":"EEE19B7EC3C1B174","parentSpanId":"","name":"pay","kind":2,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,
"attributes":[{"key":"n","value":{"arrayValue":{"values":[{"intValue":"-5"},{"doubleValue":"NaN"},{"bytesValue":"AAE="},
{"kvlistValue":{"values":[{"key":"x","value":{}}]}}]}}}],"events":[{"timeUnixNano":"5","name":"e","droppedAttributesCount":2}],
"links":[{"traceId":"W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ=","traceState":"k=v"}],"status":{"code":"STATUS_CODE_ERROR","message":"m"},
"traceState":"a=b","flags":257}]}]}]}"#;

const SECRETS_JSON: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"secret","value":{"stringValue":"7"}}]},
"scopeSpans":[{"scope":{"attributes":[{"key":"token","value":{"intValue":"7"}}]},"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C",
"spanId":"EEE19B7EC3C1B174","name":"pay","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[{"key":"a","value":{"kvlistValue":
{"values":[{"key":"secret","value":{"stringValue":"7"}},{"key":"Token","value":{"arrayValue":{"values":[{"intValue":7}]}}}]}}},
{"key":"b","value":{"arrayValue":{"values":[{"kvlistValue":{"values":[{"key":"my.secret","value":{}}]}}]}}}],
"events":[{"timeUnixNano":"1","name":"e","attributes":[{"key":"secret","value":{"boolValue":true}}]}],
"links":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","attributes":[{"key":"secret","value":{"intValue":1}}]}]
}]}]}]}"#;

const LOGS_JSON: &str = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeLogs":[{"scope":
{"name":"lib"},"logRecords":[{"timeUnixNano":"5","observedTimeUnixNano":7,"severityNumber":"SEVERITY_NUMBER_WARN2","severityText":"warn",
"body":{"stringValue":"paid 17 of user=3"},"attributes":[{"key":"thread.id","value":{"intValue":3}}],"flags":1,
"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174"},{"eventName":"sent","observedTimeUnixNano":1,
"traceId":"5b8efff798038103d269b633813fc60c"},{"body":{"kvlistValue":{"values":[]}}}]}]}]}"#;

const IMPORTS: [(u8, &str); 12] = [
    (
        0,
        r#"{"trace":"r1","host":"h","ts_ns":1767322800000000000,"event":"e","task":"t","attrs":{"user":7,"k":"v"}}
{"trace":"r1","host":"h","ts":"2026-01-02T03:00:00Z","event":"f","task":"t"}"#,
    ),
    (
        1,
        r#"{"data":[{"traceID":"1f","spans":[{"traceID":"1f","spanID":"2a","operationName":"pay","startTime":10,"duration":5,"processID":"p1",
"references":[{"refType":"CHILD_OF","traceID":"1f","spanID":"7"}],"tags":[{"key":"n","type":"int64","value":"12"}],
"logs":[{"timestamp":12,"fields":[{"key":"event","type":"string","value":"sent"}]}]}],"processes":{"p1":{"serviceName":"shop","tags":[]}}}]}"#,
    ),
    (
        1,
        r#"{"spans":[{"traceId":"AAAAAAAAAABSlpqJVVcaPw==","spanId":"AAAAAABkfZg=","operationName":"get","startTime":
"2017-01-26T16:46:31.639875-05:00","duration":"229ns","tags":[{"key":"n","vType":"INT64","vInt64":"5"}]}]}"#,
    ),
    (
        2,
        r#"[{"traceId":"a","id":"b","kind":"CLIENT","name":"get","timestamp":100,"duration":60,"localEndpoint":{"serviceName":"web"},
"annotations":[{"timestamp":101,"value":"x"}],"tags":{"k":"v"}},{"traceId":"a","id":"b","kind":"SERVER","timestamp":110}]"#,
    ),
    (
        2,
        r#"[{"traceId":"a","id":"b","annotations":[{"timestamp":100,"value":"cs","endpoint":{"serviceName":"web","ipv4":"10.0.0.1"}},
{"timestamp":120,"value":"sr","endpoint":{"serviceName":"db"}},{"timestamp":140,"value":"ss"},{"timestamp":160,"value":"cr"}]}]"#,
    ),
    (3, SPANS_JSON),
    (
        5,
        r#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":2,"ts":1.5,"dur":9,"args":{"k":1}},{"ph":"B","name":"b","pid":1,"tid":2,"ts":2},
{"ph":"E","pid":1,"tid":2,"ts":3},{"ph":"i","name":"c","pid":1,"tid":2,"ts":4},{"ph":"b","id":"7","name":"d","pid":1,"ts":5},
{"ph":"e","id":"7","pid":1,"ts":6},{"ph":"C","pid":1,"ts":7}]}"#,
    ),
    (
        6,
        r#"{"tracebase":"2026-01-02_03:00:00","events":[[1.0,0.1,0,7,0,65543,0,0,0,"s.7"],[1.1,0.2,0,7,5,2250,1,0,0,"futex"],
[1.3,0.1,-1,7,0,770,0,0,0,"wait_cpu"],[1.4,0.1,0,7,0,2250,0,5,0,"futex"],[1.5,0.0,0,7,0,-3,1,8,0,"-wakeup-"]]}"#,
    ),
    (
        7,
        "svc 7/8 [001] 1767322800.000001000: raw_syscalls:sys_enter: NR 0 (3, 7f, 10, 0, 0, 0)\n\
         svc 7/8 [001] 1767322800.000002000: raw_syscalls:sys_exit: NR 0 = 16\n\
         svc 7/8 [001] 1767322800.000003000: sched:sched_switch: prev_comm=svc prev_pid=8 prev_prio=120 prev_state=S ==> next_comm=x next_pid=9 next_prio=120\n",
    ),
    (
        8,
        "7 1767322800.000001 read(3, \"a\", 16) = 16 <0.000010>\n7 1767322800.000020 futex(0x7f, FUTEX_WAIT <unfinished ...>\n\
         7 1767322800.000030 <... futex resumed>) = 0 <0.000010>\n",
    ),
    (
        9,
        r#"{"trace":{"batches":[{"instrumentationLibrarySpans":[{"instrumentationLibrary":{"name":"l"},"spans":[{"traceId":
"W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ=","name":"x","kind":"SPAN_KIND_CLIENT","startTimeUnixNano":7}]}]}]}}"#,
    ),
    (9, SPANS_JSON),
];

/// Returns the inputs with which a target's mutations begin; each is also a case by itself.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "batch" => [0, 1, 3]
            .map(|spans| stroboscope_fixtures::batches::batch(7, 1, spans).encode_to_vec())
            .into(),
        "otlp_protobuf" => vec![request(&spans().encode_to_vec())],
        "otlp_json" => vec![SPANS_JSON.into()],
        "otlp_logs_protobuf" => vec![request(&logs().encode_to_vec())],
        "otlp_logs_json" => vec![LOGS_JSON.into()],
        "redaction" => vec![
            [&[0], &request(&with_secrets().encode_to_vec())[..]].concat(),
            [&[1], &request(&logs().encode_to_vec())[..]].concat(),
            [b"\x02", SECRETS_JSON.as_bytes()].concat(),
            [b"\x02", SPANS_JSON.as_bytes()].concat(),
            [b"\x03", LOGS_JSON.as_bytes()].concat(),
        ],
        "redaction_batch" => [0, 1, 2, 3]
            .map(|spans| {
                let mut batch = stroboscope_fixtures::batches::batch(7, 1, spans);
                // The key of its attributes, two of their values, and the name of an item.
                let key = ["secret", "my.Token", "k"][spans % 3];
                batch.strings[3] = key.into();
                batch.strings[5] = "maskme".into();
                let items: [(&str, &[u8]); 2] = [(key, b"content"), ("", b"")];
                batch.provenance[0].log = stroboscope_fixtures::batches::provenance_log(&items);
                batch.encode_to_vec()
            })
            .into(),
        "import" => {
            let protobuf = (4, request(&spans().encode_to_vec()));
            let texts = IMPORTS.map(|(format, text)| (format, text.as_bytes().to_vec()));
            let all = texts.into_iter().chain([protobuf]);
            all.map(|(format, content)| [&[format], &content[..]].concat())
                .collect()
        }
        "mapping" => [
            ("app.toml", "app.log"),
            ("nginx.toml", "nginx.log"),
            ("spans-csv.toml", "spans.csv"),
            ("console.toml", "console.json"),
        ]
        .map(|(mapping, log)| [example(mapping), vec![0], example(log)].concat())
        .into(),
        "wal" => [0, 1]
            .map(|mended| [vec![mended], segment()].concat())
            .into(),
        "burst_config" => ["4ms/32ms", "0b11100", "0x1c", "28", "always", "1.5s/3s"]
            .map(|text| text.as_bytes().to_vec())
            .into(),
        "provenance" => [0, 1]
            .map(|mended| [vec![mended], provenance_log()].concat())
            .into(),
        _ => Vec::new(),
    }
}

fn example(name: &str) -> Vec<u8> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/import");
    std::fs::read(examples.join(name)).expect("an example")
}

/// Returns a list of one message.
fn request(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x0a];
    prost::encoding::encode_varint(message.len() as u64, &mut bytes);
    bytes.extend_from_slice(message);
    bytes
}

fn pair(key: &str, kind: AnyKind) -> KeyValue {
    let value = Some(AnyValue { kind: Some(kind) });
    KeyValue {
        key: key.to_owned(),
        value,
    }
}

fn resource() -> Option<Resource> {
    Some(Resource {
        attributes: vec![
            pair("service.name", AnyKind::Text("shop".to_owned())),
            pair("host.name", AnyKind::Text("web1".to_owned())),
        ],
        dropped_attributes_count: 0,
    })
}

fn scope() -> Option<Scope> {
    Some(Scope {
        name: "lib".to_owned(),
        version: "1".to_owned(),
        attributes: vec![pair("k", AnyKind::Int(-1))],
        dropped_attributes_count: 1,
    })
}

fn spans() -> ResourceSpans {
    let plain = Span {
        trace_id: vec![7; 16],
        span_id: vec![8; 8],
        parent_span_id: vec![9; 8],
        name: "pay".to_owned(),
        kind: 3,
        start_time_unix_nano: 5,
        end_time_unix_nano: 9,
        attributes: vec![
            pair("text", AnyKind::Text("t\"\n".to_owned())),
            pair("double", AnyKind::Double(0.1)),
            pair("bool", AnyKind::Bool(true)),
            pair("bytes", AnyKind::Bytes(vec![0, 255])),
            pair(
                "list",
                AnyKind::Array(ArrayValue {
                    values: vec![AnyValue::default()],
                }),
            ),
        ],
        events: vec![Event {
            time_unix_nano: 6,
            name: "e".to_owned(),
            attributes: vec![pair("n", AnyKind::Int(1))],
            dropped_attributes_count: 3,
        }],
        status: Some(Status {
            code: 2,
            message: "no".to_owned(),
            ..Status::default()
        }),
        trace_state: "a=b".to_owned(),
        flags: 257,
        ..Span::default()
    };
    let map = AnyKind::Map(KeyValueList {
        values: vec![pair("x", AnyKind::Double(f64::NAN))],
    });
    let odd = Span {
        attributes: vec![pair("map", map)],
        links: vec![Link {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            ..Link::default()
        }],
        parent_span_id: Vec::new(),
        end_time_unix_nano: 0,
        ..plain.clone()
    };
    let scope_spans = vec![ScopeSpans {
        scope: scope(),
        spans: vec![plain, odd],
        schema_url: "s".to_owned(),
    }];
    ResourceSpans {
        resource: resource(),
        scope_spans,
        schema_url: "r".to_owned(),
        ..ResourceSpans::default()
    }
}

/// Returns spans like those of `spans`, with keys to redact on everything that has attributes.
fn with_secrets() -> ResourceSpans {
    let mut all = spans();
    let list = || {
        vec![
            pair("secret", AnyKind::Int(7)),
            pair("a.token", AnyKind::Bytes(vec![7])),
            pair("maskme", AnyKind::Text("not maskme".to_owned())),
            pair("bytes", AnyKind::Bytes(b"maskme".to_vec())),
        ]
    };
    for span in all
        .scope_spans
        .iter_mut()
        .flat_map(|scope| &mut scope.spans)
    {
        let inside = AnyKind::Map(KeyValueList { values: list() });
        span.attributes.push(pair("map", inside));
        span.attributes.extend(list());
        span.events
            .iter_mut()
            .for_each(|event| event.attributes.extend(list()));
        span.links
            .iter_mut()
            .for_each(|link| link.attributes.extend(list()));
    }
    if let Some(resource) = &mut all.resource {
        resource.attributes.extend(list());
    }
    all
}

fn logs() -> ResourceLogs {
    let line = LogRecord {
        time_unix_nano: 5,
        observed_time_unix_nano: 6,
        severity_number: 9,
        severity_text: "INFO".to_owned(),
        body: Some(AnyValue {
            kind: Some(AnyKind::Text("user 17 paid".to_owned())),
        }),
        attributes: vec![pair("thread.name", AnyKind::Text("w1".to_owned()))],
        flags: 1,
        trace_id: vec![7; 16],
        span_id: vec![8; 8],
        ..LogRecord::default()
    };
    let event = LogRecord {
        event_name: "paid".to_owned(),
        span_id: Vec::new(),
        time_unix_nano: 0,
        ..line.clone()
    };
    let nobodys = LogRecord {
        trace_id: Vec::new(),
        ..event.clone()
    };
    ResourceLogs {
        resource: resource(),
        scope_logs: vec![ScopeLogs {
            scope: scope(),
            log_records: vec![line, event, nobodys],
            schema_url: String::new(),
        }],
        schema_url: String::new(),
    }
}

/// Returns a segment with a record of every kind, in the format of
/// `collector/store/src/wal/format.rs`.
fn segment() -> Vec<u8> {
    let marker = 0x1234_5678_u32.to_le_bytes();
    let mut bytes = b"STRBWAL\0".to_vec();
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend(marker);
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let kinds = [
        "batch",
        "otlp_protobuf",
        "otlp_json",
        "otlp_logs_protobuf",
        "otlp_logs_json",
    ];
    for (kind, target) in (0_u8..).zip(kinds).chain([(9, "otlp_json")]) {
        let content = seeds(target).pop().unwrap_or_default();
        let payload = [&7_u64.to_le_bytes()[..], &[kind], &content].concat();
        bytes.extend(marker);
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&payload).to_le_bytes());
        bytes.extend(payload);
    }
    bytes
}

/// Returns the file of a full log with sources, nodes, and outputs of every form, in two parts.
fn provenance_log() -> Vec<u8> {
    let mut log = MergeLog::new(Limits::with_nodes(4));
    let mut writer = LogWriter::new(Vec::new()).expect("written");
    let Labels::Inputs(first) = log.source(1, 0, 40) else {
        unreachable!("the log has room");
    };
    let at = |input: usize| Labels::Inputs(first).at(input);
    let sum = log.merge(at(0), at(5));
    log.output(1, 0, 4, Labels::Shared(sum));
    writer.append(&log).expect("written");
    log.source(1, 40, 3);
    log.source(2, 7, 60);
    let range = log.range(12, 70);
    let both = log.merge(sum, range);
    let chain = log.merge(both, at(9));
    log.output(2, 4, 1, Labels::Shared(chain));
    log.output(2, 5, 9, Labels::Inputs(at(20)));
    let coarse = log.merge(at(1), at(30));
    for label in [coarse, Label::ALL, at(3)] {
        log.output(3, 0, 1, Labels::Shared(label));
    }
    for (name, content) in [("first", &b""[..]), ("", b"\0\xff"), ("ключ", b"text of 9")] {
        log.describe(Item {
            id: 1,
            span: 7,
            name: name.into(),
            content: content.into(),
        });
    }
    writer.finish(&log).expect("written")
}
