//! A recording that is always on has several files: nothing is cut or counted twice between them.

use std::process::Command;

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_analysis::kernel::marker::MARK;
use stroboscope_analysis::record::SpanFlags;
use stroboscope_kernel_model::{ClockLog, ClockSample};
use stroboscope_query::Source;
use stroboscope_query::timeline::{
    KernelOverview, of_burst, of_recorded_burst, of_trace, overview,
};
use stroboscope_store::record::{BatchRow, Rows, SpanRow, WindowRow};
use stroboscope_store::tables::{KernelChunk, PartitionRule, Store, write_kernel, write_rows};

const WALL_NS: i64 = 1_767_322_800_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const END_NS: u64 = 12 * SECOND_NS;
const READ: u32 = 0;
const GETPID: u32 = 39;
const LOCK: u64 = 0x10;

/// Events of requests of 70 ms, one after the other on two threads, so that some cross every edge.
/// Each request reads while its thread is off the processor, and waits for a lock.
fn events() -> Vec<Event> {
    let mut events = Vec::new();
    for tid in [1_u32, 2] {
        let mut at_ns = u64::from(tid) * 3_000_000;
        let mut trace = u64::from(tid) << 32;
        while at_ns + 80_000_000 < END_NS {
            trace += 1;
            let mut see = |after_ns: u64, body| {
                events.push(Event {
                    ts_ns: at_ns + after_ns,
                    cpu: tid as u16,
                    tid,
                    body,
                });
            };
            let mut marker = |after_ns: u64, kind: u64, object: u64| {
                let args = [MARK | kind, trace, 7, u64::from(tid), object, 0];
                see(after_ns, Body::Enter { call: GETPID, args });
                see(
                    after_ns + 1_000,
                    Body::Exit {
                        call: GETPID,
                        result: 1,
                    },
                );
            };
            marker(0, 1, 0);
            marker(40_000_000, 5, LOCK);
            marker(60_000_000, 6, LOCK);
            marker(61_000_000, 7, LOCK);
            marker(70_000_000, 2, 0);
            see(
                10_000_000,
                Body::Enter {
                    call: READ,
                    args: [3, 0, 0, 0, 0, 0],
                },
            );
            let name = Name::new("worker");
            let away = Body::Switch {
                state: 1,
                process: 9,
                name,
                next: 0,
                next_process: 0,
                next_name: name,
            };
            see(11_000_000, away);
            let back = Body::Switch {
                state: 0,
                process: 0,
                name,
                next: tid,
                next_process: 9,
                next_name: name,
            };
            events.push(Event {
                ts_ns: at_ns + 31_000_000,
                cpu: tid as u16,
                tid: 0,
                body: back,
            });
            events.push(Event {
                ts_ns: at_ns + 32_000_000,
                cpu: tid as u16,
                tid,
                body: Body::Exit {
                    call: READ,
                    result: 5,
                },
            });
            at_ns += 71_000_000;
        }
    }
    events.sort_by_key(|event| event.ts_ns);
    events
}

fn clocks() -> ClockLog {
    let mut clocks = ClockLog::default();
    for at_ns in [0, END_NS] {
        clocks.push(ClockSample {
            at_ns,
            wall_offset_ns: WALL_NS,
            tai_offset_ns: 0,
            boot_offset_ns: 0,
            uncertainty_ns: 70,
        });
    }
    clocks
}

