//! Tests with external clients of Tempo, as processes: that of Perses, and Grafana's grammar of
//! TraceQL.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use stroboscope_search::parse_traceql;

use crate::jaeger::shops;

/// Returns a command that runs a script by Node with the modules in the directory
/// `STROBOSCOPE_TEST_NODE_MODULES`; `None` if Node or `package` is missing.
fn node(script: &str, package: &str) -> Option<Command> {
    let directory = std::env::var("STROBOSCOPE_TEST_NODE_MODULES").unwrap_or_default();
    let has_it = Command::new("node")
        .env("NODE_PATH", &directory)
        .args(["-e", &format!("require('{package}')")])
        .stderr(Stdio::null())
        .status();
    if !has_it.is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIPPED: {script}: npm install --legacy-peer-deps @grafana/lezer-traceql @lezer/lr @perses-dev/tempo-plugin \
             @perses-dev/core@0.52.0 react react-dom lodash, and name its node_modules by STROBOSCOPE_TEST_NODE_MODULES"
        );
        return None;
    }
    let mut node = Command::new("node");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    node.env("NODE_PATH", directory).arg(scripts.join(script));
    Some(node)
}

#[test]
fn perses_reads_by_its_own_client() {
    let client = "@perses-dev/tempo-plugin/lib/cjs/model/tempo-client.js";
    let Some(mut node) = node("perses.cjs", client) else {
        return;
    };
    let served = shops();
    let said = node
        .arg(format!("http://{}/tempo", served.address()))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{errors}");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let found = said["found"]["traces"].as_array().unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["serviceStats"]["shop"]["errorCount"], 1);
    assert_eq!(said["trace"]["batches"].as_array().unwrap().len(), 2);
    assert!(said["tags"]["scopes"].as_array().unwrap().len() > 2);
    assert_eq!(said["values"]["tagValues"][1]["value"], "shop");
    assert!(
        said["refused"]
            .to_string()
            .contains("expected a text in quotes"),
        "{}",
        said["refused"]
    );
}

/// Grafana's grammar and ours both accept the queries that Explore writes, and both reject invalid
/// TraceQL.
#[test]
fn traceql_is_taken_as_by_grafanas_grammar() {
    let Some(mut node) = node("traceql.cjs", "@grafana/lezer-traceql") else {
        return;
    };
    let taken = [
        "{}",
        "{ }",
        "{ true }",
        "{ name = \"x\" }",
        "{ name=\"x\" && duration>5ms }",
        "{ resource.service.name = \"shop\" && span.http.status_code >= 500 }",
        "{ .a = 1 || .b = 2.5 || .c = true }",
        "{ (.a = 1 || .b = 2) && .c != \"x\" }",
        "{ !(.a = 1) }",
        "{ name =~ \"a.*\" && name !~ \"b\" }",
        "{ status = error }",
        "{ status != ok && kind = server }",
        "{ rootName = \"a\" && rootServiceName = \"b\" }",
        "{ duration > 1.5s && traceDuration <= 2m }",
        "{ trace:duration > 1s }",
        "{ span.a = nil }",
        "{ .a != nil }",
        "{ .a = -5 }",
        "{} && {}",
        "({} || {}) && {}",
        "{ .a = 1 } >> { .b = 2 }",
        "{ .a = 1 } > { .b = 2 } ~ {}",
        "{} | count() > 2",
        "{} | select(.a, resource.b)",
        "{} | select(name)",
        "{ .a = 1 } | count() >= 1 | select(.a)",
        "{} with (most_recent=true)",
    ];
    let refused = [
        "{",
        "}",
        "{ name }  }",
        "{ name = }",
        "{ = \"x\" }",
        "{ .a = 1 && }",
        "{ .a = 1 } >",
        "{ .a = 1 } &&",
        "{ .a == 1 }",
        "{ .a = 1 and .b = 2 }",
        "{} then {}",
        "always {}",
        "{} |",
        "{} | select(",
        "{} | count(",
        "not {}",
        "name = \"x\"",
        "{ .a = \"x }",
    ];
    let all: Vec<&str> = taken.iter().chain(&refused).copied().collect();
    let mut process = node
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    input.write_all(all.join("\n").as_bytes()).unwrap();
    drop(input);
    let said = process.wait_with_output().unwrap();
    assert!(said.status.success());
    let theirs: Vec<bool> = serde_json::from_slice(&said.stdout).unwrap();
    let mut apart = Vec::new();
    for (place, (text, is_taken)) in all.iter().zip(theirs).enumerate() {
        let ours = parse_traceql(text);
        if ours.is_ok() != is_taken || is_taken != (place < taken.len()) {
            apart.push(format!("{text}: by them {is_taken}, by us {ours:?}"));
        }
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}
