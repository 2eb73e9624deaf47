//! Event logs from files: bad lines are reported by number, the others are stored, and nothing is
//! stored twice.

use std::io::Write as _;
use std::path::Path;

use stroboscope_analysis::record::TraceRecords;
use stroboscope_import::{
    Format, ImportOutcome, Importer, parse, parse_plain, trace_id, trace_label,
};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::limits::{IMPORT_LINE_BYTES_MAX, Limits};
use stroboscope_store::tables::{Hour, Store, StoreTable, TraceReader};

struct Fixture {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
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

    fn traces(&self) -> Vec<TraceRecords> {
        TraceReader::open(&self.store()).unwrap().collect()
    }

    fn file(&self, name: &str, content: &[u8]) -> std::path::PathBuf {
        let path = self.directory.path().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(content)
            .unwrap();
        path
    }
}

type Bad = Vec<(u64, String)>;

fn import(importer: &Importer, path: &Path) -> (ImportOutcome, Bad) {
    let mut bad = Vec::new();
    let imported = importer
        .file(path, &mut |line, reason| {
            bad.push((line, reason.to_string()));
        })
        .unwrap();
    (imported, bad)
}

fn line(trace: &str, ts_ns: u64, event: &str) -> String {
    format!(
        r#"{{"trace":"{trace}","host":"h","ts_ns":{ts_ns},"event":"{event}","task":"t","attrs":{{"k":[1]}}}}"#
    )
}

#[test]
fn events_become_traces_whatever_the_size_of_a_run() {
    let mut expected: Option<Vec<TraceRecords>> = None;
    for run_rows in [1, 7, 1_000] {
        let fixture = Fixture::new();
        let content: Vec<_> = (0..50u64)
            .map(|i| {
                line(
                    &format!("req-{}", i % 5),
                    1_000 + i * 13 % 17,
                    &format!("e{i}"),
                )
            })
            .collect();
        let path = fixture.file("log.jsonl", content.join("\n").as_bytes());
        let (imported, bad) = import(&fixture.importer().with_run_rows(run_rows), &path);
        let ImportOutcome::Now(summary) = imported else {
            panic!("{imported:?}")
        };
        assert_eq!((summary.events, summary.bad_lines, bad.len()), (50, 0, 0));
        let traces = fixture.traces();
        assert_eq!(traces.len(), 5);
        assert!(
            traces
                .iter()
                .all(|trace| trace.events.len() == 10 && trace.spans.is_empty())
        );
        let mut names: Vec<_> = traces
            .iter()
            .map(|trace| trace.name.clone().unwrap().to_string())
            .collect();
        names.sort();
        assert_eq!(names, ["req-0", "req-1", "req-2", "req-3", "req-4"]);
        assert_eq!(
            expected.get_or_insert_with(|| traces.clone()),
            &traces,
            "runs of {run_rows} rows"
        );
    }
}

#[test]
fn the_same_content_is_imported_once() {
    let fixture = Fixture::new();
    let content = line("a", 1, "x") + "\n" + &line("a", 2, "y") + "\n";
    let path = fixture.file("one.jsonl", content.as_bytes());
    let copy = fixture.file("copy.jsonl", content.as_bytes());
    let importer = fixture.importer();
    assert!(matches!(import(&importer, &path).0, ImportOutcome::Now(_)));
    let (again, _) = import(&importer, &copy);
    let ImportOutcome::Before(receipt) = again else {
        panic!("{again:?}")
    };
    assert_eq!(
        (receipt.events, receipt.source.ends_with("one.jsonl")),
        (2, true)
    );
    let streamed = importer
        .stream("standard input", content.as_bytes(), &mut |_, _| {})
        .unwrap();
    assert!(matches!(streamed, ImportOutcome::Before(_)));
    assert_eq!(fixture.traces()[0].events.len(), 2);
    // An import that died before its receipt is done again, over the same objects.
    std::fs::remove_dir_all(fixture.directory.path().join("imports")).unwrap();
    assert!(matches!(import(&importer, &path).0, ImportOutcome::Now(_)));
    assert_eq!(fixture.traces()[0].events.len(), 2);
    assert!(
        std::fs::read_dir(fixture.directory.path())
            .unwrap()
            .all(|f| !f.unwrap().file_name().to_string_lossy().contains("spool"))
    );
}

