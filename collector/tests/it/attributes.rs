//! Uses of attributes: strata, categories, and keys that predict slack.

use serde_json::{Value, json};
use stroboscope_query::{
    BreakdownQuestion, CategoryChoice, CategoryRule, InferSettings, OverviewQuestion, PartsWanted,
    PredictSettings, Selection, Source, StrataRule, Study, check_slack,
};

use crate::common::{check, json_of};

const REQUESTS: u64 = 400;

/// A server (1000 to 1999 µs) and a script (500 µs, or 4000 µs for users of slow devices), then a
/// page (200 µs) that needs both. So the server has slack only for users of slow devices. Requests
/// record user, browser (which is uninformative), size (the server's time), and their own number.
pub(crate) fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    let mut random = 7_u64;
    for request in 0..REQUESTS {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (user, browser, server_us) = (
            (random >> 33) % 20,
            (random >> 40) % 2,
            1_000 + (random >> 45) % 1_000,
        );
        let browser = if browser == 0 { "hare" } else { "tortoise" };
        let script_us = if user < 10 { 4_000 } else { 500 };
        let ready_us = server_us.max(script_us);
        let says = json!({
            "layer": "backend", "user": user, "browser": browser, "size": server_us,
            "number": request,
        });
        for (at_us, task, event, attrs) in [
            (0, "server", "begin", says),
            (server_us, "server", "sent", json!({})),
            (0, "script", "begin", json!({"layer": "browser"})),
            (script_us, "script", "ran", json!({})),
            (ready_us, "page", "begin", json!({"layer": "browser"})),
            (ready_us + 200, "page", "shown", json!({})),
        ] {
            let ts_ns = (request * 10_000 + at_us) * 1_000;
            let line = json!({
                "trace": format!("r{request}"), "host": "h", "ts_ns": ts_ns, "event": event, "task": task,
                "attrs": attrs,
            });
            log += &format!("{line}\n");
        }
    }
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(directory.path(), &["import", "log.jsonl"], 0);
    directory
}

const SERVER: [&str; 4] = ["--category-by", "layer", "--server", "backend"];

#[test]
fn the_user_foretells_slack_and_the_browser_does_not() {
    let directory = imported();
    let found = json_of(
        directory.path(),
        &[&["predict", "--json"][..], &SERVER].concat(),
    );
    let attributes = found["attributes"].as_array().unwrap();
    let order: Vec<&str> = attributes
        .iter()
        .map(|a| a["attribute"].as_str().unwrap())
        .collect();
    assert_eq!(order[0], "user", "{found}");
    assert_eq!(found["used_traces"], REQUESTS);
    let of = |name: &str| attributes.iter().find(|a| a["attribute"] == name).unwrap();
    let figure = |name: &str, key: &str| of(name)[key].as_f64().unwrap();
    // All requests except the first of each user are predicted, nearly always correctly.
    assert_eq!(of("user")["predicted"], REQUESTS - 20);
    assert!(
        figure("user", "accuracy") > 0.9 && figure("browser", "informedness").abs() < 0.2,
        "{found}"
    );
    let sums = figure("user", "accuracy") + figure("user", "type_i") + figure("user", "type_ii");
    assert!((sums - 1.0).abs() < 1e-9, "{sums}");
    assert_eq!(of("number")["predicted"], 0);
    let one = [
        &[
            "predict",
            "--json",
            "--key",
            "browser",
            "--threshold",
            "2ms",
        ][..],
        &SERVER,
    ]
    .concat();
    let found = json_of(directory.path(), &one);
    assert_eq!(
        (
            found["attributes"].as_array().unwrap().len(),
            &found["threshold_ns"]
        ),
        (1, &json!(2_000_000))
    );
    let (text, _) = check(directory.path(), &[&["predict"][..], &SERVER].concat(), 0);
    assert!(
        text.contains("the median of 400 requests") && text.contains("user"),
        "{text}"
    );
    let (_, error) = check(
        directory.path(),
        &[&["predict", "--key", "shoe"][..], &SERVER].concat(),
        2,
    );
    assert!(
        error.contains("no request has the attribute shoe"),
        "{error}"
    );
    let (_, error) = check(directory.path(), &["predict", "--server", "cook"], 2);
    assert!(error.contains("cook; there are: "), "{error}");
}

