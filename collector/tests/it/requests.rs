//! Requests of one kind, and work after their answer, for a shop whose checkouts leave work behind
//! and whose job sweeps occasionally.

use serde_json::{Value, json};

use crate::common::{check, json_of};

const CHECKOUTS: u64 = 100;
const CARTS: u64 = 20;
const SWEEPS: u64 = 10;

/// One span of Zipkin's: (id, parent, service, name, kind, from µs, to µs).
type Span<'a> = (u64, u64, &'a str, &'a str, &'a str, u64, u64);

fn spans_of(trace: u64, start_us: u64, spans: &[Span<'_>]) -> Vec<Value> {
    let span = |(id, parent, service, name, kind, from_us, to_us): &Span<'_>| {
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "id": format!("{:016x}", trace * 100 + id),
            "name": name,
            // Not in whole milliseconds, because a clock orders nothing within its resolution.
            "timestamp": start_us + 123 * trace % 997 + from_us,
            "duration": to_us - from_us,
            "localEndpoint": {"serviceName": service},
        });
        if *parent > 0 {
            span["parentId"] = json!(format!("{:016x}", trace * 100 + parent));
        }
        if !kind.is_empty() {
            span["kind"] = json!(kind);
        }
        span
    };
    spans.iter().map(span).collect()
}

/// A checkout answers after 1.92 ms; its mail continues to 3.72 ms, with an index in parallel. A
/// cart takes 0.5 ms; the last one lacks a parent. A sweep takes 400 ms, and has no caller.
pub(crate) fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut spans = Vec::new();
    for request in 1..=CHECKOUTS {
        let checkout: [Span<'_>; 5] = [
            (1, 0, "shop", "checkout", "SERVER", 0, 1_920),
            (2, 1, "shop", "charge", "", 200, 1_500),
            (3, 1, "worker", "mail", "", 1_600, 3_720),
            (4, 3, "worker", "render", "", 2_000, 2_500),
            (5, 1, "worker", "index", "", 1_700, 3_000),
        ];
        spans.extend(spans_of(request, request * 1_000_000, &checkout));
    }
    for request in 0..CARTS {
        let parent = if request + 1 == CARTS { 9 } else { 1 };
        let cart: [Span<'_>; 2] = [
            (1, 0, "shop", "cart", "SERVER", 0, 500),
            (2, parent, "shop", "price", "", 100, 400),
        ];
        spans.extend(spans_of(1_000 + request, request * 1_000_000, &cart));
    }
    for request in 0..SWEEPS {
        let sweep: [Span<'_>; 2] = [
            (1, 0, "job", "sweep", "", 0, 400_000),
            (2, 1, "db", "delete", "CLIENT", 1_000, 399_000),
        ];
        spans.extend(spans_of(2_000 + request, request * 1_000_000, &sweep));
    }
    std::fs::write(
        directory.path().join("spans.json"),
        Value::from(spans).to_string(),
    )
    .unwrap();
    check(directory.path(), &["import", "spans.json"], 0);
    directory
}

fn sum(values: &Value, keys: &[&str]) -> u64 {
    let values = values.as_array().unwrap().iter();
    values
        .map(|value| {
            keys.iter()
                .map(|key| value[key].as_u64().unwrap())
                .sum::<u64>()
        })
        .sum()
}

