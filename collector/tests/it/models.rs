//! Models in files, of ranges, merged and compared, by the command line.

use serde_json::{Value, json};

use crate::common::{check, json_of};
use crate::requests;

/// Imports requests 0 to 9, one a second: a server (0 to 100 µs), then a page (100 to 200 µs). From
/// request 5 on, the page starts 10 µs before the server ends, and a cache (250 to 260 µs) is new.
fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for request in 0..10_u64 {
        let is_late = request >= 5;
        let mut events = vec![
            (0, "server", "begin"),
            (100, "server", "sent"),
            (if is_late { 90 } else { 100 }, "page", "begin"),
            (200, "page", "shown"),
        ];
        if is_late {
            events.extend([(250, "cache", "ask"), (260, "cache", "answer")]);
        }
        for (at_us, task, event) in events {
            // Most times are not whole microseconds, because a clock of whole microseconds would
            // order nothing within one.
            let ts_ns = request * 1_000_000_007 + at_us * 1_000;
            log += &format!(
                r#"{{"trace":"r{request}","host":"h","ts_ns":{ts_ns},"event":"{event}","task":"{task}"}}"#
            );
            log.push('\n');
        }
    }
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(directory.path(), &["import", "log.jsonl"], 0);
    directory
}

/// Keeps the keys that define a model, without notes about its computation.
fn essence(mut model: Value) -> Value {
    let keys = model.as_object_mut().unwrap();
    keys.retain(|key, _| {
        [
            "model_traces",
            "segments",
            "happens_before",
            "mutual_exclusion",
            "pipelines",
        ]
        .contains(&&**key)
    });
    model
}

#[test]
fn a_saved_model_is_the_model() {
    let directory = imported();
    let at = directory.path();
    check(at, &["infer", "--save", "all.json"], 0);
    let whole = essence(json_of(at, &["model", "--json"]));
    assert_eq!(whole["model_traces"], 10);
    assert_eq!(
        essence(json_of(
            at,
            &["model", "--json", "--load", "all.json", "--data", "nowhere"]
        )),
        whole
    );
    // The file does not state how many of its traces were complete.
    let loaded = json_of(at, &["model", "--json", "--load", "all.json"]);
    assert_eq!(loaded["traces"], 10);
    assert_eq!(loaded.get("complete_traces"), Some(&Value::Null));
    assert!(json_of(at, &["model", "--json"])["complete_traces"].is_u64());
    let (text, _) = check(at, &["model", "--load", "all.json"], 0);
    assert!(text.contains("complete is unknown"), "{text}");
    // The halves merge to the whole.
    let half = "1970-01-01T00:00:05Z";
    check(
        at,
        &["model", "--until", half, "--save", "early.json.zst"],
        0,
    );
    assert_eq!(
        json_of(at, &["model", "--json", "--load", "early.json.zst"])["model_traces"],
        5
    );
    let merged = [
        "model",
        "--json",
        "--since",
        half,
        "--merge",
        "early.json.zst",
    ];
    assert_eq!(essence(json_of(at, &merged)), whole);
    let (_, error) = check(at, &["infer", "--since", "1980-01-01T00:00:00Z"], 2);
    assert!(error.contains("--since"), "{error}");
}