#[test]
fn slack_is_validated_by_correlation() {
    let directory = imported();
    let found = json_of(
        directory.path(),
        &[
            &["slack", "--json", "--validate", "--buckets", "4", "--cdf"][..],
            &SERVER,
        ]
        .concat(),
    );
    let buckets = found["buckets"].as_array().unwrap();
    assert_eq!(
        buckets
            .iter()
            .map(|bucket| bucket["requests"].as_u64().unwrap())
            .sum::<u64>(),
        REQUESTS
    );
    // Without slack, latency is the server's time and a constant; with it, the script's.
    assert!(
        buckets[0]["correlation"].as_f64().unwrap() > 0.999,
        "{found}"
    );
    assert_eq!(buckets.last().unwrap()["correlation"], Value::Null);
    let cdf = found["slack_cdf"].as_array().unwrap();
    assert_eq!(
        (cdf.len(), &cdf[0], &cdf[200][0]),
        (201, &json!([0.0, 0]), &json!(1.0))
    );
    assert!(cdf.is_sorted_by_key(|point| point[1].as_u64().unwrap()));
    let (text, _) = check(
        directory.path(),
        &[&["slack", "--validate"][..], &SERVER].concat(),
        0,
    );
    assert!(
        text.contains("Correlation of server time and latency") && text.contains("1.00"),
        "{text}"
    );
}