#[test]
fn a_content_is_the_same_compressed_or_not() {
    let content = line("a", 1, "x") + "\n" + &line("a", 2, "y") + "\n";
    let forms = [
        content.clone().into_bytes(),
        gzip(content.as_bytes()),
        zstd::encode_all(content.as_bytes(), 1).unwrap(),
    ];
    for first in &forms {
        let fixture = Fixture::new();
        let importer = fixture.importer();
        let path = fixture.file("first", first);
        assert!(matches!(import(&importer, &path).0, ImportOutcome::Now(_)));
        for again in &forms {
            let path = fixture.file("again", again);
            let (again, _) = import(&importer, &path);
            assert!(matches!(again, ImportOutcome::Before(_)), "{again:?}");
        }
        assert_eq!(fixture.traces()[0].events.len(), 2);
    }
}

/// Files expire by their hour. Only the last 168 hours with rows have files of their own.
#[test]
fn rows_of_a_long_source_are_in_their_hours() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    for (hours, own) in [(48, 48), (200, 168)] {
        let fixture = Fixture::new();
        let lines = (0..hours).map(|hour| line("a", (hour * HOUR_NS + 5) as u64, "x"));
        let content = lines.collect::<Vec<_>>().join("\n");
        let path = fixture.file("long.jsonl", content.as_bytes());
        import(&fixture.importer(), &path);
        let files = fixture.store().list(StoreTable::Events).unwrap();
        let found: Vec<_> = files
            .iter()
            .map(|(path, _)| Hour::of_object(path.as_ref()).unwrap())
            .collect();
        let expected: Vec<_> = (hours - own..hours)
            .map(|hour| Hour::of(hour * HOUR_NS))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(fixture.traces()[0].events.len(), hours as usize);
    }
}

#[test]
fn bad_lines_are_told_by_number_and_the_rest_is_kept() {
    let fixture = Fixture::new();
    let mut content = Vec::new();
    content.extend_from_slice(b"\xef\xbb\xbf");
    content.extend_from_slice(line("good", 1, "first").as_bytes());
    content.extend_from_slice(b"\r\n\n   \nnot json\n");
    content.extend_from_slice(&vec![b'x'; IMPORT_LINE_BYTES_MAX + 1]);
    content.extend_from_slice(b"\n\xff\xfe\n{\"trace\":\"a\"");
    content.extend_from_slice(b"\n");
    content.extend_from_slice(line("good", 2, "last").as_bytes());
    let path = fixture.file("bad.jsonl", &content);
    let (imported, bad) = import(&fixture.importer(), &path);
    let ImportOutcome::Now(summary) = imported else {
        panic!("{imported:?}")
    };
    assert_eq!((summary.events, summary.bad_lines), (2, 4));
    assert_eq!(
        bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
        [4, 5, 6, 7]
    );
    for ((_, reason), part) in bad.iter().zip([
        "expected ident (column 2)",
        "longer than 1048576 bytes",
        "invalid UTF-8 after 0",
        "EOF while parsing",
    ]) {
        assert!(reason.contains(part), "{reason}: {part}");
    }
    assert_eq!(fixture.traces()[0].events.len(), 2);
}

/// Expects a line to be refused for a reason.
fn check(line: &str, reason: &str) {
    let error = parse(line.as_bytes(), &Limits::default())
        .expect_err(line)
        .to_string();
    assert!(error.contains(reason), "{line}: {error}");
}

