//! Files in common formats: the imported content, and the names of the content that is not
//! imported.

use std::path::{Path, PathBuf};

use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};
use stroboscope_import::{FieldMapping, ImportError, ImportOutcome, ImportSummary, Importer};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::limits::IMPORT_LINE_BYTES_MAX;
use stroboscope_store::tables::{Store, TraceReader};

mod kutrace;
mod otlp;

struct Fixture {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

/// Result of an import: the summary, bad lines, and the traces.
struct ImportResult {
    summary: ImportSummary,
    bad: Vec<(u64, String)>,
    traces: Vec<TraceRecords>,
}

impl ImportResult {
    /// Returns the names and counts of the parts that were not stored.
    fn not_taken(&self) -> Vec<(&str, u64)> {
        let mut names: Vec<_> = self
            .summary
            .not_taken
            .iter()
            .map(|entry| (entry.name.as_str(), entry.count))
            .collect();
        names.sort_unstable();
        names
    }
}

impl Fixture {
    fn new() -> Self {
        Self {
            runtime: tokio::runtime::Runtime::new().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn store(&self) -> Store {
        Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap()
    }

    fn importer(&self) -> Importer {
        Importer::new(
            DataDir::create(self.directory.path()).unwrap(),
            self.store(),
        )
    }

    fn import(&self, importer: &Importer, content: &[u8]) -> Result<ImportResult, ImportError> {
        let mut bad = Vec::new();
        let imported = importer.stream("file", content, &mut |line, reason| {
            bad.push((line, reason.to_string()));
        })?;
        let ImportOutcome::Now(summary) = imported else {
            panic!("{imported:?}")
        };
        assert_eq!(summary.bad_lines, bad.len() as u64);
        Ok(ImportResult {
            summary,
            bad,
            traces: TraceReader::open(&self.store()).unwrap().collect(),
        })
    }
}

fn made(content: &str) -> ImportResult {
    let fixture = Fixture::new();
    fixture
        .import(&fixture.importer(), content.as_bytes())
        .unwrap()
}

const SPAN: &str = r#"{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"pay","kind":2,
    "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000"}"#;

fn of_resource(scopes: &str) -> String {
    let service = r#"{"key":"service.name","value":{"stringValue":"shop"}}"#;
    format!(r#"{{"resource":{{"attributes":[{service}]}},"{scopes}":[{{"spans":[{SPAN}]}}]}}"#)
}

/// Asserts that the only span is the expected one.
#[track_caller]
fn check_span(made: &ImportResult) {
    assert_eq!((made.summary.spans, &made.bad[..]), (1, &[][..]));
    let span = &made.traces[0].spans[0];
    assert_eq!(
        (&*span.service, &*span.name, span.span_id),
        ("shop", "pay", 0xeee1_9b7e_c3c1_b174)
    );
    assert_eq!(
        (span.start_ns, span.end_ns),
        (1_544_712_660_000_000_000, 1_544_712_661_000_000_000)
    );
    assert_eq!(span.flags, SpanFlags::SERVER);
}

#[test]
fn documents_of_otlp_are_found_wherever_they_lie() {
    let spans = of_resource("scopeSpans");
    for document in [
        format!("{{\"resourceSpans\":[{spans}]}}"),
        format!("{{\"resource_spans\":[{}]}}", of_resource("scope_spans")),
        format!(
            "{{\"resourceSpans\":[{}]}}",
            of_resource("instrumentationLibrarySpans")
        ),
        format!(
            "{{\"batches\":[{}]}}",
            of_resource("instrumentation_library_spans")
        ),
        format!("{{\"batches\":[{spans}]}}"),
        format!("{{\"trace\":{{\"batches\":[{spans}]}}}}"),
        format!("{{\"trace\":{{\"resourceSpans\":[{spans}]}}}}"),
        format!("{{\"result\":{{\"resourceSpans\":[{spans}]}}}}"),
        format!("[{{\"resourceSpans\":[{spans}]}}]"),
    ] {
        // On one line, and on several.
        for document in [
            document.replace('\n', ""),
            document.replace("{\"r", "{\n\"r").replace("{\"b", "{\n\"b"),
        ] {
            let made = made(&document);
            check_span(&made);
            assert!(made.not_taken().is_empty(), "{document}");
        }
    }
}

#[test]
fn lines_of_a_file_are_judged_one_by_one() {
    let spans = format!("{{\"resourceSpans\":[{}]}}", of_resource("scopeSpans")).replace('\n', "");
    let logs = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{}},{"body":{}}]},{"logRecords":[{}]}]}]}"#;
    let metrics = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m"}]}]}]}"#;
    let event = r#"{"trace":"r1","host":"h","ts_ns":1767322800123000000,"event":"e","task":"t","level":"info"}"#;
    let zipkin =
        r#"[{"traceId":"a","id":"b","timestamp":1767322800123000,"duration":1,"debug":true}]"#;
    let jaeger =
        r#"{"traceID":"c","spanID":"d","operationName":"op","startTime":1,"duration":1,"flags":1}"#;
    let nothing = r#"{"level":"info","msg":"hello"}"#;
    let lines = [
        logs, &spans, metrics, event, zipkin, jaeger, nothing, "oh no", logs,
    ];
    let made = made(&lines.join("\n"));
    assert_eq!((made.summary.spans, made.summary.events), (3, 1));
    let expected = [
        ("OTLP log records", 6),
        ("OTLP metrics", 1),
        ("event.level", 1),
        ("span.debug", 1),
        ("span.flags", 1),
    ];
    assert_eq!(made.not_taken(), expected);
    assert_eq!(made.summary.not_taken[0].first, 1);
    let lines: Vec<u64> = made.bad.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [7, 8]);
    assert!(
        made.bad[0]
            .1
            .contains("the keys `level`, `msg`: unknown format"),
        "{:?}",
        made.bad
    );
}

