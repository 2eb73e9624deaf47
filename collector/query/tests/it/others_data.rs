//! Traces that other systems recorded, and the critical paths that other tools find in them.
//!
//! The data is in the directory that `STROBOSCOPE_OTHERS_DATA` names, or by default in one next to
//! the project. It is not part of the project. Without the data, these tests print that they are
//! skipped, and pass.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};
use stroboscope_import::{ImportOutcome, ImportSummary, Importer};
use stroboscope_query::{Selection, Source, each_path, infer};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::tables::{Store, TraceReader};

/// Returns the path of a file of the data; `None` if it does not exist.
fn data(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("STROBOSCOPE_OTHERS_DATA")
        .map_or_else(beside, PathBuf::from)
        .join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

struct Fixture {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

/// Interval of a critical path: its task, its start and its end, in ns.
type Stretch = (String, i64, i64);

impl Fixture {
    fn new() -> Self {
        Self {
            runtime: tokio::runtime::Runtime::new().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn import(&self, path: &Path) -> ImportSummary {
        let store = Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap();
        let importer = Importer::new(DataDir::create(self.directory.path()).unwrap(), store);
        let mut bad = Vec::new();
        let imported = importer
            .file(path, &mut |line, reason| {
                bad.push(format!("{line}: {reason}"));
            })
            .unwrap();
        assert!(bad.is_empty(), "{}: {bad:?}", path.display());
        let ImportOutcome::Now(summary) = imported else {
            panic!("{imported:?}")
        };
        summary
    }

    fn traces(&self) -> Vec<TraceRecords> {
        let store = Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap();
        TraceReader::open(&store).unwrap().collect()
    }

    /// Returns the critical path of every trace, complete or not, by the trace's name.
    fn paths(&self) -> BTreeMap<String, Vec<Stretch>> {
        let source = Source::open(self.directory.path(), self.runtime.handle().clone()).unwrap();
        let selection = Selection {
            include_incomplete: true,
            ..Selection::default()
        };
        let inference = infer(&source, selection, 0.0).unwrap();
        let mut paths = BTreeMap::new();
        each_path(&source, selection, &inference, |answer| {
            assert_eq!(answer.path.latency_ns, answer.path.critical_path_ns);
            let critical = answer
                .path
                .segments
                .iter()
                .filter(|segment| segment.critical);
            let mut path: Vec<Stretch> = Vec::new();
            for segment in critical {
                let task = inference
                    .model
                    .labels()
                    .get(segment.segment)
                    .unwrap()
                    .task
                    .to_string();
                match path.last_mut() {
                    Some(last) if last.0 == task && last.2 == segment.start_ns => {
                        last.2 = segment.end_ns;
                    }
                    _ => path.push((task, segment.start_ns, segment.end_ns)),
                }
            }
            paths.insert(answer.label(), path);
            true
        })
        .unwrap();
        paths
    }
}

fn last_component(task: &str) -> &str {
    task.rsplit(" > ").next().unwrap_or(task)
}

/// Returns the service and name of each span, sorted.
fn names(trace: &TraceRecords) -> Vec<(String, String)> {
    let mut names: Vec<_> = trace
        .spans
        .iter()
        .map(|span| (span.service.to_string(), span.name.to_string()))
        .collect();
    names.sort();
    names
}

fn all_parents_are_there(trace: &TraceRecords) -> bool {
    let ids: BTreeSet<u64> = trace.spans.iter().map(|span| span.span_id).collect();
    trace
        .spans
        .iter()
        .all(|span| span.parent_id == 0 || ids.contains(&span.parent_id))
}

#[test]
fn deathstarbench_is_imported_without_loss() {
    let Some(path) = data("dsb/socialNetwork_compose_post_20traces.jaeger.json.zst") else {
        return;
    };
    let fixture = Fixture::new();
    let summary = fixture.import(&path);
    assert_eq!(
        (summary.spans, summary.events, summary.duplicates),
        (660, 0, 0)
    );
    let traces = fixture.traces();
    assert_eq!(traces.len(), 20);
    // Reads the source without the importer's code.
    let packed = std::fs::File::open(&path).unwrap();
    let text = zstd::decode_all(packed).unwrap();
    let source: Value = serde_json::from_slice(&text).unwrap();
    for trace in &traces {
        let written = trace.name.as_deref().unwrap();
        let found = source["data"]
            .as_array()
            .unwrap()
            .iter()
            .find(|found| found["traceID"] == written)
            .unwrap();
        assert_eq!(
            (trace.spans.len(), found["spans"].as_array().unwrap().len()),
            (33, 33)
        );
        for span in found["spans"].as_array().unwrap() {
            let id = u64::from_str_radix(span["spanID"].as_str().unwrap(), 16).unwrap();
            let kept = trace.spans.iter().find(|kept| kept.span_id == id).unwrap();
            let start_us = span["startTime"].as_i64().unwrap();
            let process = &found["processes"][span["processID"].as_str().unwrap()];
            let parent = span["references"][0]["spanID"]
                .as_str()
                .map_or(0, |id| u64::from_str_radix(id, 16).unwrap());
            assert_eq!(*kept.name, *span["operationName"].as_str().unwrap());
            assert_eq!(*kept.service, *process["serviceName"].as_str().unwrap());
            assert_eq!((kept.start_ns, kept.parent_id), (start_us * 1_000, parent));
            assert_eq!(
                kept.end_ns,
                (start_us + span["duration"].as_i64().unwrap()) * 1_000
            );
        }
    }
}

#[test]
fn small_traces_of_jaeger_are_imported_without_loss() {
    let cases = [
        ("base", 1),
        ("single_child", 2),
        ("sequential_children", 3),
        ("concurrent_children", 3),
        ("nested_concurrent", 6),
    ];
    let files = cases.map(|(name, spans)| {
        (
            format!("critpath/cacti_dev/test_trace_{name}_case.json"),
            spans,
        )
    });
    let second = (
        "critpath/cacti_dev/test_trace_concurrent_children_case_2.json".to_owned(),
        4,
    );
    for (file, spans) in files.into_iter().chain([second]) {
        let Some(path) = data(&file) else { return };
        let fixture = Fixture::new();
        assert_eq!(fixture.import(&path).spans, spans, "{file}");
        let traces = fixture.traces();
        assert_eq!(
            (traces.len(), traces[0].name.as_deref()),
            (1, Some("A_SPAN"))
        );
        assert!(all_parents_are_there(&traces[0]), "{file}");
    }
}

#[test]
fn fixtures_of_jaegers_storage_are_imported_without_loss() {
    let Some(directory) = data("jaeger") else {
        return;
    };
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // Each span has the first text in Jaeger's format, and the second in OTLP.
        let told =
            text.matches("\"operationName\"").count() + text.matches("\"endTimeUnixNano\"").count();
        let fixture = Fixture::new();
        let summary = fixture.import(&path);
        assert_eq!(
            (summary.spans + summary.duplicates) as usize,
            told,
            "{}",
            path.display()
        );
        let kept: usize = fixture.traces().iter().map(|trace| trace.spans.len()).sum();
        assert_eq!(kept as u64, summary.spans);
        files += 1;
    }
    assert_eq!(files, 34);
}

#[test]
fn one_trace_is_the_same_from_otlp_and_from_jaeger() {
    let (Some(otlp), Some(jaeger)) = (
        data("jaeger/otlp2jaeger-in.json"),
        data("jaeger/otlp2jaeger-out.json"),
    ) else {
        return;
    };
    let read = |path: &Path| {
        let fixture = Fixture::new();
        let summary = fixture.import(path);
        // The trace has one span twice.
        assert_eq!(
            (summary.spans, summary.duplicates),
            (1, 1),
            "{}",
            path.display()
        );
        fixture.traces()
    };
    let from_otlp = read(&otlp);
    assert_eq!(from_otlp, read(&jaeger));
    assert_eq!(from_otlp[0].spans[0].flags, SpanFlags::SERVER);
}

#[test]
fn train_tickets_trace_keeps_both_sides_of_each_call() {
    let Some(path) = data("zipkin/trainticket_case1_success.json") else {
        return;
    };
    let fixture = Fixture::new();
    // The data has 79 spans of Zipkin: the first server's, and 78 calls, each with a client and a
    // server side.
    assert_eq!(fixture.import(&path).spans, 1 + 78 * 2);
    let [trace] = &fixture.traces()[..] else {
        panic!()
    };
    assert!(all_parents_are_there(trace));
    let by_id: BTreeMap<u64, &SpanRecord> = trace
        .spans
        .iter()
        .map(|span| (span.span_id, span))
        .collect();
    assert_eq!(by_id.len(), 157);
    let servers: Vec<_> = trace
        .spans
        .iter()
        .filter(|span| span.flags == SpanFlags::SERVER)
        .collect();
    assert_eq!(servers.len(), 79);
    let (roots, called): (Vec<_>, Vec<_>) =
        servers.into_iter().partition(|span| span.parent_id == 0);
    assert_eq!(
        (roots.len(), &*roots[0].service),
        (1, "ts-preserve-service")
    );
    for server in called {
        let client = by_id[&server.parent_id];
        assert_eq!(
            (client.flags, &client.name),
            (SpanFlags::CLIENT, &server.name)
        );
        // A client span is a child of a server span of the same service.
        assert_eq!(by_id[&client.parent_id].service, client.service);
    }
    assert_eq!(names(trace).len(), 157);
}

/// Jaeger's UI follows a request's spans backwards from the end of the *root*, and cuts spans
/// there. Our path ends there, too, but starts with the first event. Unrecorded time is a wait. A
/// child that outlives its parent, and is not a call, did not delay the parent. Each case has our
/// path as (span, from, to) in µs, the time in µs that both give to the same span, and the length
/// of their path in µs. Comments state the reasons for differences.
#[test]
fn critical_paths_of_jaegers_ui() {
    type Case = (&'static str, &'static [(&'static str, i64, i64)], i64, i64);
    let cases: [Case; 9] = [
        (
            "test1",
            &[
                ("C", 1, 20),
                ("D", 20, 40),
                ("C", 40, 50),
                ("E", 50, 60),
                ("C", 60, 101),
            ],
            100,
            100,
        ),
        // From 10 to 20, the root waits for A, which they count as the root's own time.
        (
            "test2",
            &[("X", 1, 10), ("C", 20, 60), ("X", 60, 101)],
            90,
            100,
        ),
        // The rest happens after the root's end.
        ("test3", &[("006c3cf93508f205", 100, 140)], 40, 40),
        ("test4", &[("A", 1, 31)], 30, 30),
        // B follows from A, which does not wait for it. Here, B is a child like any other.
        (
            "test5",
            &[
                ("A", 1, 10),
                ("B", 10, 12),
                ("C", 12, 14),
                ("B", 14, 20),
                ("A", 20, 31),
            ],
            20,
            30,
        ),
        // B outlives A, and is not marked as a call: A ended without waiting for it.
        ("test6", &[("A", 1, 30)], 14, 29),
        ("test7", &[("A", 1, 30)], 14, 29),
        ("test8", &[("A", 10, 30)], 0, 20),
        // B is over before the root begins.
        ("test9", &[("B", 1, 5), ("A", 10, 30)], 20, 20),
    ];
    let Some(path) = data("critpath/jaeger_ui_9_cases.json") else {
        return;
    };
    let source: BTreeMap<String, Value> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(source.len(), cases.len());
    for (name, expected, agreed_us, their_us) in cases {
        let case = &source[name];
        let fixture = Fixture::new();
        let file = fixture.directory.path().join("case.json");
        std::fs::write(&file, case["trace"].to_string()).unwrap();
        let spans = case["trace"]["spans"].as_array().unwrap();
        assert_eq!(fixture.import(&file).spans, spans.len() as u64);
        let span_of = |task: &str| {
            let operation = last_component(task)
                .split_once(':')
                .unwrap()
                .1
                .trim_end_matches('*');
            let is_it = |span: &&Value| {
                span["operationName"]
                    .as_str()
                    .unwrap()
                    .starts_with(operation)
            };
            spans.iter().find(is_it).unwrap()["spanID"]
                .as_str()
                .unwrap()
                .trim_start_matches("span-")
                .to_owned()
        };
        let paths = fixture.paths();
        let [path] = &paths.values().collect::<Vec<_>>()[..] else {
            panic!("{name}")
        };
        let ours: Vec<_> = path
            .iter()
            .map(|(task, from, to)| (span_of(task), from / 1_000, to / 1_000))
            .collect();
        let ours: Vec<_> = ours
            .iter()
            .map(|(span, from, to)| (&**span, *from, *to))
            .collect();
        assert_eq!(ours, expected, "{name}");
        let (mut agreed, mut theirs) = (0, 0);
        for section in case["criticalPathSections"].as_array().unwrap() {
            let span = section["spanID"]
                .as_str()
                .unwrap()
                .trim_start_matches("span-");
            let (from, to) = (
                section["sectionStart"].as_i64().unwrap(),
                section["sectionEnd"].as_i64().unwrap(),
            );
            theirs += to - from;
            let common = ours
                .iter()
                .filter(|our| our.0 == span)
                .map(|our| (our.2.min(to) - our.1.max(from)).max(0));
            agreed += common.sum::<i64>();
        }
        assert_eq!((agreed, theirs), (agreed_us, their_us), "{name}");
    }
}

/// Reports whether, in any trace, the user mentions return before the creator's call is sent, and
/// whether they return after it arrives. Requires that the two transfers overlap in no trace.
fn orders_of_mentions_and_creator(traces: &[TraceRecords]) -> [bool; 2] {
    let mut orders = [false; 2];
    for trace in traces {
        let span = |name: &str| trace.spans.iter().find(|span| &*span.name == name).unwrap();
        let (from_ns, to_ns) = (
            span("compose_user_mentions_server").end_ns,
            span("compose_user_mentions_client").end_ns,
        );
        let creator_from_ns = span("compose_creator_client").start_ns;
        let creator_to_ns = span("compose_creator_server").start_ns;
        assert!(to_ns <= creator_from_ns || creator_to_ns <= from_ns);
        orders[usize::from(creator_to_ns <= from_ns)] = true;
    }
    orders
}

/// CRISP walks each trace's tree by itself, from a span to the child that ends last, and on to the
/// sibling that ends last before that one starts. Our model has each order and exclusion that none
/// of the 20 traces contradicts, even accidental ones. Still, 19 of 20 paths visit the same spans.
/// The test states why the other one differs.
#[test]
fn critical_paths_of_crisp() {
    let Some(path) = data("dsb/socialNetwork_compose_post_20traces.jaeger.json.zst") else {
        return;
    };
    let Some(expected) = data("dsb/expected_critical_path_by_crisp.json") else {
        return;
    };
    let expected: BTreeMap<String, Vec<(String, String, String)>> =
        serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    let fixture = Fixture::new();
    fixture.import(&path);
    let paths = fixture.paths();
    assert_eq!((paths.len(), expected.len()), (20, 20));
    let text = [
        "text-service:compose_text_server",
        "text-service:compose_user_mentions_client",
    ];
    let mentions = ["memcached_get_client", "mongo_find_client", "server"]
        .map(|part| format!("user-mention-service:compose_user_mentions_{part}"));
    let text: BTreeSet<String> = text
        .map(str::to_owned)
        .into_iter()
        .chain(mentions)
        .collect();
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<String>>()
    };
    let mut agreeing = 0;
    for (name, path) in &paths {
        let ours: BTreeSet<String> = path
            .iter()
            .map(|stretch| last_component(&stretch.0).to_owned())
            .collect();
        let theirs: BTreeSet<String> = expected[name]
            .iter()
            .map(|(_, service, operation)| format!("{service}:{operation}"))
            .collect();
        let only_ours: BTreeSet<String> = ours.difference(&theirs).cloned().collect();
        let only_theirs: BTreeSet<String> = theirs.difference(&ours).cloned().collect();
        let span = |operation: &str| {
            let traces = fixture.traces();
            let trace = traces
                .iter()
                .find(|trace| trace.name.as_deref() == Some(&**name))
                .unwrap();
            trace
                .spans
                .iter()
                .find(|span| &*span.name == operation)
                .unwrap()
                .clone()
        };
        match &**name {
            // The creator's call begins 18 µs after the call for user mentions ends. The two
            // transfers occur in both orders and never overlap, so in the model they exclude each
            // other: the first one delays the other. CRISP knows only siblings: the text, which
            // includes the mentions, still runs when the creator begins, so its path goes on to the
            // media.
            "17178dd2c6305035" => {
                let since_ns = span("compose_creator_client").start_ns
                    - span("compose_user_mentions_client").end_ns;
                assert_eq!(since_ns, 18_000);
                assert_eq!(
                    orders_of_mentions_and_creator(&fixture.traces()),
                    [true, true]
                );
                assert!(
                    span("compose_text_client").end_ns > span("compose_creator_client").start_ns
                );
                let text_client = set(&["compose-post-service:compose_text_client"]);
                assert_eq!(only_ours, text.union(&text_client).cloned().collect());
                assert_eq!(
                    only_theirs,
                    set(&[
                        "compose-post-service:compose_media_client",
                        "compose-post-service:compose_unique_id_client",
                        "media-service:compose_media_server",
                        "unique-id-service:compose_unique_id_server",
                    ])
                );
            }
            _ => {
                assert!(
                    only_ours.is_empty() && only_theirs.is_empty(),
                    "{name}: {only_ours:?} {only_theirs:?}"
                );
                agreeing += 1;
            }
        }
    }
    assert_eq!(agreeing, 19);
}