#[test]
fn hostile_lines_are_named() {
    let with = |field: &str, value: &str| {
        let fields = [
            ("trace", "\"a\""),
            ("host", "\"h\""),
            ("ts_ns", "1"),
            ("event", "\"e\""),
            ("task", "\"t\""),
        ];
        let fields = fields
            .map(|(name, good)| format!("\"{name}\":{}", if name == field { value } else { good }));
        let extra = if field == "attrs" {
            format!(",\"attrs\":{value}")
        } else {
            String::new()
        };
        format!("{{{}{extra}}}", fields.join(","))
    };
    assert!(parse(with("none", "").as_bytes(), &Limits::default()).is_ok());
    assert!(parse(with("attrs", "null").as_bytes(), &Limits::default()).is_ok());
    check("", "EOF");
    check("[]", "invalid");
    check("null", "invalid type: null");
    check("{}", "missing field `trace`");
    check(
        r#"{"trace":"a","host":"h","ts_ns":1,"event":"e"}"#,
        "missing field `task`",
    );
    check(
        r#"{"trace":"a","trace":"b","host":"h","ts_ns":1,"event":"e","task":"t"}"#,
        "duplicate field `trace`",
    );
    check(
        &with("trace", "17"),
        "invalid type: integer `17`, expected a string",
    );
    check(&with("trace", "\"\""), "trace is empty");
    check(&with("event", "\"\""), "event is empty");
    check(&with("task", "null"), "invalid type: null");
    check(&with("task", "\"a\\u0000b\""), "task contains a NUL");
    check(
        &with("host", &format!("\"{}\"", "x".repeat(70_000))),
        "host is 70000 bytes long",
    );
    check(&with("ts_ns", "-5"), "invalid value: integer `-5`");
    check(&with("ts_ns", "1.5"), "floating point `1.5`");
    check(&with("ts_ns", "1e300"), "floating point");
    check(&with("ts_ns", "1e999"), "number out of range");
    check(&with("ts_ns", "18446744073709551615"), "must be below 2^63");
    check(&with("ts_ns", "99999999999999999999999"), "floating point");
    check(&with("ts_ns", "\"1\""), "invalid type: string");
    check(&with("attrs", "[1]"), "invalid type: sequence");
    check(
        &with("attrs", &("{\"a\":".repeat(500) + "1" + &"}".repeat(500))),
        "recursion limit",
    );
    let many: Vec<_> = (0..300).map(|i| format!("\"k{i}\":1")).collect();
    check(
        &with("attrs", &format!("{{{}}}", many.join(","))),
        "attrs has 300 members",
    );
    check(&"[".repeat(100_000), "invalid type: sequence");
    check(
        &with("trace", "\"\\ud800\""),
        "unexpected end of hex escape",
    );
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

#[test]
fn packed_sources_are_read_as_they_are() {
    let lines: Vec<String> = (0..20_000u64)
        .map(|i| line(&format!("r{}", i % 9), i, "e") + "\n")
        .collect();
    let content = lines.concat().into_bytes();
    let two_members = [gzip(&content[..1_000]), gzip(&content[1_000..])].concat();
    let zstd = zstd::encode_all(&content[..], 1).unwrap();
    let two_frames = [zstd.clone(), zstd::encode_all(&b"\n"[..], 1).unwrap()].concat();
    for packed in [
        content.clone(),
        gzip(&content),
        two_members,
        zstd.clone(),
        two_frames,
    ] {
        let fixture = Fixture::new();
        let imported = fixture
            .importer()
            .stream("-", &packed[..], &mut |_, _| {})
            .unwrap();
        let ImportOutcome::Now(summary) = imported else {
            panic!("{imported:?}")
        };
        assert_eq!((summary.events, summary.bad_lines), (20_000, 0));
        assert_eq!(fixture.traces().len(), 9);
    }
    // The events before a cut or damage are kept, and the damage is reported.
    for packed in [gzip(&content), zstd] {
        let fixture = Fixture::new();
        let path = fixture.file("cut.packed", &packed[..packed.len() / 2]);
        let (imported, bad) = import(&fixture.importer(), &path);
        let ImportOutcome::Now(summary) = imported else {
            panic!("{imported:?}")
        };
        assert!(
            summary.events > 1_000 && summary.events < 20_000,
            "{summary:?}"
        );
        assert!(
            bad.last().unwrap().1.contains("the packed data is damaged"),
            "{bad:?}"
        );
        let mut damaged = packed.clone();
        damaged[10..40].fill(0xa5);
        let path = fixture.file("damaged.packed", &damaged);
        let (_, bad) = import(&fixture.importer(), &path);
        assert!(
            bad.last().unwrap().1.contains("the packed data is damaged"),
            "{bad:?}"
        );
    }
}

#[test]
fn events_of_the_kernel_before_a_cut_are_kept() {
    let lines: Vec<String> = (0..20_000)
        .map(|i| format!("12 1767322800.{i:06} getppid() = 1 <0.000001>\n"))
        .collect();
    let content = lines.concat().into_bytes();
    for packed in [gzip(&content), zstd::encode_all(&content[..], 1).unwrap()] {
        let fixture = Fixture::new();
        let path = fixture.file("cut.packed", &packed[..packed.len() / 2]);
        let (imported, bad) = import(&fixture.importer(), &path);
        let ImportOutcome::Now(summary) = imported else {
            panic!("{imported:?}")
        };
        let [(line, reason)] = &bad[..] else {
            panic!("{bad:?}")
        };
        assert!((1_000..20_000).contains(line), "{line}");
        // A call begins and ends.
        assert_eq!(summary.events, 2 * line);
        assert!(reason.ends_with("; the records before it are kept"));
    }
}

fn jaeger_trace(id: u64) -> String {
    let spans: Vec<_> = (1..=3)
        .map(|span| {
            let parent = format!(r#"{{"refType":"CHILD_OF","spanID":"{}"}}"#, span - 1);
            let parent = if span == 1 { String::new() } else { parent };
            format!(
                r#"{{"spanID":"{span}","operationName":"op{span}","references":[{parent}],"startTime":{},
                "duration":{},"processID":"p1"}}"#,
                id * 100 + span,
                20 - span
            )
        })
        .collect();
    format!(
        r#"{{"traceID":"{id:x}","spans":[{}],"processes":{{"p1":{{"serviceName":"s"}}}}}}"#,
        spans.join(",")
    )
}

