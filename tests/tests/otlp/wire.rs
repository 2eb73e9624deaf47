//! The protocol: errors have its form, and acknowledged data is durable.

use std::process::Command;

use serde_json::Value;
use stroboscope_tests::Program;

use crate::store::{ask, collect, number, rows};

/// A request of one span; `{ID}` is its id.
const REQUEST: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"js"}}]},
    "scopeSpans":[{"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"{ID}","name":"pay","kind":2,
    "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,"futureKey":[1]}]}]}]}"#;

#[test]
fn what_is_wrong_is_said_as_the_protocol_has_it() {
    let program = Program::new();
    let (mut server, _, http, pages) = collect(&program);
    let address = http
        .trim_start_matches("http://")
        .trim_end_matches("/v1/traces");
    let json = "Content-Type: application/json";
    let post = |headers: &[&str], body: &[u8]| ask(address, "POST", "/v1/traces", headers, body);
    let check = |(head, body): (String, String), status: &str, code: i32, words: &str| {
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}\n{body}"
        );
        let said: Value =
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body:?} is no JSON"));
        assert_eq!(said["code"], code, "{said}");
        let message = said["message"].as_str().expect("a message");
        assert!(message.contains(words), "{words:?} is not in {message:?}");
    };
    let good = REQUEST.replace("{ID}", "EEE19B7EC3C1B174");
    let (head, body) = post(&[json], good.as_bytes());
    assert!(
        head.starts_with("HTTP/1.1 200") && body == "{}",
        "{head}\n{body}"
    );
    assert!(
        head.to_ascii_lowercase()
            .contains("content-type: application/json"),
        "{head}"
    );
    // Keys as protobuf has them are read, and not ignored.
    let (_, body) = post(
        &[json],
        br#"{"resource_spans":[{"scope_spans":[{"spans":[{"trace_id":"0"}]}]}]}"#,
    );
    assert!(body.contains("rejectedSpans"), "{body}");
    // An empty request is a success. One whose span is invalid is, too, and its answer names the
    // problem.
    assert_eq!(post(&[json], b"{}").1, "{}");
    let (head, body) = post(
        &[json],
        REQUEST.replace("{ID}", "0000000000000000").as_bytes(),
    );
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let partial: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(partial["partialSuccess"]["rejectedSpans"], "1", "{partial}");
    let message = partial["partialSuccess"]["errorMessage"].to_string();
    assert!(
        message.contains("spanId is `0000000000000000`"),
        "{message}"
    );

    check(post(&[json], b"{\"resourceSpans\":7"), "400", 3, "OTLP");
    check(
        post(&["Content-Type: text/plain"], b"x"),
        "415",
        3,
        "application/x-protobuf",
    );
    check(
        post(&[json, "Content-Encoding: br"], b"x"),
        "415",
        3,
        "gzip",
    );
    check(
        post(&[json, "Content-Encoding: gzip"], b"no gzip"),
        "400",
        3,
        "damaged",
    );
    check(
        ask(address, "GET", "/v1/traces", &[], b""),
        "405",
        3,
        "POST",
    );
    check(
        ask(address, "POST", "/v1/metrics", &[json], b"{}"),
        "404",
        12,
        "not metrics",
    );
    // A request in protobuf gets a `Status` of code 3 in protobuf.
    let protobuf = "Content-Type: application/x-protobuf";
    let (head, body) = post(&[protobuf], b"\x0a\xff\x01garbage");
    assert!(
        head.starts_with("HTTP/1.1 400") && body.starts_with("\u{8}\u{3}\u{12}"),
        "{head}\n{body:?}"
    );
    // A gigabyte of zeros, in a few megabytes of gzip.
    let bomb = Command::new("sh")
        .args(["-c", "head -c 1000000000 /dev/zero | gzip -1"])
        .output()
        .expect("gzip");
    check(
        post(&[json, "Content-Encoding: gzip"], &bomb.stdout),
        "413",
        8,
        "67108864 bytes",
    );
    let long = vec![b' '; (64 << 20) + 1];
    check(post(&[json], &long), "413", 8, "67108864 bytes");

    let metrics = ask(&pages, "GET", "/metrics", &[], b"").1;
    for line in [
        "otlp_requests_total 1",
        "otlp_rejected_spans_total 2",
        "refused_batches_total{cause=\"otlp_too_large\"} 2",
        "refused_batches_total{cause=\"otlp_invalid\"} 3",
        "refused_batches_total{cause=\"otlp_unsupported\"} 2",
    ] {
        assert!(
            metrics.contains(&format!("stroboscope_{line}\n")),
            "{line}\n{metrics}"
        );
    }
    assert!(server.stop(libc::SIGTERM).success());
    let said = server.said();
    assert!(
        said.contains("stored 1 record in 0 batches and 1 request of OTLP"),
        "{said}"
    );
    // The log has the first, second and fourth of the seven permanent rejections.
    assert_eq!(
        said.matches("refused a request of OTLP").count(),
        3,
        "{said}"
    );
    let spans = rows(&program.data(), "spans");
    assert_eq!(spans.len(), 1, "{spans:#?}");
}

/// Data that was acknowledged before a kill is there after the restart.
#[test]
fn acknowledged_requests_outlive_a_kill() {
    let program = Program::new();
    let mut acknowledged = 0;
    for round in 0..5 {
        let (server, _, http, _) = collect(&program);
        let address = http
            .trim_start_matches("http://")
            .trim_end_matches("/v1/traces")
            .to_owned();
        for number in 0..20 {
            let request = REQUEST.replace("{ID}", &format!("{:016x}", 1 + round * 100 + number));
            let (head, _) = ask(
                &address,
                "POST",
                "/v1/traces",
                &["Content-Type: application/json"],
                request.as_bytes(),
            );
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            acknowledged += 1;
        }
        server.kill();
    }
    let (mut server, ..) = collect(&program);
    assert!(server.stop(libc::SIGTERM).success());
    let mut ids: Vec<i128> = rows(&program.data(), "spans")
        .iter()
        .map(|row| number(&row["span_id"]))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), acknowledged);
    assert_eq!(
        rows(&program.data(), "spans").len(),
        acknowledged,
        "none twice"
    );
}