/// Stores one recording, cut at these moments. Each chunk begins with threads and their requests.
fn record(edges_ns: &[u64]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let all = events();
    let edges: Vec<u64> = [&[0], edges_ns, &[END_NS]].concat();
    for edge in edges.windows(2) {
        let (open_ns, close_ns) = (edge[0], edge[1]);
        let introduction = |tid: u32| {
            let marks = all
                .iter()
                .filter(|event| event.tid == tid && event.ts_ns < open_ns);
            let works_for = marks.fold(0, |works_for, event| match event.body {
                Body::Enter { call: GETPID, args } if args[0] == MARK | 1 => args[1],
                Body::Enter { call: GETPID, args } if args[0] == MARK | 2 => 0,
                _ => works_for,
            });
            let span = if works_for == 0 { 0 } else { 7 };
            let name = Name::new("worker");
            let body = Body::Thread {
                trace: works_for,
                span,
                known: true,
                process: 9,
                tid_in_process: tid,
                name,
            };
            Event {
                ts_ns: open_ns,
                cpu: tid as u16,
                tid,
                body,
            }
        };
        let mut events = vec![introduction(1), introduction(2)];
        events.extend(
            all.iter()
                .filter(|event| (open_ns..close_ns).contains(&event.ts_ns)),
        );
        let chunk = KernelChunk {
            recording: 7,
            host: "web1".into(),
            architecture: Architecture::X86_64,
            burst_config: 0,
            covers_ns: (WALL_NS + open_ns as i64, WALL_NS + close_ns as i64),
            events,
            windows: vec![Window { open_ns, close_ns }],
            clocks: clocks(),
            lost: LossCounts::default(),
        };
        write_kernel(&store, &chunk).unwrap();
    }
    directory
}

fn source(directory: &tempfile::TempDir, runtime: &tokio::runtime::Runtime) -> Source {
    Source::open_any(directory.path(), runtime.handle().clone()).unwrap()
}

fn sums(edges_ns: &[u64]) -> KernelOverview {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    overview(&source(&record(edges_ns), &runtime)).unwrap()
}

#[test]
fn files_that_meet_are_one_recording() {
    let whole = sums(&[]);
    assert!(whole.requests.len() > 300 && whole.requests.iter().all(|request| !request.is_cut));
    let read = |overview: &KernelOverview| {
        overview
            .calls
            .iter()
            .find(|row| row.call == READ)
            .map(|row| (row.sum, row.max_count))
            .unwrap()
    };
    assert_eq!(
        (read(&whole).0.count, read(&whole).1),
        (whole.requests.len() as u64, 1)
    );
    let waited_ns: u64 = whole
        .requests
        .iter()
        .flat_map(|request| request.lock_ns.values())
        .sum();
    let known_ns: u64 = whole
        .requests
        .iter()
        .flat_map(|request| {
            request
                .lock_ns
                .iter()
                .filter(|(holder, _)| holder.is_some())
        })
        .map(|(_, ns)| *ns)
        .sum();
    assert!(known_ns > waited_ns / 3, "{known_ns} of {waited_ns}");
    let edges: Vec<u64> = (1..6)
        .map(|edge| edge * 2 * SECOND_NS + 5_000_000)
        .collect();
    // Edges are in the middle of a read or of a wait for a lock, or between requests.
    for edges in [
        &edges[..],
        &[1_020_000_000],
        &[5_050_000_000, 5_120_000_000],
        &[3_000_000 + 71_000_000 * 20],
    ] {
        let several = sums(edges);
        assert_eq!(
            (several.windows, several.recordings, several.lost),
            (1, 1, 0)
        );
        assert_eq!(read(&several), read(&whole), "{edges:?}");
        assert_eq!(several.requests, whole.requests, "{edges:?}");
        assert_eq!(several.locks, whole.locks, "{edges:?}");
    }
}

