//! `search` over a store, and requests selected by a formula for other verbs.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{check, json_of};

/// Span of a page: id, parent, service, name, start and end in ms, and the attribute `block`.
type Span = (u64, u64, &'static str, &'static str, u64, u64, u64);

/// Three pages: one reads a block again, one reads two, and one is slow.
fn store(directory: &Path) {
    let pages: [&[Span]; 3] = [
        &[
            (1, 0, "web", "page", 0, 20, 0),
            (2, 1, "store", "read", 1, 3, 7),
            (3, 1, "store", "read", 5, 6, 7),
        ],
        &[
            (1, 0, "web", "page", 0, 20, 0),
            (2, 1, "store", "read", 1, 3, 7),
            (3, 1, "store", "read", 5, 6, 8),
        ],
        &[
            (1, 0, "web", "page", 0, 90, 0),
            (2, 1, "store", "read", 1, 80, 9),
            // Its parent was not recorded.
            (3, 77, "store", "write", 81, 82, 9),
        ],
    ];
    let mut by_service: Vec<Value> = Vec::new();
    for (trace, spans) in pages.iter().enumerate() {
        let start_ns = 1_700_000_000_000_000_000 + trace as u64 * 1_000_000_000;
        for (id, parent, service, name, from, to, block) in *spans {
            let span = json!({
                "traceId": format!("{:032x}", trace + 1),
                "spanId": format!("{id:016x}"),
                "parentSpanId": if *parent == 0 { String::new() } else { format!("{parent:016x}") },
                "name": name,
                "kind": 2,
                "startTimeUnixNano": (start_ns + from * 1_000_000).to_string(),
                "endTimeUnixNano": (start_ns + to * 1_000_000).to_string(),
                "attributes": [{"key": "block", "value": {"intValue": block.to_string()}}],
            });
            by_service.push(json!({
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
                "scopeSpans": [{"spans": [span]}],
            }));
        }
    }
    let all = json!({"resourceSpans": by_service});
    std::fs::write(directory.join("spans.json"), all.to_string()).expect("written");
    check(directory, &["import", "spans.json"], 0);
}

fn traces(found: &Value) -> Vec<(&str, bool)> {
    let requests = found["requests"].as_array().expect("requests").iter();
    requests
        .map(|request| {
            let trace = request["trace"].as_str().expect("an id");
            (&trace[31..], request["sure"] == true)
        })
        .collect()
}

#[test]
fn requests_are_found_with_the_spans_by_which() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let again = r#"{ name = "read" } then { name = "read" } with the same .block within 5ms"#;
    let found = json_of(at, &["search", again, "--json"]);
    // Any part of the third request may be missing.
    assert_eq!(traces(&found), [("1", true), ("3", false)], "{found}");
    let counts = ["searched", "matched", "unknown"].map(|key| found[key].as_u64());
    assert_eq!(counts, [Some(3), Some(1), Some(1)]);
    let witness = json!(["0000000000000002", "0000000000000003"]);
    assert_eq!(found["requests"][0]["witness"], witness);

    let (text, _) = check(at, &["search", again], 0);
    assert!(
        text.contains("1 of 3 requests") && text.contains("store:read 2.00ms, +4.00ms store:read"),
        "{text}"
    );
    let slow = r#"{ service = "store" && duration > 50ms }"#;
    let found = json_of(at, &["search", slow, "--json", "--top", "0"]);
    assert_eq!(
        (found["matched"].as_u64(), traces(&found).len()),
        (Some(1), 0)
    );
}

/// Exit statuses for pipelines. The last of the three requests may lack spans.
#[test]
fn a_pipeline_fails_on_a_counterexample() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let asserted = |quantifier: &str, formula: &str, more: &[&str], status: i32| {
        let arguments = ["search", "--assert", quantifier, formula];
        let (text, _) = check(at, &[&arguments[..], more].concat(), status);
        text.lines().last().unwrap_or_default().to_owned()
    };
    let first_two = ["--until", "2023-11-14T22:13:22"];
    let slow = r#"{ name = "read" && duration > 50ms }"#;
    let never_slow = format!("never {slow}");
    for (quantifier, formula) in [("none", slow), ("all", &never_slow)] {
        let said = asserted(quantifier, formula, &[], 1);
        let does = ["holds", "does not hold"][usize::from(quantifier == "all")];
        let expected = format!(
            "Violated: the formula {does} for 1 of 3 requests, first for {:032x} web:page.",
            3
        );
        assert_eq!(said, expected);
        let said = asserted(quantifier, formula, &first_two, 0);
        assert_eq!(said, format!("Holds for {quantifier} of 2 requests."));
        let arguments = ["search", "--json", "--assert", quantifier, formula];
        for top in ["0", "1"] {
            let (text, _) = check(at, &[&arguments[..], &["--top", top]].concat(), 1);
            let found: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(found["assertion"]["verdict"], "violated", "{found}");
            let requests = found["requests"].as_array().expect("requests");
            assert_eq!(requests.len().to_string(), top, "{found}");
            for request in requests {
                assert_eq!(request["witness"], json!(["0000000000000002"]));
            }
            let matched = if quantifier == "all" { 2 } else { 1 };
            assert_eq!(found["matched"], matched, "{found}");
        }
    }
    let unknown = "Unknown: the result is unknown for 1 request, first for ";
    let nothing = r#"{ name = "nothing" }"#;
    assert!(asserted("none", nothing, &[], 2).starts_with(unknown));
    asserted("none", nothing, &["--read-all"], 2);
    asserted("all", nothing, &first_two, 1);
    let late = ["--since", "2024-01-01"];
    let said = asserted("all", "{ }", &late, 2);
    assert_eq!(said, "Unknown: no request was searched.");
    asserted("none", "{ }", &late, 2);
    check(at, &["search", "--assert", "some", "{ }"], 2);
}

