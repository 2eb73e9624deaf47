//! A policy's way from the file that `tradeoffs learn` writes, through `collect`, to the SDK in a
//! service. The file changes while both run, and is damaged.

use std::time::{Duration, Instant};

use stroboscope::tradeoff;
use stroboscope_tests::{Program, Server};

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(
            Instant::now() < deadline,
            "waited in vain for {what}: {:?}",
            tradeoff::stats()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns spans of 20 pages of user 7, each with a fast call and a slow one in parallel.
fn recorded() -> String {
    let span = |trace: u64, id: u64, parent: u64, name: &str, (from, to): (u64, u64)| {
        let start_ns = 1_700_000_000_000_000_000 + trace * 1_000_000_000;
        serde_json::json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", 10 * trace + id),
            "parentSpanId": if parent == 0 { String::new() } else { format!("{:016x}", 10 * trace + parent) },
            "name": name,
            "kind": 2,
            "startTimeUnixNano": (start_ns + from * 1_000_000).to_string(),
            "endTimeUnixNano": (start_ns + to * 1_000_000).to_string(),
            "attributes": [{"key": "user", "value": {"intValue": "7"}}],
        })
    };
    let of_service = |name: &str, spans: Vec<serde_json::Value>| {
        serde_json::json!({
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": name}}]},
            "scopeSpans": [{"spans": spans}],
        })
    };
    let traces = 1..=20;
    let web = traces.clone().map(|t| span(t, 1, 0, "page", (0, 100)));
    // The calls begin in alternating order, so neither waits for the other.
    let first = |t: u64| {
        if t.is_multiple_of(2) {
            (10, 11)
        } else {
            (11, 10)
        }
    };
    let ranker = traces
        .clone()
        .map(|t| span(t, 2, 1, "rank", (first(t).0, 30)));
    let store = traces.map(|t| span(t, 3, 1, "read", (first(t).1, 90)));
    let all = serde_json::json!({"resourceSpans": [
        of_service("web", web.collect()),
        of_service("ranker", ranker.collect()),
        of_service("store", store.collect()),
    ]});
    all.to_string()
}

#[test]
fn a_policy_is_learned_sent_changed_and_a_spoilt_one_is_not_taken() {
    let program = Program::new();
    let spans = program.file("spans.json", recorded());
    let _ = program.run(&["import", &spans]).succeeds();
    let policy = program.file("policy.json", "");
    let learn = |version: &str, key: &str| {
        program.run(&[
            "tradeoffs",
            "learn",
            "--slack-by",
            key,
            "--slack-of",
            "ranker",
            "--slack-of",
            "store",
            "--policy-version",
            version,
            "--out",
            &policy,
        ])
    };
    let _ = learn("1", "pages").fails_with(2, &["no request has the attribute pages", "user"]);
    let _ = learn("1", "user").succeeds();
    let nobody = [
        "tradeoffs",
        "learn",
        "--slack-by",
        "user",
        "--slack-of",
        "rnaker",
        "--out",
        &policy,
    ];
    let _ = program.run(&nobody).fails_with(2, &["rnaker"]);

    let collect = ["collect", "--listen", "127.0.0.1:0", "--tradeoffs", &policy];
    let mut server = Server::start(program.command(&collect));
    let address = format!("http://{}", server.collector_address());
    let _service = stroboscope::builder()
        .service("edge")
        .collector(address)
        .init()
        .expect("it starts");
    wait_until("the policy", || tradeoff::stats().policy == Some(1));
    let foretold = tradeoff::foretold_slack("7").expect("a user who was there");
    let ms = |component: &str| foretold.slack_ns(component).map(|ns| ns / 1_000_000);
    // The page waits for the store. The ranker ends 60 ms earlier.
    assert_eq!(
        (ms("store"), ms("ranker")),
        (Some(0), Some(60)),
        "{foretold:?}"
    );
    assert_eq!(tradeoff::foretold_slack("8"), None);

    let _ = learn("2", "user").succeeds();
    wait_until("the changed policy", || tradeoff::stats().policy == Some(2));
    std::fs::write(&policy, "{\"version\": 3}").expect("written");
    server.wait_for("the complaint", |said| {
        said.contains("services keep their current policy")
            .then_some(())
    });
    assert_eq!(tradeoff::stats().policy, Some(2));
    // A corrected file applies, and the end of the collector changes nothing.
    let _ = learn("4", "user").succeeds();
    wait_until("the policy put right", || {
        tradeoff::stats().policy == Some(4)
    });
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
    assert!(tradeoff::foretold_slack("7").is_some());
    assert_eq!(tradeoff::stats().policy, Some(4));
}