#[test]
fn latency_ends_with_the_answer() {
    let directory = imported();
    let found = json_of(
        directory.path(),
        &["critical-path", "--trace", "1", "--json"],
    );
    assert_eq!(
        (&found["latency_ns"], &found["critical_path_ns"]),
        (&json!(1_920_000), &json!(1_920_000))
    );
    assert_eq!(
        (&found["root"], &found["after_answer_ns"]),
        (&json!("shop:checkout"), &json!(1_800_000))
    );
    let segments = found["segments"].as_array().unwrap();
    let answer_ns = found["start_ns"].as_i64().unwrap() + 1_920_000;
    for segment in segments {
        let is_late = segment["end_ns"].as_i64().unwrap() > answer_ns;
        assert_eq!(segment["after_answer"], is_late, "{segment}");
        assert!(!is_late || segment["critical"] == false, "{segment}");
        // The answer is what made the caller wait.
        let is_answer = segment["task"] == "shop:checkout" && segment["end"] == "end";
        assert!(
            !is_answer || (segment["critical"] == true && segment["slack_ns"] == 0),
            "{segment}"
        );
    }
    let critical_ns: i64 = segments
        .iter()
        .filter(|segment| segment["critical"] == true)
        .map(|s| {
            s["end_ns"].as_i64().unwrap() - s["start_ns"].as_i64().unwrap()
                + s["wait_ns"].as_i64().unwrap()
        })
        .sum();
    assert_eq!(critical_ns, 1_920_000);
    let after = &found["after_answer"];
    assert_eq!(sum(&after["path"], &["wait_ns", "duration_ns"]), 1_800_000);
    assert_eq!(
        (&after["duration_ns"], &after["tail_wait_ns"]),
        (&json!(1_800_000), &json!(0))
    );
    let on_path =
        |step: &Value| segments[step["index"].as_u64().unwrap() as usize]["task"].to_string();
    assert!(
        after["path"]
            .as_array()
            .unwrap()
            .iter()
            .all(|step| on_path(step).contains("worker:"))
    );
    // The index ended 0.72 ms before the mail did.
    let index = segments
        .iter()
        .find(|segment| segment["task"] == "shop:checkout > worker:index")
        .unwrap();
    assert_eq!(
        (&index["after_answer"], &index["slack_ns"]),
        (&json!(true), &json!(720_000))
    );

    let (text, _) = check(directory.path(), &["critical-path", "--trace", "1"], 0);
    assert!(
        text.starts_with("Trace 00000000000000000000000000000001 of shop:checkout: 1.92ms\n"),
        "{text}"
    );
    let (tables, picture) = text.split_once("\nWhat ran when").unwrap();
    assert!(
        picture.contains("critical path") && picture.contains("│ answer"),
        "{text}"
    );
    let (request, after) = tables.split_once("\nAfter the answer").unwrap();
    assert!(
        !request.contains("worker:render") && after.contains("1.80ms more"),
        "{text}"
    );
    assert!(
        after.contains("worker:mail") && !after.contains("shop:charge"),
        "{text}"
    );

    // Slower work after the answer makes no request slower. It has no slack, because nothing waits
    // for it.
    let slower = [
        "what-if",
        "--operation",
        "worker:mail",
        "--scale",
        "10",
        "--json",
    ];
    let slower = json_of(directory.path(), &slower);
    assert_eq!(
        (&slower["faster"], &slower["slower"]),
        (&json!(0), &json!(0)),
        "{slower}"
    );
    let slack = check(directory.path(), &["slack"], 0).0;
    assert!(
        !slack.contains("worker:render") && slack.contains("shop:charge"),
        "{slack}"
    );
}

