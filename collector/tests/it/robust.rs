//! Adverse data through the whole program: nothing hangs or fails, memory stays bounded, and flaws
//! are reported by name.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use stroboscope_fixtures::random::Random;

const ORIGIN_NS: i64 = 1_767_322_800_000_000_000;
/// Maximum resident memory of any subcommand here, in KiB.
const MEMORY_KB_MAX: u64 = 2 << 20;

/// Writes an event log line by line.
#[derive(Default)]
struct Log(String);

impl Log {
    fn event(&mut self, trace: u64, host: &str, since_ns: i64, task: &str, event: &str) {
        let ts_ns = ORIGIN_NS + since_ns;
        let _ = writeln!(
            self.0,
            r#"{{"trace":"r{trace}","host":"{host}","ts_ns":{ts_ns},"event":"{event}","task":"{task}"}}"#
        );
    }
}

/// Returns the maximum resident memory of a process so far, in KiB; `None` if it has ended.
fn memory_kb(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a subcommand and checks its memory. Returns its exit status and both outputs.
fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
    let mut child = command
        .args(arguments)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let readers = [
        std::thread::spawn(move || std::io::read_to_string(stdout).unwrap()),
        std::thread::spawn(move || std::io::read_to_string(stderr).unwrap()),
    ];
    let mut highest_kb = 0;
    let status = loop {
        highest_kb = highest_kb.max(memory_kb(process).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(
        highest_kb < MEMORY_KB_MAX,
        "{arguments:?} took {highest_kb} KiB"
    );
    let [out, errors] = readers.map(|reader| reader.join().unwrap());
    (status.code(), out, errors)
}

/// Parts of the result of `infer` that the tests check. Reading its millions of relations into
/// values would take longer than inferring them.
#[derive(serde::Serialize, serde::Deserialize)]
struct Inferred {
    traces: Value,
    incomplete: Value,
    diagnostics: Value,
    segments: Value,
}

/// Imports a file and runs the reading subcommands. Checks that `infer` reports these flaws, and
/// returns its output.
fn check(name: &str, content: &str, import_status: i32, flaws: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), content).unwrap();
    let (status, out, errors) = run(directory.path(), &["import", name]);
    assert_eq!(status, Some(import_status), "{out}{errors}");
    let (status, out, errors) = run(
        directory.path(),
        &["infer", "--json", "--include-incomplete"],
    );
    assert_eq!(status, Some(0), "{errors}");
    let inferred: Inferred = serde_json::from_str(&out).unwrap();
    let mut inferred = serde_json::to_value(inferred).unwrap();
    for flaw in flaws {
        assert!(
            inferred["diagnostics"][flaw].as_u64() > Some(0),
            "{name}: {flaw}: {}",
            inferred["diagnostics"]
        );
        assert!(errors.contains(&format!(": {flaw} (")), "{errors}");
    }
    assert_eq!(
        inferred["diagnostics"].as_object().unwrap().len(),
        flaws.len(),
        "{}",
        inferred["diagnostics"]
    );
    for verb in ["critical-path", "slack"] {
        let (status, out, errors) =
            run(directory.path(), &[verb, "--json", "--include-incomplete"]);
        assert_eq!(status, Some(0), "{verb}: {errors}");
        inferred[verb] = serde_json::from_str(&out).unwrap();
    }
    // Requests of one event take no time, and are not used.
    let used = inferred["critical-path"]["used_traces"].as_u64().unwrap();
    assert!(
        used > 0 && used <= inferred["traces"].as_u64().unwrap(),
        "{used}"
    );
    inferred
}

/// Checks that a model with room for more than the default maximum of segments lacks none.
#[test]
fn a_model_has_as_many_segments_as_asked() {
    let mut log = Log::default();
    for (trace, i) in (0..1_000).flat_map(|trace| (0..7).map(move |i| (trace, i))) {
        let time_ns = trace * 1_000_000_000 + i * 7_000;
        // A word of letters is no id, so that each request has names of its own.
        let letter = |digit: i64| char::from(b'a' + (digit % 10) as u8);
        let word: String = [100, 10, 1].map(|of| letter(trace / of)).iter().collect();
        log.event(trace as u64, "h", time_ns, &word, &format!("e{i}"));
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("log.jsonl"), &log.0).unwrap();
    let (status, out, errors) = run(directory.path(), &["import", "log.jsonl"]);
    assert_eq!(status, Some(0), "{out}{errors}");
    for (asked, full) in [("4096", true), ("5999", true), ("6000", false)] {
        let arguments = ["infer", "--json", "--max-segments", asked];
        let (status, out, errors) = run(directory.path(), &arguments);
        assert_eq!(status, Some(0), "{errors}");
        let inferred: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(segments(&inferred), asked.parse::<usize>().unwrap());
        let lacking = inferred["diagnostics"]["labels_full"].as_u64();
        assert_eq!(lacking.is_some(), full, "{asked}: {lacking:?}");
    }
}