#[test]
fn comparing_shows_what_changed() {
    let directory = imported();
    let at = directory.path();
    let half = "1970-01-01T00:00:05Z";
    check(at, &["infer", "--until", half, "--save", "early.json"], 0);
    let by_file = json_of(
        at,
        &[
            "model",
            "--json",
            "--since",
            half,
            "--compare",
            "early.json",
        ],
    );
    let by_range = json_of(
        at,
        &[
            "model",
            "--json",
            "--since",
            half,
            "--compare",
            "..1970-01-01T00:00:05Z",
        ],
    );
    assert_eq!(by_file, by_range);
    assert_eq!(
        (&by_file["before"]["traces"], &by_file["after"]["traces"]),
        (&json!(5), &json!(5))
    );
    assert_eq!(by_file["gained"], json!([]));
    let lost = by_file["lost"].as_array().unwrap();
    assert_eq!(lost.len(), 1, "{by_file}");
    assert_eq!(
        (
            &lost[0]["kind"],
            &lost[0]["first"]["task"],
            &lost[0]["second"]["task"]
        ),
        (&json!("happens_before"), &json!("server"), &json!("page"))
    );
    assert_eq!(lost[0]["after"], json!({"traces": 5, "contradictions": 5}));
    let appeared = by_file["appeared"].as_array().unwrap();
    assert_eq!(
        (appeared.len(), &appeared[0]["task"]),
        (1, &json!("cache")),
        "{by_file}"
    );
    assert_eq!(
        (&appeared[0]["traces_before"], &appeared[0]["traces_after"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(by_file["vanished"], json!([]));
    let (text, _) = check(
        at,
        &["model", "--since", half, "--compare", "early.json"],
        0,
    );
    assert!(
        text.contains("server [begin … sent] → page [begin … shown]"),
        "{text}"
    );
    let strict = [
        "model",
        "--since",
        half,
        "--compare",
        "early.json",
        "--false-discoveries",
        "0.001",
    ];
    let (text, _) = check(at, &strict, 0);
    assert!(
        text.contains("contradicted now (0; 1 more are within the sampling error)"),
        "{text}"
    );
    let (_, error) = check(at, &["model", "--compare", "gone.json"], 2);
    assert!(error.contains("gone.json"), "{error}");
    let (_, error) = check(at, &["model", "--compare", "x..y"], 2);
    assert!(error.contains("x..y"), "{error}");
    let (_, error) = check(
        at,
        &["model", "--compare", "1970-01-02..1970-01-01T12:00"],
        2,
    );
    assert!(
        error.contains("1970-01-02T00:00:00Z is not before 1970-01-01T12:00:00Z"),
        "{error}"
    );
    let (_, error) = check(
        at,
        &["infer", "--since", "1970-01-02", "--until", "1970-01-01"],
        2,
    );
    assert!(
        error.contains("--since must be before --until") && error.contains("swap them"),
        "{error}"
    );
}

#[test]
fn the_convergence_is_shown_as_often_as_asked_for() {
    let directory = imported();
    let (text, _) = check(directory.path(), &["infer", "--convergence-every", "4"], 0);
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("new per 1000"))
        .skip(1)
        .take(3)
        .collect();
    let traces: Vec<&str> = rows
        .iter()
        .map(|row| row.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(traces, ["4", "8", "10"], "{text}");
    let found = json_of(
        directory.path(),
        &["infer", "--json", "--convergence-every", "1"],
    );
    let points = found["convergence"].as_array().unwrap();
    assert_eq!(points.len(), 10);
    let sum = |key: &str| {
        points
            .iter()
            .map(|point| point[key].as_i64().unwrap())
            .sum::<i64>()
    };
    assert_eq!(
        sum("happens_before_added") - sum("happens_before_removed"),
        points[9]["happens_before"].as_i64().unwrap()
    );
    assert_eq!(
        json_of(directory.path(), &["infer", "--json"])["convergence"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_focus_is_an_operation_with_what_is_right_before_and_after_it() {
    let directory = requests::imported();
    let at = directory.path();
    let around = |found: &Value| {
        let side = |side: &str| -> Vec<Value> {
            let rows = found["focus"][side].as_array().unwrap().iter();
            rows.map(|row| json!([row["operation"], row["traces"], row["share"]]))
                .collect()
        };
        (side("before"), side("after"))
    };
    let found = json_of(at, &["model", "--focus", "shop:charge", "--json"]);
    assert_eq!(found["focus"]["operation"], "shop:charge");
    let checkout = vec![json!(["shop:checkout", 100, 1.0])];
    assert_eq!(around(&found), (checkout.clone(), checkout));
    // Without `--focus`, the operation that requests wait for most is in focus.
    let found = json_of(at, &["model", "--json"]);
    assert_eq!(found["focus"]["operation"], "db:delete");
    assert_eq!(found["operations"][0]["operation"], "db:delete");
    let sweep = vec![json!(["job:sweep", 10, 1.0])];
    assert_eq!(around(&found), (sweep.clone(), sweep));
    let whole = json_of(at, &["model", "--all", "--json"]);
    assert_eq!(whole["focus"], Value::Null);
    assert_eq!(whole["happens_before"], found["happens_before"]);
    let (text, _) = check(at, &["model"], 0);
    assert!(text.contains("Right before db:delete\n"), "{text}");
    assert!(text.contains("All 9 operations: `"), "{text}");
    let (text, _) = check(at, &["model", "--all"], 0);
    assert!(text.contains("Happens before; "), "{text}");
    // A saved model has no critical paths: the operation in most requests is in focus.
    check(at, &["model", "--all", "--save", "all.json"], 0);
    let loaded = json_of(at, &["model", "--load", "all.json", "--json"]);
    assert_eq!(loaded["focus"]["operation"], "shop:charge");
    let (_, error) = check(at, &["model", "--focus", "shop:chrage"], 2);
    assert!(
        error.contains("no segment is of the operation shop:chrage (is it shop:charge?)"),
        "{error}"
    );
}