#[test]
fn a_job_is_not_in_the_users_latency() {
    let directory = imported();
    let found = json_of(directory.path(), &["infer", "--json"]);
    let names: Vec<&str> = found["roots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|root| root["root"].as_str().unwrap())
        .collect();
    // Root operations with callers come first.
    assert_eq!(names, ["shop:checkout", "shop:cart", "job:sweep"]);
    let root = |at: usize, key: &str| found["roots"][at][key].clone();
    assert_eq!(
        (
            root(0, "requests"),
            root(0, "complete"),
            root(0, "incomplete")
        ),
        (json!(100), json!(100), json!(0))
    );
    assert_eq!(
        (
            root(1, "requests"),
            root(1, "complete"),
            root(1, "incomplete")
        ),
        (json!(20), json!(19), json!(1))
    );
    assert_eq!(
        (
            root(0, "after_answer_requests"),
            root(1, "after_answer_requests")
        ),
        (json!(100), json!(0))
    );
    assert_eq!(
        (root(1, "with_caller"), root(2, "with_caller")),
        (json!(20), json!(0))
    );
    assert_eq!(found["roots"][0]["latency"]["max_ns"], 1_920_000);
    assert!(found["roots"][2]["share_of_time"].as_f64().unwrap() > 0.9);
    let (text, _) = check(directory.path(), &["infer"], 0);
    assert!(text.starts_with("Requests by root operation\n"), "{text}");

    let paths = json_of(directory.path(), &["critical-path", "--json"]);
    let mut roots = found["roots"].clone();
    // `infer` reads no attributes.
    let each = roots.as_array_mut().unwrap().iter_mut();
    each.for_each(|root| root["failed"] = json!(0));
    assert_eq!(
        (&paths["used_traces"], &paths["latency_of"]),
        (&json!(129), &json!("requests with a caller"))
    );
    assert_eq!(
        (&paths["latency"]["max_ns"], &paths["roots"]),
        (&json!(1_920_000), &roots)
    );
    let (text, _) = check(directory.path(), &["critical-path"], 0);
    assert!(
        text.starts_with("129 requests; latency of requests with a caller p50 1.92ms"),
        "{text}"
    );

    // One kind at a time.
    let sweeps = json_of(
        directory.path(),
        &["critical-path", "--root", "job:sweep", "--json"],
    );
    assert_eq!(
        (&sweeps["used_traces"], &sweeps["latency_of"]),
        (&json!(SWEEPS), &json!("all requests"))
    );
    assert_eq!(
        (&sweeps["latency"]["max_ns"], &sweeps["traces"]),
        (&json!(400_000_000), &json!(SWEEPS))
    );
    assert_eq!(sweeps["roots"].as_array().unwrap().len(), 1);
    let carts = json_of(
        directory.path(),
        &["infer", "--root", "shop:cart", "--json"],
    );
    assert_eq!(
        (&carts["traces"], &carts["complete_traces"]),
        (&json!(20), &json!(19))
    );
    assert!(
        carts["segments"]
            .as_array()
            .unwrap()
            .iter()
            .all(|s| s["task"].as_str().unwrap().starts_with("shop:cart"))
    );
    let filtered = [
        "slack",
        "--root",
        "shop:cart",
        "--where",
        r#"{ name = "none" }"#,
    ];
    let (_, error) = check(directory.path(), &filtered, 2);
    let named =
        r#"no request that satisfies --where '{ name = "none" }' has the root operation shop:cart"#;
    assert!(error.contains(named), "{error}");
    let (_, error) = check(directory.path(), &["slack", "--root", "shop:nosuch"], 2);
    assert!(
        error.contains("shop:nosuch") && error.contains("there are: shop:checkout, shop:cart"),
        "{error}"
    );

    // A request is slow compared with its root operation: a sweep is slower than every checkout.
    let slow = json_of(directory.path(), &["anomalies", "--json"]);
    assert_eq!(slow["outliers"], 0, "{slow}");
    assert_eq!(slow["thresholds_ns"].as_object().unwrap().len(), 3);
}

#[test]
fn the_page_starts_with_root_operations() {
    let directory = imported();
    let arguments = ["report", "--html", "page.html", "--json"];
    let found = json_of(directory.path(), &arguments);
    assert_eq!(found["roots"][0]["root"], "shop:checkout");
    let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("Requests by root operation") < at("Latency and slack"));
    assert!(
        page.contains("job:sweep") && page.contains("is of requests with a caller"),
        "the headline says what it is of"
    );
    // The example request shows where its answer was.
    assert!(
        page.contains(">\nanswer\n<") || page.contains(">answer<"),
        "no answer is marked"
    );
}

#[test]
fn an_operation_of_reports_finds_names_with_ids() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["GET /users/41", "GET /users/42", "cart"];
    let spans = (1..).zip(names).flat_map(|(trace, name)| {
        let span = (1, 0, "shop", name, "SERVER", 0, 500);
        spans_of(trace, trace * 1_000_000, &[span])
    });
    let spans = Value::from(spans.collect::<Vec<_>>()).to_string();
    std::fs::write(directory.path().join("spans.json"), spans).unwrap();
    check(directory.path(), &["import", "spans.json"], 0);
    for (operation, matched) in [("shop:GET /users/*", 2), ("GET /users/42", 1)] {
        let arguments = ["requests", "--operation", operation, "--json"];
        let found = json_of(directory.path(), &arguments);
        assert_eq!(found["matched"], matched, "{operation}: {found}");
    }
}

