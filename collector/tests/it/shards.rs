//! `infer --shard` and `merge`, which together print what one run of `infer` prints.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stroboscope_fixtures::random::Random;
use stroboscope_fixtures::workload;
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

use crate::common::{check, others};

/// Subcommands that shards and workers run. `infer` makes the model for the others.
pub(crate) const REPORTS: [&str; 6] = [
    "infer",
    "critical-path",
    "slack",
    "operations",
    "map",
    "anomalies",
];

const EPOCH_NS: i64 = 1_767_322_800_000_000_000;

/// Writes simulated requests to `data`, in several files.
pub(crate) fn simulated(directory: &Path, seed: u64, requests: u64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(&directory.join("data"), runtime.handle().clone()).unwrap();
    let rule = PartitionRule::received(EPOCH_NS, EPOCH_NS);
    for file in 0..workload::files(requests) {
        let rows = workload::rows(seed, requests, file);
        write_rows(&store, &format!("seg-{file:010}"), rows, &rule).unwrap();
    }
}

/// Requests of another system as OTLP: front calls back, on another host whose clock is `ahead_ns`
/// ahead. Some roots are missing, and some requests stand for several.
pub(crate) fn otlp(seed: u64, requests: u64, ahead_ns: i64) -> Value {
    let mut random = Random(seed);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for request in 0..requests {
        let trace = format!("{:016x}{:016x}", random.next_u64(), request + 1);
        let at_ns = EPOCH_NS + request as i64 * 50_000_003;
        let span = |id: u64, parent: u64, kind: u32, name: &str, from_ns: i64, to_ns: i64| {
            let mut span = json!({
                "traceId": trace, "spanId": format!("{id:016x}"), "name": name, "kind": kind,
                "startTimeUnixNano": from_ns.to_string(), "endTimeUnixNano": to_ns.to_string(),
            });
            if parent > 0 {
                span["parentSpanId"] = json!(format!("{parent:016x}"));
            }
            if request % 5 == 0 {
                span["traceState"] = json!("ot=th:8");
            }
            span
        };
        let id = request * 10 + 1;
        let way_ns = 20_001 + random.below(400_000) as i64;
        let work_ns = 50_003 + random.below(900_000) as i64;
        let back_ns = 20_001 + random.below(400_000) as i64;
        let (in_ns, out_ns) = (at_ns + 1_001 + way_ns, at_ns + 1_001 + way_ns + work_ns);
        let call = ["load", "save"][random.below(2)];
        if !random.happens(50) {
            let end_ns = out_ns + back_ns + 30_007;
            front.push(span(
                id,
                0,
                2,
                ["page", "list"][random.below(2)],
                at_ns,
                end_ns,
            ));
        }
        front.push(span(id + 1, id, 3, call, at_ns + 1_001, out_ns + back_ns));
        back.push(span(
            id + 2,
            id + 1,
            2,
            call,
            in_ns + ahead_ns,
            out_ns + ahead_ns,
        ));
    }
    let of = |service: &str, host: &str, spans: Vec<Value>| {
        let attributes = json!([
            {"key": "service.name", "value": {"stringValue": service}},
            {"key": "host.name", "value": {"stringValue": host}},
        ]);
        json!({"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]})
    };
    json!({"resourceSpans": [of("front", "a", front), of("back", "b", back)]})
}

pub(crate) fn imported(directory: &Path, otlp: &Value) {
    std::fs::write(directory.join("otlp.json"), otlp.to_string()).unwrap();
    check(directory, &["import", "otlp.json", "--data", "data"], 0);
}

/// Runs a subcommand. Returns its exit status, standard output, and standard error.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Runs all shards of `infer`, and returns the paths of their parts in another order.
pub(crate) fn parts(directory: &Path, count: usize, more: &[&str]) -> Vec<String> {
    parts_of("infer", directory, count, more)
}

/// Runs all shards of a subcommand, and returns the paths of their parts in another order.
pub(crate) fn parts_of(verb: &str, directory: &Path, count: usize, more: &[&str]) -> Vec<String> {
    let mut parts = Vec::new();
    for number in 1..=count {
        let (shard, part) = (format!("{number}/{count}"), format!("{verb}-{number}.part"));
        let asked = [verb, "--data", "data", "--shard", &shard, "--save", &part];
        let (status, out, said) = run(directory, &[&asked, more].concat());
        assert_eq!(status, Some(0), "{out}{said}");
        assert!(out.contains(&format!("Shard {number} of {count}")), "{out}");
        parts.insert(parts.len() / 2, part);
    }
    parts
}

pub(crate) fn merged(
    directory: &Path,
    parts: &[String],
    more: &[&str],
) -> (Option<i32>, String, String) {
    let parts = parts.iter().map(String::as_str);
    let asked: Vec<&str> = ["merge"].into_iter().chain(parts).collect();
    run(directory, &[&asked, more].concat())
}

/// Compares the merged result with that of one run, byte for byte.
fn check_merged(directory: &Path, counts: &[usize], more: &[&str]) {
    let one = |form: &[&str]| {
        let asked = ["infer", "--data", "data"];
        run(directory, &[&asked, more, form].concat())
    };
    let forms: [&[&str]; 3] = [&[], &["--json"], &["--save", "model.json"]];
    let expected = forms.map(one);
    for &count in counts {
        let parts = parts(directory, count, more);
        for (form, expected) in forms.iter().zip(&expected) {
            let found = merged(directory, &parts, form);
            assert!(
                found == *expected,
                "{count} {form:?}\n{found:?}\n{expected:?}"
            );
        }
    }
    let loaded = check(directory, &["model", "--load", "model.json", "--all"], 0).0;
    assert!(loaded.contains("Happens before"), "{loaded}");
}

#[test]
fn merged_shards_print_what_one_run_prints() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    simulated(at, 5, 300);
    check_merged(at, &[1, 2, 3, 7, 16], &[]);
    let more = [
        "--tolerance",
        "0.05",
        "--include-incomplete",
        "--exclude",
        "rank",
    ];
    check_merged(at, &[3], &more);
}

#[test]
fn shards_of_another_systems_requests_merge() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(3, 50, 0));
    // In the last case, there are more shards than requests.
    check_merged(at, &[1, 2, 3, 7, 60], &[]);
    check_merged(
        at,
        &[3],
        &["--root", "front:page", "--where", "{ duration > 1ms }"],
    );
    let Some(path) = others("cases/sampled-and-scopes.json") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    check(at, &["import", path.to_str().unwrap(), "--data", "data"], 0);
    check_merged(at, &[1, 2, 16], &["--include-incomplete"]);
}