#[test]
fn a_request_that_only_the_kernel_knows_is_found() {
    let directory = record(&[4 * SECOND_NS]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let source = source(&directory, &runtime);
    let all = overview(&source).unwrap();
    let known = all.requests[all.requests.len() / 2].trace;
    let view = of_trace(&source, u128::from(known), "it").unwrap();
    assert!(view.requests.is_empty() && view.burst.is_none());
    assert_eq!(
        view.kernel[0]
            .timeline
            .calls
            .iter()
            .filter(|call| call.call == READ)
            .count(),
        1
    );
    assert!(
        of_trace(&source, 0xdead, "dead")
            .unwrap_err()
            .to_string()
            .contains("no trace dead")
    );
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
        let output = command
            .arg("timeline")
            .args(arguments)
            .arg("--data")
            .arg(directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // The request's id as the table prints it.
    let table = run(&[]);
    let id = table
        .lines()
        .find_map(|line| line.split(' ').next().filter(|word| word.len() == 16))
        .unwrap();
    let text = run(&["--trace", id]);
    assert!(
        text.contains(&format!("request {id}, which is not in the store")),
        "{text}"
    );
    assert!(text.contains("read(3) = 5"), "{text}");
    assert!(
        table.contains("the holder or waker is known for "),
        "{table}"
    );
}

#[test]
fn a_burst_without_an_end_says_which_part_is_shown() {
    let directory = record(&[4 * SECOND_NS, 8 * SECOND_NS]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let source = source(&directory, &runtime);
    let burst_ns = (WALL_NS, WALL_NS + END_NS as i64);
    for at_ns in [WALL_NS, WALL_NS + 3_900_000_000, WALL_NS + 7_000_000_000] {
        let view = of_burst(&source, at_ns).unwrap();
        let burst = view.burst.unwrap();
        assert_eq!(
            (burst.burst_ns, burst.shown_ns),
            (burst_ns, (at_ns, at_ns + SECOND_NS as i64))
        );
        let windows = &view.kernel[0].timeline.windows;
        let shown_ns: u64 = windows
            .iter()
            .map(|window| window.close_ns - window.open_ns)
            .sum();
        assert_eq!(shown_ns, SECOND_NS);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
    let command = command
        .args(["timeline", "--burst", "2026-01-02T03:00:03.9", "--data"])
        .arg(directory.path());
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(
        text.starts_with("1.00s of a burst of 12.0s that opened at 2026-01-02T03:00:00.000000Z"),
        "{text}"
    );
    let next = WALL_NS + 4_900_000_000;
    assert!(
        text.contains(&format!("--burst {next} shows what comes next")),
        "{text}"
    );
}

/// Services of two hosts get another burst-config five seconds after the start of the recording.
#[test]
fn services_that_changed_their_burst_config_are_named() {
    let directory = record(&[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let mut rows = Rows::default();
    for (process, host) in ["web1", "web2"].into_iter().enumerate() {
        for second in 0..12_i64 {
            let from_ns = WALL_NS + second * SECOND_NS as i64;
            let to_ns = from_ns + SECOND_NS as i64;
            rows.batches.push(BatchRow {
                process: process as u128 + 1,
                sequence: second as u64,
                service: rows.strings.intern("web"),
                host: rows.strings.intern(host),
                pid: 9,
                started_ns: WALL_NS,
                sdk_version: rows.strings.intern("0.1.0"),
                from_ns,
                to_ns,
                received_ns: to_ns,
                burst_config: 0,
                spans: 0,
                events: 0,
                windows: vec![WindowRow {
                    open_ns: from_ns,
                    close_ns: to_ns,
                    burst_config: if second < 5 { 0 } else { 28 },
                }],
                losses: Vec::new(),
                clock_steps: Vec::new(),
                kernel_clock: None,
                loads: Vec::new(),
            });
        }
    }
    let rule = PartitionRule::received(WALL_NS, WALL_NS);
    write_rows(&store, "seg-0", rows, &rule).unwrap();
    let source = source(&directory, &runtime);
    for (second, others) in [(3, vec![]), (8, vec![28])] {
        let view = of_burst(&source, WALL_NS + second * SECOND_NS as i64).unwrap();
        let part = &view.kernel[0];
        assert_eq!(
            (&*part.burst_configs, &part.services_configs),
            (&[0][..], &others)
        );
        let view = of_recorded_burst(&source, WALL_NS + second * SECOND_NS as i64).unwrap();
        assert_eq!(view.kernel[0].services_configs, others);
    }
}

/// The recording has one lock: a row with its sums, and the output of `--lock`.
#[test]
fn a_lock_has_a_row_and_is_seen_from_near() {
    let whole = sums(&[]);
    let [row] = &whole.locks[..] else {
        panic!("{:#?}", whole.locks)
    };
    let requests = whole.requests.len() as u64;
    assert_eq!((row.sum.waits, row.requests), (requests, requests));
    // Each waits from its 40th to its 60th ms.
    assert_eq!(row.sum.total_ns, requests * 20_000_000);
    assert_eq!((row.p50_ns, row.max_ns), (20_000_000, 20_000_000));
    let of_requests: u64 = whole
        .requests
        .iter()
        .flat_map(|request| request.lock_ns.values())
        .sum();
    assert_eq!(row.sum.total_ns, of_requests);
    let held_ns: u64 = row.holding.iter().map(|(_, sum)| sum.total_ns).sum();
    assert_eq!(held_ns, of_requests, "{:?}", row.holding);

    let directory = record(&[4 * SECOND_NS]);
    let at = directory.path();
    let said = crate::common::json_of(at, &["timeline", "--data", ".", "--json"]);
    let lock = &said["locks"][0];
    assert_eq!(lock["lock"], "9:0x10", "{lock:#}");
    assert_eq!(lock["kind"], "marked lock", "{lock:#}");
    assert_eq!(lock["total_ns"], of_requests, "{lock:#}");
    let near = ["timeline", "--data", ".", "--lock", "9:0x10", "--json"];
    assert_eq!(crate::common::json_of(at, &near)["locks"][0], *lock);
    let run = |arguments: &[&str], status: i32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
        let command = command
            .arg("timeline")
            .args(arguments)
            .arg("--data")
            .arg(at);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap())
    };
    let [text, _] = run(&[], 0);
    for expected in ["9:0x10", "marked lock", "Requests waited "] {
        assert!(text.contains(expected), "no {expected:?}: {text}");
    }
    let [text, _] = run(&["--lock", "9:0x10"], 0);
    for expected in [
        "lock 0x10 of process 9 on web1",
        "Holders meanwhile",
        "The longest waits",
    ] {
        assert!(text.contains(expected), "no {expected:?}: {text}");
    }
    let [_, error] = run(&["--lock", "9:0x11"], 2);
    assert!(
        error.contains("no request waited at a lock \"9:0x11\""),
        "{error}"
    );
}

/// Formulas about kernel events. For a request without a kernel recording, the result is unknown.
#[test]
fn what_the_kernel_did_is_searched() {
    let directory = record(&[1_020_000_000]);
    let page = |trace: u64, start_ns: i64| {
        let text = |value: &str| serde_json::json!({"stringValue": value});
        serde_json::json!({
            "resource": {"attributes": [
                {"key": "service.name", "value": text("web")},
                {"key": "host.name", "value": text("web1")},
            ]},
            "scopeSpans": [{"spans": [{
                "traceId": format!("{trace:032x}"),
                "spanId": format!("{:016x}", 7),
                "name": "page",
                "kind": 2,
                "startTimeUnixNano": (WALL_NS + start_ns).to_string(),
                "endTimeUnixNano": (WALL_NS + start_ns + 70_000_000).to_string(),
            }]}],
        })
    };
    let (first, other) = (1 << 32 | 1, 2 << 32 | 1);
    let pages = [
        page(first, 3_000_000),
        page(other, 6_000_000),
        page(9 << 32, 2 * END_NS as i64),
    ];
    let at = directory.path();
    let spans = serde_json::json!({"resourceSpans": pages}).to_string();
    std::fs::write(at.join("spans.json"), spans).unwrap();
    crate::common::check(at, &["import", "--data", ".", "spans.json"], 0);
    let counts = |formula: &str| {
        let found = crate::common::json_of(at, &["search", "--data", ".", "--json", formula]);
        ["matched", "unknown"].map(|key| found[key].as_u64().unwrap())
    };
    let read = r#"{ kernel = syscall && name = "read" && duration > 1ms }"#;
    assert_eq!(counts(read), [2, 1]);
    assert_eq!(counts("{ kernel = syscall && duration > 30ms }"), [0, 1]);
    let behind = r#"{ kernel = lock_wait && .holder_trace = "0000000100000001" }"#;
    assert_eq!(counts(behind), [1, 1]);
    let away =
        r#"{ kernel = off_cpu } during { name = "page" } at the same host in the same request"#;
    assert_eq!(counts(away), [2, 1]);
    assert_eq!(
        counts(r#"{ name = "page" } >> { kernel = off_cpu && name = "read" }"#),
        [2, 1]
    );
    assert_eq!(counts(r#"{ name = "read" }"#), [0, 0]);
}

/// Returns the number of requests whose two reads ran one by one. Each of 20 requests reads on host
/// `a` and then on host `b`, whose clock is ahead by `ahead_ns`. Only calls connect the clocks.
fn read_one_by_one(ahead_ns: i64, has_calls: bool) -> u64 {
    const SERVER: u32 = SpanFlags::SERVER.0;
    const CLIENT: u32 = SpanFlags::CLIENT.0;
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let mut rows = Rows::default();
    let mut events = Vec::new();
    for trace in 1..=20_u64 {
        // Few of these times are multiples of ten: the clocks look exact.
        let begin_ns = trace * 20_000_007;
        for (span_id, parent_id, host, name, flags, from_us, to_us) in [
            (1, 0, "web", "page", SERVER, 0, 8_000),
            (2, 1, "web", "call", CLIENT, 1_000, 3_000),
            (3, 2, "a", "read", SERVER, 1_200, 2_800),
            (4, 1, "web", "call", CLIENT, 4_000, 6_000),
            (5, 4, "b", "read", SERVER, 4_200, 5_800),
        ] {
            let wall_ns = WALL_NS + begin_ns as i64 + if host == "b" { ahead_ns } else { 0 };
            rows.spans.push(SpanRow {
                trace_id: u128::from(trace),
                trace_name: None,
                span_id,
                parent_id: if has_calls { parent_id } else { 0 },
                service: rows.strings.intern("store"),
                name: rows.strings.intern(name),
                host: rows.strings.intern(host),
                process: 0,
                start_ns: wall_ns + from_us * 1_000,
                end_ns: wall_ns + to_us * 1_000,
                flags,
                attributes: None,
            });
        }
        for (span, after_ns) in [(3, 1_300_000), (5, 4_300_000)] {
            let marker = |kind: u64| [MARK | kind, trace, span, 1, 0, 0];
            for (call, args, call_ns) in [
                (GETPID, marker(1), 0),
                (READ, [3, 0, 0, 0, 0, 0], 10_000),
                (GETPID, marker(2), 20_000),
            ] {
                let ts_ns = begin_ns + after_ns + call_ns;
                for (ts_ns, body) in [
                    (ts_ns, Body::Enter { call, args }),
                    (ts_ns + 1_000, Body::Exit { call, result: 1 }),
                ] {
                    events.push(Event {
                        ts_ns,
                        cpu: 1,
                        tid: 1,
                        body,
                    });
                }
            }
        }
    }
    let rule = PartitionRule::received(WALL_NS, WALL_NS);
    write_rows(&store, "seg-0", rows, &rule).unwrap();
    let chunk = KernelChunk {
        recording: 7,
        host: "a".into(),
        architecture: Architecture::X86_64,
        burst_config: 0,
        covers_ns: (WALL_NS, WALL_NS + END_NS as i64),
        events,
        windows: vec![Window {
            open_ns: 0,
            close_ns: END_NS,
        }],
        clocks: clocks(),
        lost: LossCounts::default(),
    };
    write_kernel(&store, &chunk).unwrap();
    let operations = overview(&source(&directory, &runtime)).unwrap().operations;
    let [read] = &operations[..] else {
        panic!("{operations:#?}")
    };
    assert_eq!(
        (&*read.operation, read.requests, read.spans),
        ("store:read", 20, 40)
    );
    read.one_by_one
}

#[test]
fn the_order_of_calls_on_several_hosts_is_by_aligned_clocks() {
    assert_eq!(read_one_by_one(0, true), 20);
    // As recorded, the reads overlap.
    assert_eq!(read_one_by_one(-2_000_000, true), 20);
    assert_eq!(read_one_by_one(0, false), 0);
}
