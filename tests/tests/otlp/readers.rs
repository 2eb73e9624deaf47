//! Reads OTLP data from the running collector through the APIs of Jaeger and Tempo.

use serde_json::{Value, json};
use stroboscope_tests::Program;

use crate::store::{ask, collect_with};

fn request() -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
        "scopeSpans": [{"spans": [{
            "traceId": "0000000000000000000000000000002a", "spanId": "0000000000000001", "name": "GET /<script>",
            "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000000250000000",
        }]}],
    }]})
}

fn status(answer: &(String, String)) -> u16 {
    let code = answer.0.split(' ').nth(1).expect("a status");
    code.parse().expect("a number")
}

#[test]
fn readers_find_a_running_collectors_traces() {
    let program = Program::new();
    let ports = ["--jaeger", "127.0.0.1:0", "--tempo", "127.0.0.1:0"];
    let options = [&ports[..], &["--flush-interval", "100ms"]].concat();
    let (mut server, _, otlp, pages) = collect_with(&program, &options);
    let port = |said: &str, mark: &str| {
        let rest = said.lines().find_map(|line| line.strip_prefix(mark))?;
        Some(rest.trim().trim_end_matches('/').to_owned())
    };
    let jaeger = server.wait_for("Jaeger's", |said| port(said, "jaeger API on http://"));
    let tempo = server.wait_for("Tempo's", |said| port(said, "tempo API on http://"));
    let address = otlp
        .trim_start_matches("http://")
        .trim_end_matches("/v1/traces");
    let kind = ["content-type: application/json"];
    let body = request().to_string();
    let sent = ask(address, "POST", "/v1/traces", &kind, body.as_bytes());
    assert_eq!(status(&sent), 200, "{sent:?}");
    let get = |address: &str, path: &str| {
        let answer = ask(address, "GET", path, &[], b"");
        (status(&answer), answer.1)
    };
    // It is in the store after the next flush.
    server.wait_for("the flush", |_| {
        get(&pages, "/api/services")
            .1
            .contains("shop")
            .then_some(())
    });
    for address in [&pages, &jaeger] {
        for path in [
            "/api/traces/2a",
            "/api/traces?service=shop&limit=20",
            "/api/v3/traces/2a",
        ] {
            let (status, body) = get(address, path);
            assert_eq!(status, 200, "{path}: {body}");
            let body: Value = serde_json::from_str(&body).expect("JSON");
            assert!(body.to_string().contains("GET /<script>"), "{body}");
        }
    }
    let query = "/api/search?q=%7B%20duration%20%3E%20200ms%20%7D";
    for (address, prefix) in [(&tempo, ""), (&pages, "/tempo")] {
        assert_eq!(get(address, &format!("{prefix}/api/echo")).0, 200);
        let (status, body) = get(address, &format!("{prefix}{query}"));
        assert!(
            status == 200 && body.contains("\"durationMs\":250"),
            "{body}"
        );
    }
    // The collector's own APIs stay at their addresses, and each port names what it serves.
    assert!(get(&pages, "/api/processes").1.contains("processes"));
    assert_eq!(get(&jaeger, "/metrics").0, 404);
    assert!(get(&tempo, "/x").1.contains("/api/search"));
    for address in [&pages, &jaeger, &tempo] {
        // With two `Host` headers, a proxy may use the one that the collector does not.
        let foreign = ask(
            address,
            "GET",
            "/api/traces/2a",
            &["host: evil.example"],
            b"",
        );
        assert_eq!(status(&foreign), 403, "{foreign:?}");
    }
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
}

/// Readers need a token with the role `read` if the collector requires tokens.
#[test]
fn readers_need_a_token_where_there_are_some() {
    let program = Program::new();
    let tokens = "read secret-of-readers-0123\nwrite secret-of-writers-0123\n";
    let tokens = program.file("tokens", tokens);
    let options = ["--token-file", &tokens, "--jaeger", "127.0.0.1:0"];
    let (mut server, _, _, pages) = collect_with(&program, &options);
    let port = |said: &str| {
        let rest = said
            .lines()
            .find_map(|line| line.strip_prefix("jaeger API on http://"))?;
        Some(rest.trim().trim_end_matches('/').to_owned())
    };
    let jaeger = server.wait_for("Jaeger's", port);
    for address in [&pages, &jaeger] {
        let with = |headers: &[&str]| status(&ask(address, "GET", "/api/services", headers, b""));
        assert_eq!(with(&[]), 401);
        assert_eq!(with(&["authorization: Bearer secret-of-writers-0123"]), 403);
        assert_eq!(with(&["authorization: Bearer secret-of-readers-0123"]), 200);
    }
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
}