#[test]
fn what_stands_beside_the_records_is_counted() {
    let spans = of_resource("scopeSpans");
    let made = made(&format!(
        "{{\"total\":0,\"errors\":null,\"limit\":5,\"warnings\":[1,2],\n\"resourceSpans\":[{spans}],\"x\":{{\"y\":1}}}}"
    ));
    check_span(&made);
    assert_eq!(made.not_taken(), [("limit", 1), ("warnings", 2), ("x", 1)]);
}

#[test]
fn answers_of_elasticsearch_hold_spans_of_jaeger() {
    let span = r#"{"traceID":"1f","spanID":"2a","operationName":"pay","startTime":10,"duration":5,
        "process":{"serviceName":"shop"}}"#;
    let hit = format!("{{\"_index\":\"jaeger-span\",\"_source\":{span}}}");
    let answer =
        format!("{{\"took\":3,\"hits\":{{\"total\":{{\"value\":2}},\n\"hits\":[{hit},{hit}]}}}}");
    let of_answer = made(&answer);
    assert_eq!(
        (of_answer.summary.spans, of_answer.summary.duplicates),
        (1, 1)
    );
    assert_eq!(
        of_answer.not_taken(),
        [("_index", 2), ("took", 1), ("total", 1)]
    );
    let of_dump = made(&hit.replace('\n', ""));
    assert_eq!(
        (of_dump.summary.spans, of_dump.not_taken()),
        (1, vec![("_index", 1)])
    );
}

/// A file of no known format causes one short message, whatever its content and length.
#[test]
fn unknown_files_get_one_sentence() {
    let json = "{\"level\":\"info\",\"msg\":\"hello\"}\n".repeat(500);
    let log = "Jan  2 03:00:00 web1 sshd[7]: hello\n".repeat(30);
    let capitals = "{\n \"TraceID\": \"AAA\",\n \"SpanID\": 7\n}\n";
    for (content, holds) in [
        (
            json.as_bytes(),
            "500 records, the first of them a JSON object with the keys `level`, `msg`:",
        ),
        (
            log.as_bytes(),
            "30 records, the first of them text that is not JSON:",
        ),
        (b"[02/Jan/2026] GET /cart\n", "the first of them"),
        (
            capitals.as_bytes(),
            "file holds a JSON object with the keys `TraceID`, `SpanID`:",
        ),
        (
            b"[[1,2],[3]]",
            "3 records, the first of them JSON without any key:",
        ),
        (
            b"\xff\x93\x80\n\xfe\xfe\n",
            "2 records, the first of them bytes that are neither text nor packed by gzip or zstd",
        ),
    ] {
        let fixture = Fixture::new();
        let path = fixture.directory.path().join("file");
        std::fs::write(&path, content).unwrap();
        let mut told = 0;
        let error = fixture
            .importer()
            .file(&path, &mut |_, _| told += 1)
            .unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, ImportError::UnknownForm { .. }) && text.contains(holds),
            "{text}"
        );
        assert!(
            text.contains("Known formats are event logs") && text.contains("with --map"),
            "{text}"
        );
        assert_eq!((told, text.lines().count()), (0, 1), "{text}");
    }
}

