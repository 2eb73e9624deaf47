//! Imports damaged files of every format except kernel events. No import panics or hangs. Each
//! import reports as many defects, and stores as many spans and events, as its summary counts.
//! `STROBOSCOPE_MUTATIONS=100000 cargo test --release -p stroboscope-import --test it -- mutated::`
//! tries more mutations.

use std::io::Write as _;
use std::path::Path;

use stroboscope_fixtures::mutation::mutate;
use stroboscope_fixtures::random::Random;
use stroboscope_import::{FieldMapping, Format, ImportError, ImportOutcome, Importer, TimeUnit};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::tables::{Store, TraceReader};

/// Pieces that readers look at closely.
const TOKENS: [&str; 46] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\n",
    "\r\n",
    "\0",
    "null",
    "true",
    "-1",
    "1e400",
    "0.1",
    "\u{feff}",
    "\"\\ud800\"",
    "18446744073709551616",
    "9223372036854775807",
    "\"data\":[",
    "\"spans\":[",
    "\"traceID\":\"0\"",
    "\"resourceSpans\":[",
    "\"ts\":",
    "\"ts_ns\":1",
    "\"attrs\":{\"k\":{}}",
    "[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "2026-01-02T03:04:05Z",
    "ü",
    "\u{1f}",
    "00-",
    "é\"",
    "\"annotations\":[{}]",
    "\"id\":\"\"",
    "\"batches\":[",
    "\"trace\":{",
    "\"traceEvents\":[",
    "\"ph\":\"B\"",
    "\"ph\":\"E\"",
    "\"ts\":1e9",
    "\"spans\":[{}]",
    "W47/95gDgQPSabYzgT/GDA==",
    "\"duration\":\"1m2.5s\"",
    ";\"",
];

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("samples are short");
    // Lengths of 128 and more take two bytes.
    let length = if length < 128 {
        vec![length]
    } else {
        vec![length & 0x7f | 0x80, length >> 7]
    };
    [&[number << 3 | 2], &length[..], bytes].concat()
}

/// One request of OTLP with one span, in protobuf.
fn protobuf() -> Vec<u8> {
    let text = |key: &str, value: &str| {
        [
            field(1, key.as_bytes()),
            field(2, &field(1, value.as_bytes())),
        ]
        .concat()
    };
    let resource = field(1, &text("service.name", "shop"));
    let times = [
        [7 << 3 | 1, 0, 0, 1, 2, 3, 4, 5, 21],
        [8 << 3 | 1, 9, 9, 1, 2, 3, 4, 5, 21],
    ]
    .concat();
    let span = [
        field(1, &[7; 16]),
        field(2, &[8; 8]),
        field(5, b"pay"),
        times,
        field(9, &text("k", "v")),
    ]
    .concat();
    field(
        1,
        &[field(1, &resource), field(2, &field(2, &span))].concat(),
    )
}

fn samples() -> Vec<Vec<u8>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/import");
    let mut samples: Vec<Vec<u8>> = ["app.log", "nginx.log", "spans.csv", "console.json"]
        .iter()
        .map(|name| std::fs::read(examples.join(name)).unwrap())
        .collect();
    let event = |ts: &str| {
        format!(
            r#"{{"trace":"r1","host":"h",{ts},"event":"e","task":"t","attrs":{{"user":7,"k":"v"}}}}"#
        )
    };
    let times = [
        "\"ts_ns\":1767322800000000000",
        "\"ts\":1767322800.5",
        "\"ts\":\"2026-01-02T03:00:00Z\"",
    ];
    samples.push(times.map(event).join("\n").into_bytes());
    for text in [
        r#"{"data":[{"traceID":"1f","spans":[{"traceID":"1f","spanID":"2a","operationName":"pay","startTime":10,"duration":5,
            "processID":"p1","references":[{"refType":"CHILD_OF","traceID":"1f","spanID":"7"}],"tags":[{"key":"n","type":"int64",
            "value":"12"}],"logs":[{"timestamp":12,"fields":[{"key":"event","type":"string","value":"sent"}]}]}],
            "processes":{"p1":{"serviceName":"shop","tags":[{"key":"hostname","type":"string","value":"web1"}]}}}]}"#,
        r#"[{"traceId":"a","id":"b","kind":"CLIENT","name":"get","timestamp":100,"duration":60,"localEndpoint":{"serviceName":"web"},
            "annotations":[{"timestamp":101,"value":"x"}],"tags":{"k":"v"}},{"traceId":"a","id":"b","kind":"SERVER","timestamp":110}]"#,
        r#"[{"traceId":"a","id":"b","annotations":[{"timestamp":100,"value":"cs","endpoint":{"serviceName":"web","ipv4":"10.0.0.1"}},
            {"timestamp":120,"value":"sr","endpoint":{"serviceName":"db"}},{"timestamp":140,"value":"ss"},{"timestamp":160,"value":"cr"}],
            "binaryAnnotations":[{"key":"sa","value":true,"endpoint":{"serviceName":"db","port":7}}]}]"#,
        r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeSpans":[{"scope":
            {"name":"lib"},"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","name":"pay","kind":2,
            "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,"attributes":[{"key":"n","value":
            {"arrayValue":{"values":[{"intValue":"-5"},{"kvlistValue":{"values":[]}}]}}}],"events":[{"timeUnixNano":"5"}]}]}]}]}"#,
        r#"{"trace":{"batches":[{"instrumentationLibrarySpans":[{"instrumentationLibrary":{"name":"l"},"spans":[{"traceId":
            "W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ=","name":"x","kind":"SPAN_KIND_CLIENT","startTimeUnixNano":7}]}]}]}}"#,
        r#"{"spans":[{"traceId":"AAAAAAAAAABSlpqJVVcaPw==","spanId":"AAAAAABkfZg=","operationName":"get","startTime":
            "2017-01-26T16:46:31.639875-05:00","duration":"229ns","tags":[{"key":"n","vType":"INT64","vInt64":"5"}]}]}"#,
        r#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":2,"ts":1.5,"dur":9,"args":{"k":1}},{"ph":"B","name":"b","pid":1,
            "tid":2,"ts":2},{"ph":"E","pid":1,"tid":2,"ts":3},{"ph":"i","name":"c","pid":1,"tid":2,"ts":4},{"ph":"b","id":"7",
            "name":"d","pid":1,"ts":5},{"ph":"e","id":"7","pid":1,"ts":6},{"ph":"C","pid":1,"ts":7}]}"#,
        r#"{"tracebase":"2026-01-02_03:00:00","events":[[1.0,0.1,0,7,0,65543,0,0,0,"s.7"],[1.1,0.2,0,7,5,2250,1,0,0,"futex"],
            [1.3,0.1,-1,7,0,770,0,0,0,"wait_cpu"],[1.4,0.1,0,7,0,2250,0,5,0,"futex"],[1.5,0.0,0,7,0,-3,1,8,0,"-wakeup-"]]}"#,
    ] {
        samples.push(text.as_bytes().to_vec());
        samples.push(text.replace("\n            ", "").into_bytes());
    }
    let message = protobuf();
    samples.push(
        [
            &[
                message.len() as u8 & 0x7f | 0x80,
                (message.len() >> 7) as u8,
            ],
            &message[..],
        ]
        .concat(),
    );
    samples.push(field(1, &message));
    samples.push([&message[..], &message[..]].concat());
    samples.push([&[0, 0, 0, message.len() as u8], &message[..]].concat());
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&samples[4]).unwrap();
    samples.push(packer.finish().unwrap());
    samples.push(zstd::encode_all(&samples[5][..], 1).unwrap());
    samples
}