#[test]
fn spans_of_many_traces_are_kept_whatever_the_size_of_a_run() {
    let traces: Vec<_> = (1..=40).map(jaeger_trace).collect();
    let answer = format!(
        "{{\"total\":0,\"data\":[{}],\"errors\":null}}",
        traces.join(",\n")
    );
    let bare = traces
        .iter()
        .map(|trace| trace.replace('\n', " ") + "\n")
        .collect::<String>();
    let cut = answer[..answer.len() / 2].to_owned();
    for (content, complete, bad_count) in [(&answer, 40, 0), (&bare, 40, 0), (&cut, 20, 1)] {
        for run_rows in [1, 7, 1_000] {
            let fixture = Fixture::new();
            let path = fixture.file("jaeger.json", content.as_bytes());
            let (imported, bad) = import(&fixture.importer().with_run_rows(run_rows), &path);
            let ImportOutcome::Now(summary) = imported else {
                panic!("{imported:?}")
            };
            assert_eq!(
                (summary.spans, bad.len()),
                (complete * 3, bad_count),
                "{bad:?}"
            );
            let traces = fixture.traces();
            assert_eq!(traces.len() as u64, complete);
            assert!(traces.iter().all(|trace| trace.spans.len() == 3));
        }
    }
}

#[test]
fn what_holds_no_traces_is_named() {
    let fixture = Fixture::new();
    let path = fixture.file(
        "metrics.json",
        b"{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{},{}]}]}]}",
    );
    let (imported, bad) = import(&fixture.importer(), &path);
    let ImportOutcome::Now(summary) = imported else {
        panic!("{imported:?}")
    };
    assert_eq!((summary.spans, summary.events, bad.len()), (0, 0, 0));
    let [metrics] = &summary.not_taken[..] else {
        panic!("{summary:?}")
    };
    assert_eq!((&*metrics.name, metrics.count), ("OTLP metrics", 2));
    // If a format is given, the file is read in that format.
    let importer = fixture.importer().with_format(Format::OtlpJson);
    let ImportOutcome::Now(summary) = importer.file(&path, &mut |_, _| {}).unwrap() else {
        panic!()
    };
    assert_eq!((summary.spans, summary.bad_lines), (0, 0));
}

/// Returns the result of the general parser for a line, in the form of the plain parser's.
fn general(line: &[u8]) -> Option<(String, String, i64, String, String, Option<String>)> {
    let parsed = parse(line, &Limits::default()).ok()?;
    let mut json = String::new();
    let event = parsed.as_event(&mut json);
    let text = ToString::to_string;
    Some((
        text(event.trace),
        text(event.host),
        event.time_ns,
        text(event.event),
        text(event.task),
        event.attributes.map(text),
    ))
}

/// Checks that the plain parser returns the result of the general one, or nothing. Returns true if
/// the plain parser returned a result.
fn check_plain(line: &[u8]) -> bool {
    let mut json = "left over".to_owned();
    let text = ToString::to_string;
    let plain = parse_plain(line, &mut json, &Limits::default()).map(|event| {
        let attributes = event.attributes.map(text);
        (
            text(event.trace),
            text(event.host),
            event.time_ns,
            text(event.event),
            text(event.task),
            attributes,
        )
    });
    assert!(
        plain.is_none() || plain == general(line),
        "{}: {plain:?}",
        String::from_utf8_lossy(line)
    );
    plain.is_some()
}