const CHROME: &str = r#"{"displayTimeUnit":"ms","traceEvents":[
{"ph":"X","name":"inner","cat":"c","pid":1,"tid":2,"ts":110.5,"dur":20,"args":{"k":"v"},"tts":7},
{"ph":"X","name":"outer","pid":1,"tid":2,"ts":100,"dur":"50.001"},
{"ph":"B","name":"begun","pid":1,"tid":3,"ts":100},{"ph":"B","name":"open","pid":1,"tid":3,"ts":120},
{"ph":"i","name":"mark","pid":1,"tid":3,"ts":121,"s":"t"},{"ph":"E","pid":1,"tid":3,"ts":130,"args":{"r":1}},
{"ph":"E","pid":1,"tid":9,"ts":130},{"ph":"C","name":"memory","pid":1,"ts":1,"args":{"v":1}},
{"ph":"b","cat":"net","id":"0x7","name":"load","pid":1,"tid":2,"ts":140},
{"ph":"e","cat":"net","id":"0x7","name":"load","pid":1,"tid":3,"ts":190},
{"ph":"s","id":5,"name":"post","cat":"flow","pid":1,"tid":2,"ts":111},
{"ph":"M","name":"process_name","pid":1,"args":{"name":"Renderer"}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"Main"}},
{"ph":"M","name":"process_labels","pid":1,"args":{"labels":"x"}},
{"ph":"X","name":"wrong","pid":1,"tid":2,"ts":-1,"dur":1}]}"#;

/// Returns name, service, parent's name, start and end of each span, sorted.
fn spans(trace: &TraceRecords) -> Vec<(String, String, String, i64, i64)> {
    let name_of = |id: u64| {
        trace
            .spans
            .iter()
            .find(|span| span.span_id == id)
            .map_or("", |span| &*span.name)
    };
    let told = |span: &SpanRecord| {
        let (name, service) = (span.name.to_string(), span.service.to_string());
        (
            name,
            service,
            name_of(span.parent_id).to_owned(),
            span.start_ns,
            span.end_ns,
        )
    };
    let mut spans: Vec<_> = trace.spans.iter().map(told).collect();
    spans.sort();
    spans
}

#[test]
fn events_of_chromes_tracing_become_spans_of_threads() {
    let made = made(CHROME);
    let [trace] = &made.traces[..] else { panic!() };
    let of = |name: &str, parent: &str, start: i64, end: i64| {
        (
            name.to_owned(),
            "Renderer".to_owned(),
            parent.to_owned(),
            start,
            end,
        )
    };
    let expected = [
        of("begun", "", 100_000, 130_000),
        of("inner", "outer", 110_500, 130_500),
        of("load", "", 140_000, 190_000),
        of("open", "begun", 120_000, 130_000),
        of("outer", "", 100_000, 150_001),
    ];
    assert_eq!(spans(trace), expected);
    let open = trace
        .spans
        .iter()
        .find(|span| &*span.name == "begun")
        .unwrap();
    assert_eq!(open.flags, SpanFlags::UNFINISHED);
    let mut events: Vec<_> = trace
        .events
        .iter()
        .map(|event| (event.event.to_string(), event.task.to_string()))
        .collect();
    events.sort();
    let event = |name: &str, task: &str| (name.to_owned(), task.to_owned());
    assert_eq!(
        events,
        [
            event("mark", "Renderer/3"),
            event("post", "Renderer/Main 2")
        ]
    );
    let expected = [
        ("counters (ph C)", 1),
        ("displayTimeUnit", 1),
        ("ends without their begins", 1),
        ("event.tts", 1),
        ("metadata process_labels (ph M)", 1),
    ];
    assert_eq!(made.not_taken(), expected);
    assert!(made.bad.len() == 1 && made.bad[0].0 == 13, "{:?}", made.bad);
    // The bare list without its end, as a killed program leaves it.
    let (_, list) = CHROME.split_once("\"traceEvents\":").unwrap();
    let list = list
        .replace("]}", "")
        .replace("},\n{\"ph\":\"X\",\"name\":\"wrong\"", "}]")
        .split("}]")
        .next()
        .unwrap()
        .to_owned()
        + "},\n";
    let bare = self::made(&list);
    assert_eq!(
        (bare.summary.spans, bare.summary.events, bare.bad.len()),
        (5, 2, 0),
        "{:?}",
        bare.bad
    );
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/import")
        .join(name)
}