#[test]
fn any_verb_takes_requests_by_formula() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let count = |formula: &str| {
        let arguments = [
            "critical-path",
            "--json",
            "--include-incomplete",
            "--where",
            formula,
        ];
        json_of(at, &arguments)["traces"].as_u64()
    };
    // The second time, results are cached by the formula.
    for _ in 0..2 {
        assert_eq!(count(r#"{ name = "page" && duration < 50ms }"#), Some(2));
        assert_eq!(count(r#"{ .block = 7 } | count() = 2"#), Some(1));
    }
    let nothing = ["slack", "--where", r#"{ name = "nothing" }"#];
    let (_, said) = check(at, &nothing, 2);
    assert!(!said.is_empty());
}

#[test]
fn what_cannot_be_searched_for_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let (_, said) = check(at, &["search", "{ name = read }"], 2);
    for part in ["column 10", "quotes: \"read\"", "         ^"] {
        assert!(said.contains(part), "{said} lacks {part}");
    }
    let (_, said) = check(
        at,
        &["slack", "--where", "{ name = \"read\" } after { }"],
        2,
    );
    assert!(
        said.contains("column 19") && said.contains("`then`"),
        "{said}"
    );
    let (said, _) = check(at, &["search", "{ .blok = 7 && kind = server }"], 0);
    assert!(said.contains("attribute .blok"), "{said}");
    let found = json_of(at, &["search", "{ .block = 7 }", "--json"]);
    assert_eq!(found["absent_attributes"], json!([]));
    let (_, said) = check(at, &["search", "--bursts", "{ }"], 2);
    assert!(said.contains("without --bursts"), "{said}");
}

/// Searches return the same with and without skipping, for formulas with and without necessary
/// conditions.
#[test]
fn what_is_skipped_changes_no_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let mut skipped = 0;
    for formula in [
        r#"{ name = "read" && .block = 8 }"#,
        r#"{ name = "read" && .block > 8 }"#,
        r#"{ name = "nothing" }"#,
        r#"{ name = "page" && duration > 50ms }"#,
        r#"{ service =~ "st.*" && .block = 8 } or { name = "write" }"#,
        r#"never { name = "write" }"#,
        r#"{ .none != nil } and { name = "read" }"#,
        r#"{ name = "read" } then { name = "read" } with the same .block within 5ms"#,
    ] {
        let found = |more: &[&str]| {
            let arguments = [&["search", formula, "--json", "--explain"], more].concat();
            let mut found = json_of(at, &arguments);
            let plan = found["plan"].take();
            (found, plan)
        };
        let (read, plan) = found(&[]);
        let (all, without) = found(&["--read-all"]);
        assert_eq!(read, all, "{formula}");
        assert_eq!(without["all_because"], "it was asked for");
        skipped += u64::from(plan["all_because"].is_null());
        if formula.starts_with("never") {
            assert!(!plan["all_because"].is_null(), "{plan}");
        }
    }
    assert!(skipped >= 3, "hardly anything was skipped: {skipped}");
    let nothing = ["search", r#"{ name = "nothing" }"#, "--explain"];
    let (said, _) = check(at, &nothing, 0);
    for part in [
        "Data read",
        r#"{ name = "nothing" }"#,
        "1 of 1 file",
        "Traces read: 1 (maybe with such spans: 0, incomplete: 1); requests in all: 3.",
    ] {
        assert!(said.contains(part), "{said} lacks {part}");
    }
    let (said, _) = check(at, &["search", "never { }", "--explain"], 0);
    assert!(said.contains("All requests were read"), "{said}");
}

#[test]
fn a_formula_for_each_side_is_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let slow = r#"{ name = "page" && duration > 50ms }"#;
    let count = |more: &[&str]| {
        let arguments = [&["compare", "--json", "--include-incomplete"], more].concat();
        let found = json_of(at, &arguments);
        ["before", "after"].map(|side| found[side]["requests"].as_u64())
    };
    assert_eq!(count(&["--after-where", slow]), [Some(2), Some(1)]);
    assert_eq!(count(&["--before-where", slow]), [Some(1), Some(2)]);
    // The other side gets the other requests, also where either side has a time or a directory.
    for period in [
        ["--before", "2023-11-14..2023-11-15"],
        ["--after", "2023-11-14..2023-11-15"],
        ["--before-data", "stroboscope-data"],
    ] {
        let with = |side| count(&[&period[..], &[side, slow]].concat());
        assert_eq!(with("--after-where"), [Some(2), Some(1)], "{period:?}");
        assert_eq!(with("--before-where"), [Some(1), Some(2)], "{period:?}");
    }
    let again = r#"{ .block = 7 } | count() = 2"#;
    let both = ["--before-where", again, "--after-where", slow];
    assert_eq!(count(&both), [Some(1), Some(1)]);
}

#[test]
fn without_a_recording_of_the_kernel_its_events_are_not_searched() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    store(at);
    let call = r#"{ kernel = syscall && name = "read" && duration > 1ms }"#;
    let (_, said) = check(at, &["search", call], 2);
    assert!(said.contains("kernel record"), "{said}");
}