#[test]
fn plain_lines_are_read_in_place() {
    let line = |attrs: &str| {
        format!(
            " {{ \"task\" : \"ü\",\"trace\":\"a\",\"ts_ns\":9223372036854775807 ,\t\"host\":\"\",\"event\":\"e\"{attrs}}}\r"
        )
    };
    let plain = ["", ",\"attrs\":null", ",\"attrs\":{}", ",\"attrs\": { }"];
    for attrs in plain {
        assert!(check_plain(line(attrs).as_bytes()), "{attrs}");
    }
    for value in [
        "1",
        "-7",
        "0",
        "123456789012345678",
        "\"x y\"",
        "\"\u{7f}é\"",
        "true",
        "false",
        " null ",
    ] {
        assert!(
            check_plain(line(&format!(",\"attrs\":{{\"k\":{value} , \"l\" :2}}")).as_bytes()),
            "{value}"
        );
    }
    let others = [
        "-0",
        "1.5",
        "1e3",
        "01",
        "[1]",
        "{}",
        "\"\\n\"",
        "tru",
        "nulll",
        "1234567890123456789",
        "- 1",
        "",
    ];
    for value in others {
        assert!(
            !check_plain(line(&format!(",\"attrs\":{{\"k\":{value}}}")).as_bytes()),
            "{value}"
        );
    }
    for attrs in [
        ",\"attrs\":{\"k\":1,\"k\":2}",
        ",\"more\":1",
        ",\"task\":\"again\"",
        ",",
        ",\"attrs\":{\"k\":1,}",
    ] {
        assert!(!check_plain(line(attrs).as_bytes()), "{attrs}");
    }
    let many: Vec<_> = (0..17).map(|i| format!("\"k{i}\":1")).collect();
    assert!(!check_plain(
        line(&format!(",\"attrs\":{{{}}}", many.join(","))).as_bytes()
    ));
    assert!(!check_plain(format!("{}x", line("")).as_bytes()));
    let long = line("").replace("\"e\"", &format!("\"{}\"", "x".repeat(70_000)));
    assert!(!check_plain(long.as_bytes()));
}

proptest::proptest! {
    /// However a line is mutated, both parsers agree, or the plain one returns nothing.
    #[test]
    fn plain_and_general_parsers_agree(
        order in proptest::sample::subsequence(vec![0usize, 1, 2, 3, 4, 5], 0..=6),
        value in "[-0-9a-z\"{}\\[\\]:,. \\\\u]{0,12}",
        text in ".{0,6}",
        time in proptest::prelude::any::<u64>(),
        flip in 0usize..200,
        byte in proptest::prelude::any::<u8>(),
        is_flipped in proptest::prelude::any::<bool>(),
    ) {
        let fields = [
            format!("\"trace\":\"{text}\""),
            "\"host\":\"h\"".to_owned(),
            format!("\"ts_ns\":{time}"),
            "\"event\":\"e\"".to_owned(),
            "\"task\":\"t\"".to_owned(),
            format!("\"attrs\":{{\"k\":{value},\"{text}\":1}}"),
        ];
        let chosen: Vec<&str> = order.iter().map(|field| &*fields[*field]).collect();
        let mut line = format!("{{{}}}", chosen.join(",")).into_bytes();
        if is_flipped {
            let at = flip % line.len();
            line[at] = byte;
        }
        check_plain(&line);
    }
}

#[test]
fn trace_names() {
    let check = |text: &str, id: Option<u128>, keeps_name: bool| {
        let got = trace_id(text);
        assert!(id.is_none_or(|id| id == got), "{text}: {got:x}");
        assert!(got != 0);
        assert_eq!(trace_label(text, got).is_some(), keeps_name, "{text}");
    };
    check(
        "4bf92f3577b34da6a3ce929d0e0e4736",
        Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
        false,
    );
    check(
        "4BF92F3577B34DA6A3CE929D0E0E4736",
        Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
        true,
    );
    check("17", Some(0x17), true);
    check("0", None, true);
    check("+17", None, true);
    check("request 1", None, true);
    check("4bf92f3577b34da6a3ce929d0e0e47361", None, true);
    assert_ne!(trace_id("request 1"), trace_id("request 2"));
    // The id depends only on the text.
    assert_eq!(trace_id("request 1"), trace_id("request 1"));
}

#[test]
fn a_missing_file_is_an_error() {
    let fixture = Fixture::new();
    let error = fixture
        .importer()
        .file(Path::new("/nonexistent.jsonl"), &mut |_, _| {})
        .unwrap_err();
    assert!(error.to_string().contains("/nonexistent.jsonl"), "{error}");
}