fn segments(inferred: &Value) -> usize {
    inferred["segments"].as_array().unwrap().len()
}

#[test]
fn a_loop_of_a_hundred_thousand_events() {
    let mut log = Log::default();
    (0..100_000).for_each(|i| log.event(1, "h", i * 7_000, "loop", "tick"));
    let inferred = check("loop.jsonl", &log.0, 0, &[]);
    assert_eq!(
        (segments(&inferred), &inferred["segments"][0]["count"]),
        (1, &Value::from(99_999))
    );
    assert!(
        inferred["critical-path"]["segments"][0]["mean_share"]
            .as_f64()
            .unwrap()
            > 0.999_999
    );
}

#[test]
fn one_trace_of_a_hundred_thousand_events_on_many_tasks_and_hosts() {
    let mut log = Log::default();
    for i in 0..100_000 {
        let event = format!("e{}", i * 7_919 % 40);
        log.event(
            1,
            &format!("h{}", i % 5),
            i * 7_000,
            &format!("t{}", i % 8),
            &event,
        );
    }
    let inferred = check("big.jsonl", &log.0, 0, &[]);
    let count: u64 = inferred["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["count"].as_u64().unwrap())
        .sum();
    assert_eq!(count, 100_000 - 8);
}

#[test]
fn one_trace_of_a_hundred_thousand_spans() {
    let mut random = Random(7);
    let mut span = |i: u64, parent: u64, end: u64| {
        format!(
            "{{\"traceID\":\"ab\",\"spanID\":\"{:x}\",\"operationName\":\"op{}\",\"references\":[{{\"refType\":\"CHILD_OF\",\"traceID\":\"ab\",\
             \"spanID\":\"{parent:x}\"}}],\"startTime\":{},\"duration\":{},\"processID\":\"p1\"}}",
            i + 1,
            random.next_u64() % 5,
            ORIGIN_NS / 1_000 + i as i64,
            end - i
        )
    };
    // A wide trace in one line, and a deep one with a line for each span.
    let fan: Vec<String> = (0..100_000)
        .map(|i| span(i, u64::from(i > 0), 200_000))
        .collect();
    let chain: Vec<String> = (0..100_000).map(|i| span(i, i, 400_000 - i)).collect();
    let document = |spans: &[String], between: &str| {
        format!(
            "{{\"data\":[{{\"traceID\":\"ab\",\"spans\":[{}],\"processes\":{{\"p1\":{{\"serviceName\":\"s\"}}}}}}]}}",
            spans.join(between)
        )
    };
    check("fan.json", &document(&fan, ","), 0, &[]);
    check("chain.json", &document(&chain, ",\n"), 0, &["too_deep"]);
}

/// A hundred thousand spans in phases, one after the other. The spans of a phase are alike and run
/// in parallel. All instances of the labels of one phase precede those of the next.
#[test]
fn one_trace_that_is_a_bush_of_repeated_spans() {
    const PHASES: u64 = 40;
    const SPANS: u64 = 2_500;
    const PHASE_US: u64 = 40_000;
    let mut random = Random(11);
    let mut spans = Vec::new();
    let mut add = |parent: usize, name: &str, from_us: u64, to_us: u64| {
        let id = spans.len() + 1;
        spans.push(format!(
            "{{\"traceID\":\"ab\",\"spanID\":\"{id:x}\",\"operationName\":\"{name}\",\"references\":[{{\"refType\":\"CHILD_OF\",\"traceID\":\"ab\",\
             \"spanID\":\"{parent:x}\"}}],\"startTime\":{},\"duration\":{},\"process\":{{\"serviceName\":\"s\"}}}}",
            ORIGIN_NS as u64 / 1_000 + from_us,
            to_us - from_us
        ));
        id
    };
    let root = add(0, "root", 0, PHASES * PHASE_US);
    for phase in 0..PHASES {
        let from_us = phase * PHASE_US;
        let letter = |at: u64| char::from(b'a' + (at % 26) as u8);
        let name = format!("phase {}{}", letter(phase / 26), letter(phase));
        let parent = add(root, &name, from_us, from_us + PHASE_US - 1);
        for number in 0..SPANS {
            let starts_us = from_us + 1 + number * 10 + random.next_u64() % 5;
            add(
                parent,
                "work",
                starts_us,
                starts_us + 20 + random.next_u64() % 9_000,
            );
        }
    }
    let inferred = check("bush.json", &spans.join("\n"), 0, &[]);
    let counts = || {
        inferred["segments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["count"].as_u64().unwrap())
    };
    // Each phase has 32 numbered segments and one for all others, besides the segments of phases
    // and root.
    assert!(
        (33 * PHASES..4_096).contains(&(counts().count() as u64)),
        "{}",
        counts().count()
    );
    assert!(counts().sum::<u64>() >= SPANS * PHASES);
    assert_eq!(counts().filter(|count| *count > 100).count() as u64, PHASES);
}

#[test]
fn ten_thousand_segments() {
    let mut log = Log::default();
    for trace in 0..2 {
        (0..10_001).for_each(|i| {
            log.event(
                trace,
                "h",
                trace as i64 * 1_000_000_000 + i * 7_000,
                "t",
                &format!("e{i}"),
            );
        });
    }
    let inferred = check("labels.jsonl", &log.0, 0, &["labels_full"]);
    assert_eq!(segments(&inferred), 4_096);
}

#[test]
fn an_id_in_every_name() {
    let mut random = Random(3);
    let mut log = Log::default();
    for trace in 0..2_000 {
        for i in 0..10 {
            let (task, event) = (
                format!("task-{:x}", random.next_u64()),
                format!("got {}", random.next_u64()),
            );
            log.event(
                trace,
                "h",
                trace as i64 * 1_000_000_000 + i * 7_000,
                &task,
                &event,
            );
        }
    }
    let inferred = check("ids.jsonl", &log.0, 0, &["lone_events"]);
    assert_eq!(segments(&inferred), 0);
    let mut spans = Vec::new();
    for trace in 1..=2_000_u64 {
        for i in 1..=12_u64 {
            // The varying parts are recognised as an id, as a number, and not at all.
            let word: String = (0..12)
                .map(|_| char::from(b'a' + (random.next_u64() % 16) as u8))
                .collect();
            let name = [
                format!("op {:016x}", random.next_u64()),
                format!("user {}", random.next_u64()),
                format!("job-{word}"),
            ];
            spans.push(format!(
                "{{\"traceID\":\"{trace:x}\",\"spanID\":\"{i:x}\",\"operationName\":\"{}\",\"references\":[{{\"refType\":\"CHILD_OF\",\"traceID\":\
                 \"{trace:x}\",\"spanID\":\"{:x}\"}}],\"startTime\":{},\"duration\":{},\"process\":{{\"serviceName\":\"s\"}}}}",
                name[(i % 3) as usize],
                i / 2,
                ORIGIN_NS as u64 / 1_000 + trace * 1_000_000 + i * 100,
                5_000 - i * 200
            ));
        }
    }
    let inferred = check("ids.json", &spans.join("\n"), 0, &["labels_full"]);
    assert_eq!(segments(&inferred), 4_096);
}

#[test]
fn clocks_that_jump() {
    let mut random = Random(5);
    let mut log = Log::default();
    for trace in 0..500 {
        let mut off_ns = [0i64; 3];
        for i in 0..40 {
            let host = (i % 3) as usize;
            if random.next_u64().is_multiple_of(10) {
                off_ns[host] = [
                    0,
                    -3_600_000_000_000,
                    3_600_000_000_000,
                    100_000_000_000_000_000,
                ][(random.next_u64() % 4) as usize];
            }
            let at_ns = trace as i64 * 1_000_000_000 + i * 700_000 + off_ns[host];
            log.event(
                trace,
                ["a", "b", "c"][host],
                at_ns,
                &format!("t{}", i / 20),
                &format!("e{}", i / 4),
            );
        }
    }
    check(
        "jump.jsonl",
        &log.0,
        0,
        &["events_out_of_order", "impossible_round_trip"],
    );
}

#[test]
fn ends_that_are_missing() {
    let mut random = Random(6);
    let mut log = Log::default();
    for trace in 0..1_000 {
        for i in (0..10).filter(|_| !random.next_u64().is_multiple_of(3)) {
            let event = ["begin", "end"][(i % 2) as usize];
            log.event(
                trace,
                "h",
                trace as i64 * 1_000_000_000 + i * 7_000,
                &format!("t{}", i / 2),
                event,
            );
        }
    }
    let inferred = check("missing.jsonl", &log.0, 0, &["lone_events"]);
    assert_eq!(segments(&inferred), 5);
    // Spans of Zipkin without a duration have not ended. Spans of Jaeger without one are reported
    // and left out.
    let zipkin = |id: u64, rest: &str| {
        format!(
            "{{\"traceId\":\"a\",\"id\":\"{id:x}\",\"parentId\":\"{:x}\",\"timestamp\":100{rest}}}",
            id - 1
        )
    };
    let spans: Vec<String> = (1..=50)
        .map(|id| zipkin(id, if id % 2 == 0 { "" } else { ",\"duration\":60" }))
        .collect();
    let inferred = check("zipkin.json", &format!("[{}]", spans.join(",")), 0, &[]);
    assert_eq!(inferred["incomplete"]["unfinished"], 1);
    let jaeger = "{\"traceID\":\"a\",\"spanID\":\"1\",\"operationName\":\"x\",\"startTime\":5,\"duration\":7}\n{\"traceID\":\"a\",\"spanID\":\"2\",\"operationName\":\"x\",\"startTime\":5}\n";
    check("jaeger.json", jaeger, 1, &[]);
}