#[test]
fn shares_are_of_one_kind_of_requests() {
    let directory = imported();
    let found = json_of(directory.path(), &["critical-path", "--json"]);
    let of_root = |root: &str, operation: &str| {
        let roots = found["operations_by_root"].as_array().unwrap();
        let of = roots.iter().find(|of| of["root"] == root).unwrap();
        let operations = of["operations"].as_array().unwrap().iter();
        operations
            .filter(|one| one["operation"] == operation)
            .map(|one| one["mean_share"].as_f64().unwrap())
            .sum::<f64>()
    };
    // The shares are 0.3 ms of 0.5 and 398 ms of 400. In one table, the number of requests of each
    // root operation would weigh them.
    assert!(
        (of_root("shop:cart", "shop:price") - 0.6).abs() < 1e-6,
        "{found:#}"
    );
    assert!(
        (of_root("job:sweep", "db:delete") - 0.995).abs() < 1e-6,
        "{found:#}"
    );
    assert_eq!(of_root("shop:checkout", "db:delete"), 0.0);
    let alone = json_of(
        directory.path(),
        &["critical-path", "--json", "--root", "job:sweep"],
    );
    assert_eq!(alone["operations_by_root"].as_array().unwrap().len(), 1);
    assert_eq!(
        alone["operations_by_root"][0]["operations"],
        found["operations_by_root"][2]["operations"]
    );
    let text = check(directory.path(), &["critical-path"], 0).0;
    for expected in [
        "path, of shop:checkout, by operation",
        "path, of job:sweep, by operation",
        "--root NAME selects one",
    ] {
        assert!(text.contains(expected), "no {expected:?}: {text}");
    }
    let text = check(
        directory.path(),
        &["critical-path", "--root", "job:sweep"],
        0,
    )
    .0;
    assert!(
        text.contains("Critical path, by operation") && !text.contains("--root"),
        "{text}"
    );

    let change = [
        "what-if",
        "--operation",
        "db:delete",
        "--scale",
        "0",
        "--json",
    ];
    let changed = json_of(directory.path(), &change);
    let roots: Vec<_> = changed["by_root"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (&of["root"], &of["faster"]))
        .collect();
    let expected = [
        ("shop:checkout", 0),
        ("shop:cart", 0),
        ("job:sweep", SWEEPS),
    ]
    .map(|(root, faster)| (json!(root), json!(faster)));
    assert_eq!(
        roots,
        expected
            .iter()
            .map(|(root, faster)| (root, faster))
            .collect::<Vec<_>>()
    );
    let text = check(directory.path(), &change[..5], 0).0;
    assert!(
        text.contains("Requests of each kind by themselves") && text.contains("400ms"),
        "{text}"
    );
}

#[test]
fn an_operation_that_is_not_there_is_told_with_the_nearest() {
    let directory = imported();
    let (_, error) = check(
        directory.path(),
        &["what-if", "--operation", "shop:charg", "--scale", "0.5"],
        2,
    );
    assert!(
        error.contains("no segment is of the operation shop:charg (is it shop:charge?)"),
        "{error}"
    );
    let (_, error) = check(
        directory.path(),
        &["what-if", "--operation", "zzz", "--scale", "0.5"],
        2,
    );
    assert!(
        error.contains("no segment is of the operation zzz; `"),
        "{error}"
    );
}

#[test]
fn a_list_counts_the_incomplete_requests_that_it_omits() {
    let directory = imported();
    let carts = ["requests", "--root", "shop:cart"];
    let (text, _) = check(directory.path(), &carts, 0);
    let omitted = "1 incomplete request is omitted";
    assert!(text.contains("19 of 19 requests."), "{text}");
    assert!(text.contains(omitted), "{text}");
    let all = [&carts[..], &["--include-incomplete"]].concat();
    let (text, _) = check(directory.path(), &all, 0);
    assert!(text.contains("20 of 20 requests."), "{text}");
    assert!(!text.contains(omitted), "{text}");
}

/// Checks that the critical path of one incomplete request has the same notes as the aggregate.
#[test]
fn one_request_has_the_notes_of_its_reading() {
    let directory = imported();
    let lacking = format!("{:x}", 1_000 + CARTS - 1);
    let arguments = ["critical-path", "--trace", &lacking];
    let (_, errors) = check(directory.path(), &arguments, 0);
    assert!(
        errors.contains("1 of 1 trace is incomplete (missing_parent 1)")
            && errors.contains("1 time in the traces used: missing_parent ("),
        "{errors}"
    );
    let found = json_of(
        directory.path(),
        &["critical-path", "--trace", &lacking, "--json"],
    );
    let expected = json!({"missing_parent": 1});
    assert_eq!(
        (&found["traces"], &found["complete_traces"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        (&found["incomplete"], &found["diagnostics"]),
        (&expected, &expected)
    );
    let arguments = ["critical-path", "--include-incomplete", "--json"];
    let found = json_of(directory.path(), &arguments);
    assert_eq!(found["diagnostics"], expected, "{found}");
}
