//! Searches find kernel events as often as the recording has them: one by strace, of a program that
//! runs during the test.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{check, json_of};

/// A system call of a request.
struct Call {
    name: String,
    result: i64,
    took_s: f64,
}

/// Calls of one request in strace's text, and the number of its waits for locks.
#[derive(Default)]
struct Requested {
    calls: Vec<Call>,
    lock_waits: usize,
}

impl Requested {
    fn count(&self, name: &str) -> usize {
        self.calls.iter().filter(|call| call.name == name).count()
    }

    fn any(&self, holds: impl Fn(&Call) -> bool) -> bool {
        self.calls.iter().any(holds)
    }
}

/// Runs the program under strace. Returns false if that fails.
fn record(directory: &Path) -> bool {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/search_kernel.py");
    let strace = Command::new("strace")
        .args(["-f", "-ttt", "-T", "-o", "calls.txt", "python3", program])
        .current_dir(directory)
        .output();
    let is_done = strace.as_ref().is_ok_and(|output| output.status.success());
    if !is_done {
        eprintln!("SKIPPED: what_strace_recorded_is_found: no strace of python3 here: {strace:?}");
    }
    is_done
}

/// The requests of strace's text, read without any of the program's code.
fn requests(text: &str) -> BTreeMap<String, Requested> {
    let mut requests: BTreeMap<String, Requested> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some((_, said)) = line.split_once("\"STROBE ") {
            let words: Vec<&str> = said.split([' ', '"']).collect();
            match words[0] {
                "1" => current = Some(words[1].to_owned()),
                "2" => current = None,
                "5" => requests.entry(words[1].to_owned()).or_default().lock_waits += 1,
                _ => {}
            }
            continue;
        }
        let (Some(request), Some((call, end))) = (&current, line.rsplit_once(" = ")) else {
            continue;
        };
        let name = call
            .split('(')
            .next()
            .and_then(|name| name.split(' ').next_back());
        let (_, took) = end.rsplit_once('<').expect("how long it took");
        let number = end.split(' ').next().expect("a result");
        requests
            .entry(request.clone())
            .or_default()
            .calls
            .push(Call {
                name: name.expect("a name").to_owned(),
                result: number.parse().unwrap_or(-1),
                took_s: took.trim_end_matches('>').parse().expect("seconds"),
            });
    }
    requests
}

/// A formula, and its expected result for a request.
type Said = (&'static str, fn(&Requested) -> bool);

#[test]
fn what_strace_recorded_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    if !record(at) {
        return;
    }
    let _ = check(at, &["import", "spans.json"], 0);
    let (said, _) = check(at, &["import", "calls.txt"], 0);
    assert!(said.contains("events"), "{said}");
    let text = std::fs::read_to_string(at.join("calls.txt")).expect("text");
    let requests = requests(&text);
    assert_eq!(requests.len(), 24);
    let formulas: [Said; 7] = [
        (r#"{ kernel = syscall && name = "getppid" }"#, |of| {
            of.count("getppid") > 0
        }),
        (
            r#"{ kernel = syscall && name = "getppid" } | count() > 2"#,
            |of| of.count("getppid") > 2,
        ),
        (
            r#"at least 2 of { kernel = syscall && name = "getppid" } within 10s"#,
            |of| of.count("getppid") >= 2,
        ),
        (
            r#"{ kernel = syscall && name =~ ".*nanosleep|.*select.*" && duration > 3ms }"#,
            |of| {
                of.any(|call| {
                    (call.name.ends_with("nanosleep") || call.name.contains("select"))
                        && call.took_s > 0.003
                })
            },
        ),
        (
            r#"{ name = "request" } >> { kernel = syscall && name = "write" && .result > 10 }"#,
            |of| of.any(|call| call.name == "write" && call.result > 10),
        ),
        (
            r#"{ kernel = syscall && name = "getppid" } then { kernel = syscall && name = "write" && .result > 20 }"#,
            |of| of.count("getppid") > 0 && of.any(|call| call.name == "write" && call.result > 20),
        ),
        (r#"{ kernel = lock_wait && name = "lock" }"#, |of| {
            of.lock_waits > 0
        }),
    ];
    for (formula, holds) in formulas {
        let expected: Vec<&String> = requests
            .iter()
            .filter(|(_, of)| holds(of))
            .map(|(trace, _)| trace)
            .collect();
        assert!((2..24).contains(&expected.len()), "{formula}: {expected:?}");
        let found = json_of(at, &["search", formula, "--json", "--top", "100"]);
        let listed = found["requests"].as_array().expect("requests").iter();
        let mut traces: Vec<&str> = listed
            .filter(|request| request["sure"] == true)
            .map(|request| request["trace"].as_str().expect("an id"))
            .map(|trace| trace.trim_start_matches('0'))
            .collect();
        traces.sort_unstable();
        assert_eq!(traces, expected, "{formula}");
        assert_eq!(found["matched"].as_u64(), Some(expected.len() as u64));
        println!(
            "{formula}: {} of {} requests",
            expected.len(),
            requests.len()
        );
    }
}
