//! Verdicts of `compare`, `experiment` and `search` as files for CI systems.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::check;

/// Imports requests of a web service as OTLP. Each runs a call for all but two ms.
pub(crate) fn import_requests(directory: &Path, data: &str, name: &str, took_ms: u64) {
    let spans = (0..120u64).flat_map(|number| {
        let from_ns = 1_700_000_000_000_000_000 + number * 1_000_000_000;
        let took_ns = took_ms * 1_000_000 + number % 7 * 100_000;
        let span = |id: u64, parent: &str, name: &str, kind: u64, inside_ns: u64| {
            json!({
                "traceId": format!("{:016x}{number:016x}", data.as_bytes()[0]),
                "spanId": format!("{id:016x}"),
                "parentSpanId": parent,
                "name": name,
                "kind": kind,
                "startTimeUnixNano": (from_ns + inside_ns).to_string(),
                "endTimeUnixNano": (from_ns + took_ns - inside_ns).to_string(),
                "attributes": [{"key": "build", "value": {"stringValue": data}}],
            })
        };
        [
            span(1, "", name, 2, 0),
            span(2, "0000000000000001", "read", 3, 1_000_000),
        ]
    });
    let service = json!({"key": "service.name", "value": {"stringValue": "web"}});
    let document = json!({"resourceSpans": [{
        "resource": {"attributes": [service]},
        "scopeSpans": [{"spans": spans.collect::<Vec<_>>()}],
    }]});
    let file = format!("{data}.json");
    fs::write(directory.join(&file), document.to_string()).unwrap();
    check(directory, &["import", "--data", data, &file], 0);
}

/// Returns the outcome and the name of each test case, after strict parsing.
fn cases(file: &Path) -> Vec<(String, String)> {
    let xml = fs::read_to_string(file).unwrap();
    let document = roxmltree::Document::parse(&xml).unwrap();
    let suite = document.root_element().first_element_child().unwrap();
    let cases = suite.children().filter(|of| of.has_tag_name("testcase"));
    let cases: Vec<_> = cases
        .map(|case| {
            let outcome = case.first_element_child();
            if let Some(outcome) = outcome {
                assert!(!outcome.attribute("message").unwrap().is_empty(), "{xml}");
                assert!(!outcome.text().unwrap().is_empty(), "{xml}");
            }
            let outcome = outcome.map_or("passed", |of| of.tag_name().name());
            let name = case.attribute("name").unwrap();
            (outcome.to_owned(), name.to_owned())
        })
        .collect();
    for (attribute, outcome) in [
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ] {
        let count = cases.iter().filter(|case| case.0 == outcome).count();
        assert_eq!(
            suite.attribute(attribute),
            Some(&*count.to_string()),
            "{xml}"
        );
    }
    assert_eq!(suite.attribute("tests"), Some(&*cases.len().to_string()));
    cases
}

const HOSTILE: &str = "]]>\"'&<b>|`\n*\u{1}\u{1b}\u{ffff}\u{202e}😀";

#[test]
fn a_verdict_is_written_for_ci() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import_requests(at, "base", HOSTILE, 10);
    import_requests(at, "slower", HOSTILE, 14);
    let compare = |data: &str, before: &str, status: i32| {
        let fixed = ["compare", "--fail-on", "worse", "--before-data", before];
        let files = ["--data", data, "--junit", "j.xml", "--markdown", "m.md"];
        check(at, &[&fixed[..], &files].concat(), status)
    };
    let said = || cases(&at.join("j.xml"));
    let one = |outcome: &str, name: &str| [(outcome.to_owned(), name.to_owned())];
    let root = "web:]]>\"'&<b>|`\u{fffd}*\u{fffd}\u{fffd}\u{fffd}\u{fffd}😀";
    compare("slower", "base", 1);
    assert_eq!(said(), one("failure", root));
    compare("base", "base", 0);
    assert_eq!(said(), one("passed", root));
    // Without a result, the files of the run before would be misleading.
    compare("base", "nothing", 2);
    assert_eq!(said(), one("error", "result"));
    let summary = fs::read_to_string(at.join("m.md")).unwrap();
    let rows: Vec<&str> = summary
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    assert_eq!(rows.len(), 9, "{summary}");
    assert!(
        rows[2].starts_with("| ❌ failed | web:\\]\\]\\>"),
        "{summary}"
    );
    assert!(rows[5].starts_with("| ✅ passed | "), "{summary}");
    assert!(rows[8].starts_with("| ❓ unknown | result | "), "{summary}");

    check(
        at,
        &["import", "--data", "both", "base.json", "slower.json"],
        0,
    );
    let experiment = |control: &str, test: &str, status: i32| {
        let sides = ["experiment", "--data", "both", "--by", "build"];
        let sides = [&sides[..], &["--control", control, "--test", test]].concat();
        let more = ["--fail-on", "unknown", "--junit", "j.xml"];
        check(at, &[&sides[..], &more].concat(), status);
    };
    experiment("base", "slower", 1);
    assert_eq!(said()[0], one("failure", "all requests")[0]);
    experiment("base", "no such", 2);
    assert_eq!(said(), one("error", "result"));
}

#[test]
fn an_assertion_is_written_for_ci() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import_requests(at, "d", "page", 10);
    let search = |formula: &str, more: &[&str], status: i32| {
        let fixed = ["search", "--data", "d", "--junit", "j.xml", "--assert"];
        check(at, &[&fixed[..], &["none", formula], more].concat(), status);
        cases(&at.join("j.xml"))
    };
    let slow = r#"{ name = "page" && duration > 5ms }"#;
    let name = format!("none of the requests: {slow}");
    assert_eq!(search(slow, &[], 1), [("failure".to_owned(), name.clone())]);
    let since = ["--since", "2024-01-01"];
    assert_eq!(search(slow, &since, 2), [("error".to_owned(), name)]);
    let fast = r#"{ name = "page" && duration > 5s }"#;
    assert_eq!(search(fast, &[], 0)[0].0, "passed");
    let (_, error) = check(at, &["search", "--data", "d", "--junit", "j.xml", "{ }"], 2);
    assert!(error.contains("need --assert"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_loses_no_report() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import_requests(at, "base", "page", 10);
    import_requests(at, "slower", "page", 14);
    let compare = |more: &[&str], status: i32| {
        let fixed = ["compare", "--before-data", "base", "--data", "slower"];
        check(
            at,
            &[&fixed[..], &["--fail-on", "worse"], more].concat(),
            status,
        )
    };
    let (expected, _) = compare(&[], 1);
    for (more, says) in [
        (&["--junit", "none/j.xml"][..], "cannot write none/j.xml: "),
        (&["--junit", "."], "cannot write .: "),
        (&["--junit", "/dev/full"], "cannot write /dev/full: "),
        (&["--markdown", "/dev/full"], "cannot append to /dev/full: "),
    ] {
        let (text, error) = compare(more, 2);
        assert_eq!(text, expected);
        assert!(error.contains(says), "{error}");
    }
    let (text, error) = compare(&["--junit", "x", "--markdown", "./x"], 2);
    assert!(
        text.is_empty() && error.contains("name two files"),
        "{error}"
    );
    assert!(!at.join("x").exists());
}