/// The first traces suggest another alignment than all traces do, so the shards run twice.
#[test]
fn clocks_take_a_second_round() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(7, 700, 5_000_000));
    let (_, whole, _) = run(at, &["infer", "--data", "data"]);
    assert!(whole.contains("clocks differ"), "{whole}");
    let first = parts(at, 3, &[]);
    let (status, out, said) = merged(at, &first, &[]);
    assert_eq!((status, out.as_str()), (Some(2), ""), "{said}");
    assert!(said.contains("merge --save-clocks"), "{said}");
    let (status, out, said) = merged(at, &first, &["--save-clocks", "clocks"]);
    assert_eq!(status, Some(0), "{out}{said}");
    let second = parts(at, 5, &["--clocks", "clocks"]);
    for form in [&[][..], &["--json"]] {
        let expected = run(at, &[&["infer", "--data", "data"], form].concat());
        assert_eq!(merged(at, &second, form), expected);
    }
}

#[test]
fn damage_and_missing_results_are_reported_as_by_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for seed in [6, 7] {
        imported(at, &otlp(seed, 40, 0));
    }
    // A changed byte in the pages of a file.
    let spans = at.join("data/spans");
    let mut files: Vec<_> = walk(&spans);
    files.sort();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    std::fs::write(&files[0], bytes).unwrap();
    let expected = run(at, &["infer", "--data", "data"]);
    assert_eq!(expected.0, Some(1), "{expected:?}");
    let found = merged(at, &parts(at, 3, &[]), &[]);
    assert_eq!(found, expected);
    // No request is of that time, or of that root operation.
    for more in [["--since", "2030-01-01"], ["--root", "no:such"]] {
        let expected = run(at, &[&["infer", "--data", "data"][..], &more].concat());
        assert_eq!(expected.0, Some(2));
        assert_eq!(merged(at, &parts(at, 2, &more), &[]), expected);
    }
}

pub(crate) fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => walk(&path),
            path => vec![path],
        })
        .collect()
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    simulated(at, 5, 60);
    let check_said = |arguments: &[&str], said: &str| {
        let (out, error) = check(at, arguments, 2);
        assert!(out.is_empty() && error.contains(said), "{error}");
    };
    let infer = ["infer", "--data", "data", "--shard"];
    check_said(
        &[&infer[..], &["1/0", "--save", "p"]].concat(),
        "such as 3/16",
    );
    check_said(
        &[&infer[..], &["4/3", "--save", "p"]].concat(),
        "such as 3/16",
    );
    check_said(&[&infer[..], &["1/3"]].concat(), "--save");
    check_said(
        &[&infer[..], &["1/3", "--save", "no/such/p"]].concat(),
        "no/such/p",
    );
    let parts = parts(at, 3, &[]);
    check_said(&["merge", &parts[0], &parts[1]], "1 of 3 shards");
    check_said(&["merge", &parts[0], &parts[0]], "both shard");
    check_said(&["merge", "data"], "data");
    // Another file in the store is another snapshot.
    simulated(at, 9, 70);
    let first = "infer-1.part";
    check(at, &[&infer[..], &["1/3", "--save", first]].concat(), 0);
    check_said(&["merge", &parts[0], &parts[1], &parts[2]], "snapshots");
}