#[test]
fn columns_have_any_names() {
    let text = |name: &str| {
        let text = std::fs::read_to_string(example(name)).unwrap();
        text.replace("took_ms", "$.took [ms]")
    };
    let fixture = Fixture::new();
    let map = fixture.directory.path().join("map.toml");
    std::fs::write(&map, text("spans-csv.toml")).unwrap();
    let importer = fixture
        .importer()
        .with_mapping(FieldMapping::read(&map).unwrap());
    let report = fixture
        .import(&importer, text("spans.csv").as_bytes())
        .unwrap();
    assert_eq!((report.summary.spans, &report.bad[..]), (3, &[][..]));
}

#[test]
fn without_the_names_of_columns_nothing_is_imported() {
    let rows = std::fs::read(example("spans.csv")).unwrap();
    let too_long = "x".repeat(IMPORT_LINE_BYTES_MAX + 1) + "\n";
    for (before, reason) in [
        (&b"caf\xe9;"[..], "invalid UTF-8 after 3 bytes"),
        (too_long.as_bytes(), "the line is longer than"),
    ] {
        let fixture = Fixture::new();
        let mapping = FieldMapping::read(&example("spans-csv.toml")).unwrap();
        let importer = fixture.importer().with_mapping(mapping);
        let made = fixture
            .import(&importer, &[before, &rows[..]].concat())
            .unwrap();
        let [(1, said)] = &made.bad[..] else {
            panic!("{:?}", made.bad)
        };
        assert!(said.starts_with("nothing is imported") && said.contains(reason));
        assert_eq!((made.summary.spans, made.summary.events), (0, 0));
    }
}

#[test]
fn examples_of_spans_are_imported_by_their_mappings() {
    let import = |mapping: &str, file: &str| {
        let fixture = Fixture::new();
        let importer = fixture
            .importer()
            .with_mapping(FieldMapping::read(&example(mapping)).unwrap());
        fixture
            .import(&importer, &std::fs::read(example(file)).unwrap())
            .unwrap()
    };
    let of_csv = import("spans-csv.toml", "spans.csv");
    assert_eq!(
        (of_csv.summary.spans, &of_csv.bad[..], of_csv.not_taken()),
        (3, &[][..], vec![])
    );
    let of_console = import("console.toml", "console.json");
    assert_eq!(
        (of_console.summary.spans, &of_console.bad[..]),
        (2, &[][..])
    );
    assert!(
        of_console.not_taken().is_empty(),
        "{:?}",
        of_console.not_taken()
    );
    // Both files contain the same call, so the bank's side is the same span.
    let charge = |made: &ImportResult| {
        let found = made.traces[0]
            .spans
            .iter()
            .find(|span| span.span_id == 0x00f0_67aa_0ba9_02b9);
        let span = found.unwrap().clone();
        (
            span.parent_id,
            span.service.to_string(),
            span.flags,
            span.start_ns,
            span.end_ns,
        )
    };
    assert_eq!(charge(&of_csv), charge(&of_console));
}

#[test]
fn lists_inside_of_documents_are_read_by_a_mapping() {
    let fixture = Fixture::new();
    let map = fixture.directory.path().join("map.toml");
    let mapping = "records = \"$.result.spans[*]\"\ntrace = \"{t}\"\n[span]\nid = \"{id}\"\nname = \"{ops[0]}\"\nstart = \"{s}\"\nend = \"{e}\"\n";
    std::fs::write(&map, mapping).unwrap();
    let importer = fixture
        .importer()
        .with_mapping(FieldMapping::read(&map).unwrap());
    let span =
        r#"{"t":"r1","id":"7","ops":["a","b"],"s":1767322800,"e":1767322801,"tags":{"k":1}}"#;
    let content = format!(
        "{{\"status\":\"ok\",\"result\":{{\"took\":1,\"spans\":[{span},\n{{\"t\":\"r1\"}},7]}}}}"
    );
    let made = fixture.import(&importer, content.as_bytes()).unwrap();
    assert_eq!(
        (made.summary.spans, &*made.traces[0].spans[0].name),
        (1, "a")
    );
    let expected = [
        ("field tags", 1),
        ("status beside the records", 1),
        ("took beside the records", 1),
    ];
    assert_eq!(made.not_taken(), expected);
    let reasons: Vec<_> = made
        .bad
        .iter()
        .map(|(line, reason)| format!("{line}: {reason}"))
        .collect();
    assert!(
        reasons.len() == 2
            && reasons[0].starts_with("2: no ")
            && reasons[1].contains("a JSON object"),
        "{reasons:?}"
    );
}