fn mapping(name: &str) -> FieldMapping {
    FieldMapping::read(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples/import")
            .join(name),
    )
    .unwrap()
}

#[test]
fn damaged_files_cost_what_is_damaged() {
    let rounds: u64 =
        std::env::var("STROBOSCOPE_MUTATIONS").map_or(600, |count| count.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let samples = samples();
    let tokens = TOKENS.map(str::as_bytes);
    let mappings = ["app.toml", "nginx.toml", "spans-csv.toml", "console.toml"].map(mapping);
    let (mut kept, mut left_out) = (0, 0);
    for round in 0..rounds {
        let mut random = Random(round);
        let mut content = samples[random.below(samples.len())].clone();
        mutate(&mut random, &mut content, &tokens, &samples);
        let directory = tempfile::tempdir().unwrap();
        let store = || Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let importer = Importer::new(DataDir::create(directory.path()).unwrap(), store());
        let importer = match random.below(24) {
            0 => importer.with_format(Format::Events),
            1 => importer.with_format(Format::Jaeger),
            2 => importer.with_format(Format::Zipkin),
            3 => importer.with_format(Format::OtlpJson),
            4 => importer.with_format(Format::OtlpProtobuf),
            5 => importer.with_mapping(mappings[0].clone()),
            6 => importer
                .with_mapping(mappings[1].clone())
                .with_time_unit(TimeUnit::Us),
            7 => importer.with_mapping(mappings[2].clone()),
            8 => importer.with_mapping(mappings[3].clone()),
            9 => importer.with_format(Format::Chrome),
            10 => importer.with_format(Format::Kutrace),
            _ => importer,
        };
        let mut told = 0;
        // The name contains the seed, so that a panic may show it.
        let imported =
            importer.stream(&format!("round {round}"), &content[..], &mut |_, reason| {
                assert!(!reason.to_string().is_empty());
                told += 1;
            });
        match imported {
            Ok(ImportOutcome::Now(summary)) => {
                assert_eq!(summary.bad_lines, told, "round {round}");
                let mut reader = TraceReader::open(&store()).unwrap();
                let (mut spans, mut events) = (0, 0);
                for trace in reader.by_ref() {
                    spans += trace.spans.len() as u64;
                    events += (trace.events.len()
                        + trace
                            .spans
                            .iter()
                            .map(|span| span.events.len())
                            .sum::<usize>()) as u64;
                }
                let left = reader.left_out();
                assert_eq!(
                    spans + events + left.span_missing + left.no_span_no_task + left.copies,
                    summary.spans + summary.events,
                    "round {round}: {left:?}"
                );
                assert!(reader.damage().is_empty(), "round {round}");
                kept += summary.spans + summary.events;
                left_out += told;
            }
            Err(ImportError::UnknownForm { .. }) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
    // Some records were kept, and some were left out.
    assert!(
        kept > rounds / 10 && left_out > rounds / 10,
        "{kept} records kept, {left_out} left out"
    );
}