#[test]
fn requests_are_put_into_strata() {
    let directory = imported();
    let by = |attribute: &str, further: &[&str]| {
        let arguments = [
            &[
                "critical-path",
                "--json",
                "--category-by",
                "layer",
                "--by",
                attribute,
            ][..],
            further,
        ];
        json_of(directory.path(), &arguments.concat())
    };
    let found = by("browser", &[]);
    let strata = found["by"]["strata"].as_array().unwrap();
    let names: Vec<&str> = strata
        .iter()
        .map(|stratum| stratum["stratum"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["hare", "tortoise"]);
    assert_eq!(
        strata
            .iter()
            .map(|stratum| stratum["requests"].as_u64().unwrap())
            .sum::<u64>(),
        REQUESTS
    );
    for stratum in strata {
        // The categories and the tail make up the latency.
        let categories = stratum["categories"].as_array().unwrap().iter();
        let critical_ns: f64 = categories
            .map(|category| category["mean_critical_ns"].as_f64().unwrap())
            .sum();
        let all_ns = critical_ns + stratum["mean_tail_ns"].as_f64().unwrap();
        assert!(
            (all_ns - stratum["latency"]["mean_ns"].as_f64().unwrap()).abs() < 1.0,
            "{stratum}"
        );
    }
    // A number with many values is divided into fifths, in order.
    let found = by("size", &[]);
    let strata = found["by"]["strata"].as_array().unwrap();
    let names: Vec<&str> = strata
        .iter()
        .map(|stratum| stratum["stratum"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["p020", "p040", "p060", "p080", "p100"]);
    assert!(
        strata
            .iter()
            .all(|stratum| (60..=100).contains(&stratum["requests"].as_u64().unwrap())),
        "{found}"
    );
    let edges: Vec<f64> = strata
        .iter()
        .filter_map(|stratum| stratum["upper_edge"].as_f64())
        .collect();
    assert!(
        edges.len() == 4 && edges.is_sorted() && edges[0] > 1_000.0 && edges[3] < 2_000.0,
        "{edges:?}"
    );
    assert_eq!(
        by("user", &["--quantiles", "2"])["by"]["strata"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let (text, _) = check(
        directory.path(),
        &[
            "critical-path",
            "--category-by",
            "layer",
            "--by",
            "size",
            "--cdf",
        ],
        0,
    );
    assert!(
        text.contains("p020: up to ") && text.contains("share of backend"),
        "{text}"
    );
    let (_, error) = check(directory.path(), &["critical-path", "--by", "shoe"], 2);
    assert!(
        error.contains("no request has the attribute shoe"),
        "{error}"
    );
}

#[test]
fn distributions_of_shares_end_at_one() {
    let directory = imported();
    let found = json_of(
        directory.path(),
        &["critical-path", "--json", "--category-by", "layer", "--cdf"],
    );
    let shares = found["cdf"]["critical_share"].as_object().unwrap();
    assert_eq!(shares.keys().collect::<Vec<_>>(), ["backend", "browser"]);
    for cdf in shares.values() {
        let parts: Vec<f64> = cdf
            .as_array()
            .unwrap()
            .iter()
            .map(|point| point[0].as_f64().unwrap())
            .collect();
        assert!(
            parts.is_sorted() && (parts[200] - 1.0).abs() < 1e-9,
            "{parts:?}"
        );
    }
    // Users of slow devices wait for their script alone: about half of all requests.
    let half = shares["backend"][0][0].as_f64().unwrap();
    assert!((0.4..0.6).contains(&half), "{half}");
}

#[test]
fn categories_can_be_changed_as_a_whole() {
    let directory = imported();
    let of = [
        "what-if",
        "--json",
        "--category",
        "browser",
        "--category-by",
        "layer",
        "--scale",
    ];
    let same = json_of(directory.path(), &[&of[..], &["1"]].concat());
    assert_eq!(
        (&same["before"], &same["faster"], &same["slower"]),
        (&same["after"], &json!(0), &json!(0))
    );
    assert_eq!(same["segments"].as_array().unwrap().len(), 2);
    // Without the browser's time, only the server's is left.
    let none = json_of(directory.path(), &[&of[..], &["0"]].concat());
    assert_eq!(none["faster"], REQUESTS);
    assert!(
        (1_000_000..2_000_000).contains(&none["after"]["max_ns"].as_u64().unwrap()),
        "{none}"
    );
    let (_, error) = check(
        directory.path(),
        &["what-if", "--category", "moon", "--scale", "1"],
        2,
    );
    assert!(
        error.contains("no segment is of the category moon"),
        "{error}"
    );
}

/// Half of the requests come through a web server on one host, and half through an app's on
/// another; both call a database. Root spans name another service in an attribute.
fn spans_imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for request in 0..40_u64 {
        let (service, host, kind) = if request % 2 == 0 {
            ("web", "h1", 2)
        } else {
            ("app", "h2", 5)
        };
        let trace_id = format!("{:032x}", request + 1);
        let at_ns = |us: u64| (1_700_000_000_000_000 + request * 10_000 + us) * 1_000;
        let span = |id: u64,
                    parent: &str,
                    name: &str,
                    kind: u64,
                    us: (u64, u64),
                    attributes: Value| {
            json!({
                "traceId": trace_id, "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": name, "kind": kind,
                "startTimeUnixNano": at_ns(us.0).to_string(), "endTimeUnixNano": at_ns(us.1).to_string(),
                "attributes": attributes,
            })
        };
        let resource = |service: &str, host: &str| {
            let said =
                |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
            json!({"attributes": [said("service.name", service), said("host.name", host)]})
        };
        let gold = json!([{"key": "service", "value": {"stringValue": "gold"}}]);
        let line = json!({"resourceSpans": [
            {"resource": resource(service, host), "scopeSpans": [{"spans": [
                span(1, "", "GET /users/17", kind, (0, 1_000 + request), gold)]}]},
            {"resource": resource("db", "h3"), "scopeSpans": [{"spans": [
                span(2, "0000000000000001", "read", 2, (100, 600), json!([]))]}]},
        ]});
        log += &format!("{line}\n");
    }
    std::fs::write(directory.path().join("spans.jsonl"), log).unwrap();
    check(directory.path(), &["import", "spans.jsonl"], 0);
    directory
}

#[test]
fn what_is_known_of_all_spans_stands_wherever_an_attribute_can() {
    let directory = spans_imported();
    let strata = |attribute: &str| -> Vec<(String, u64)> {
        let found = json_of(
            directory.path(),
            &["critical-path", "--json", "--by", attribute],
        );
        let strata = found["by"]["strata"].as_array().unwrap().iter();
        strata
            .map(|one| {
                (
                    one["stratum"].as_str().unwrap().to_owned(),
                    one["requests"].as_u64().unwrap(),
                )
            })
            .collect()
    };
    let halves = |a: &str, b: &str| vec![(a.to_owned(), 20), (b.to_owned(), 20)];
    assert_eq!(strata("service"), halves("app", "web"));
    assert_eq!(strata("service.name"), strata("service"));
    assert_eq!(strata("host"), halves("h1", "h2"));
    assert_eq!(
        strata("operation"),
        halves("app:GET /users/*", "web:GET /users/*")
    );
    assert_eq!(strata("kind"), halves("consumer", "server"));
    assert_eq!(strata("recorded:service"), vec![("gold".to_owned(), 40)]);
    let categories = |attribute: &str| -> Vec<String> {
        let found = json_of(
            directory.path(),
            &["critical-path", "--json", "--category-by", attribute],
        );
        let categories = found["categories"].as_array().unwrap().iter();
        let mut names: Vec<_> = categories
            .map(|one| one["category"].as_str().unwrap().to_owned())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(categories("service"), ["app", "db", "web"]);
    assert_eq!(categories("host"), ["h1", "h2", "h3"]);
    assert_eq!(
        categories("operation"),
        ["app:GET /users/*", "db:read", "web:GET /users/*"]
    );
    assert_eq!(categories("kind"), ["consumer", "server"]);
    let of = [
        "what-if",
        "--json",
        "--category-by",
        "service",
        "--category",
        "db",
        "--scale",
        "0",
    ];
    let faster = json_of(directory.path(), &of);
    assert_eq!(
        (
            &faster["faster"],
            faster["segments"].as_array().unwrap().len()
        ),
        (&json!(40), 2),
        "{faster}"
    );
    let server = ["--category-by", "service", "--server", "db"];
    let keys = [
        "predict",
        "--json",
        "--key",
        "service",
        "--key",
        "host",
        "--key",
        "operation",
        "--key",
        "kind",
    ];
    let found = json_of(directory.path(), &[&keys[..], &server].concat());
    assert_eq!(found["attributes"].as_array().unwrap().len(), 4, "{found}");
    check(
        directory.path(),
        &[&["slack", "--validate", "--json"][..], &server].concat(),
        0,
    );
    check(
        directory.path(),
        &["report", "--category-by", "kind", "--html", "page.html"],
        0,
    );
}

#[test]
fn an_attribute_that_nothing_has_is_an_error_at_every_door() {
    let directory = spans_imported();
    let doors: [&[&str]; 7] = [
        &["critical-path", "--by", "sevice"],
        &["critical-path", "--category-by", "sevice"],
        &["critical-path", "--cdf", "--category-by", "sevice"],
        &[
            "what-if",
            "--category-by",
            "sevice",
            "--category",
            "db",
            "--scale",
            "0",
        ],
        &[
            "predict",
            "--key",
            "sevice",
            "--category-by",
            "host",
            "--server",
            "h3",
        ],
        &[
            "slack",
            "--validate",
            "--category-by",
            "sevice",
            "--server",
            "db",
        ],
        &["report", "--html", "page.html", "--category-by", "sevice"],
    ];
    for door in doors {
        let (_, error) = check(directory.path(), door, 2);
        assert!(
            error.contains("no request has the attribute sevice (is it service?)"),
            "{door:?}: {error}"
        );
        assert!(
            error.contains("there are: service, host, operation, kind, status, recorded:service"),
            "{door:?}: {error}"
        );
    }
    let (_, error) = check(
        directory.path(),
        &["critical-path", "--category-by", "zzz"],
        2,
    );
    assert!(
        error.contains("no request has the attribute zzz; there are: "),
        "{error}"
    );
    // An event log has hosts, and operations of segments, but no services.
    let log = imported();
    check(log.path(), &["critical-path", "--by", "host"], 0);
    check(
        log.path(),
        &["critical-path", "--category-by", "operation"],
        0,
    );
    let (_, error) = check(log.path(), &["critical-path", "--by", "service"], 2);
    assert!(
        error.contains("no request has the attribute service"),
        "{error}"
    );
}

#[test]
fn parts_of_the_store_merge_to_the_whole() {
    let directory = imported();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rule = CategoryRule::Attribute("layer".to_owned());
    let by = StrataRule {
        attribute: "size".to_owned(),
        quantiles: Some(3),
    };
    let server = CategoryChoice {
        rule: rule.clone(),
        name: "backend".to_owned(),
    };
    let settings = PredictSettings {
        server: server.clone(),
        ..PredictSettings::default()
    };
    let found = |parts: usize| {
        let source = Source::open(
            &directory.path().join("stroboscope-data"),
            runtime.handle().clone(),
        )
        .unwrap();
        let (source, all) = (
            source.with_parts(PartsWanted::Exactly(parts)),
            Selection::default(),
        );
        let study = Study::new(source, all, InferSettings::default());
        let by = BreakdownQuestion {
            rule: rule.clone(),
            by: Some(by.clone()),
        };
        let strata = study.ask(&by).unwrap();
        let check = check_slack(&study, &server, 4).unwrap();
        let foretold = study.ask(&settings).unwrap();
        let seen = study.ask(&OverviewQuestion(rule.clone())).unwrap();
        assert_eq!(seen.notes.traces, REQUESTS);
        let examples: Vec<_> = seen
            .examples
            .iter()
            .map(|example| example.answer.id)
            .collect();
        (
            (strata.categories, strata.whole, strata.strata, strata.edges),
            (check.slack, check.validation, check.without_server),
            (foretold.ranked, foretold.threshold_ns, foretold.not_tried),
            (
                seen.categories,
                seen.aggregate,
                seen.breakdown,
                seen.server_slack,
                seen.totals,
                examples,
            ),
        )
    };
    let whole = found(1);
    for parts in [2, 5] {
        assert!(found(parts) == whole, "{parts} parts");
    }
}
