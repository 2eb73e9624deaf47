//! Pages of allowed origins send OTLP over HTTP from browsers, and others do not.

use stroboscope_tests::Program;

use crate::client::{ask, metrics};
use crate::{collect, turned_away};

const JSON: &str = "Content-Type: application/json";
const APP: &str = "Origin: https://app.example.com";
const CROSS_SITE: &str = "Sec-Fetch-Site: cross-site";
const TOKEN: &str = "tOken-of-those-who-write";

/// Returns the status, and the values of the headers of a response that have this prefix.
fn parsed(answer: &str, prefix: &str) -> (u16, Vec<(String, String)>) {
    let (head, _) = answer.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.filter(|(name, _)| name.starts_with(prefix));
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.trim_start_matches(prefix).to_owned(), value.to_owned()))
        .collect();
    headers.sort();
    (
        status
            .and_then(|status| status.parse().ok())
            .expect("a status"),
        headers,
    )
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    expected.iter().map(owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_named_origins_send() {
    const ASKED: [&str; 2] = [
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization,content-type",
    ];
    let preflight = pairs(&[
        ("allow-credentials", "true"),
        (
            "allow-headers",
            "content-type, content-encoding, authorization, traceparent, tracestate, baggage",
        ),
        ("allow-methods", "POST"),
        ("allow-origin", "https://app.example.com"),
        ("max-age", "7200"),
    ]);
    let readable = pairs(&[
        ("allow-credentials", "true"),
        ("allow-origin", "https://app.example.com"),
        ("expose-headers", "retry-after"),
    ]);
    let program = Program::new();
    let tokens = program.file("tokens", format!("write {TOKEN}\nread {TOKEN}-2\n"));
    let origins = [
        "--cors-origin",
        "HTTPS://App.example.com:443",
        "--cors-origin",
        "http://b:1",
    ];
    let collector = collect(
        &program,
        &[&origins[..], &["--token-file", &tokens]].concat(),
    );
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let send = async |line: &str, headers: &[&str]| {
        let answer = ask(&collector.otlp, line, headers, b"{}").await;
        assert!(answer.contains("\r\nvary: Origin\r\n"), "{answer}");
        let (status, headers) = parsed(&answer, "access-control-");
        (status, headers, answer)
    };
    // Browsers send preflights without a token.
    for path in ["OPTIONS /v1/traces", "OPTIONS /v1/logs"] {
        let (status, headers, answer) =
            send(path, &[&[APP, CROSS_SITE], &ASKED[..]].concat()).await;
        assert_eq!((status, headers), (204, preflight.clone()), "{answer}");
    }
    for (line, headers, status) in [
        ("POST /v1/traces", vec![APP, CROSS_SITE, JSON, &bearer], 200),
        ("POST /v1/logs", vec![APP, JSON, &bearer], 200),
        ("POST /v1/traces", vec![APP, CROSS_SITE, JSON], 401),
        ("POST /v1/traces", vec![APP, CROSS_SITE, &bearer], 415),
        ("GET /v1/traces", vec![APP, CROSS_SITE, &bearer], 405),
        ("POST /v1/metrics", vec![APP, JSON, &bearer], 404),
        // Without a requested method, it is no preflight.
        ("OPTIONS /v1/traces", vec![APP, &bearer], 405),
        ("OPTIONS /v1/traces", vec![APP], 401),
    ] {
        let (got, allowed, answer) = send(line, &headers).await;
        assert_eq!(
            (got, allowed),
            (status, readable.clone()),
            "{headers:?} {answer}"
        );
    }
    // An allowed origin does not admit a host name that is not the collector's.
    let foreign = [APP, JSON, &bearer, "Host: app.example.com"];
    assert_eq!(send("POST /v1/traces", &foreign).await.0, 403);
    for origin in [
        "https://app.example.com.evil.example",
        "https://evil.example",
        "http://app.example.com",
        "https://app.example.com:444",
        "https://APP.example.com",
        "null",
        "*",
    ] {
        let origin = format!("Origin: {origin}");
        for (line, more) in [
            ("POST /v1/traces", &[JSON, &bearer][..]),
            ("OPTIONS /v1/traces", &ASKED),
        ] {
            let (status, headers, answer) =
                send(line, &[&[&*origin, CROSS_SITE], more].concat()).await;
            assert_eq!((status, headers), (403, Vec::new()), "{answer}");
        }
    }
    // Programs send no origin.
    let (status, headers, _) = send("POST /v1/traces", &[JSON, &bearer]).await;
    assert_eq!((status, headers), (200, Vec::new()));
    // The port of pages allows no other origin.
    let reader = format!("Authorization: Bearer {TOKEN}-2");
    for line in [
        "OPTIONS /burst-config",
        "POST /burst-config",
        "GET /metrics",
    ] {
        let answer = ask(
            &collector.pages,
            line,
            &[&[APP, &reader], &ASKED[..]].concat(),
            b"",
        )
        .await;
        let (_, headers) = parsed(&answer, "access-control-");
        assert!(
            headers.is_empty() && !answer.starts_with("HTTP/1.1 204"),
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_no_page_sends_and_by_a_star_all_do() {
    let asked = [APP, CROSS_SITE, "Access-Control-Request-Method: POST"];
    let none = Program::new();
    let none = collect(&none, &[]);
    for (line, headers) in [
        ("POST /v1/traces", &[APP, JSON][..]),
        ("OPTIONS /v1/traces", &asked),
    ] {
        let answer = ask(&none.otlp, line, headers, b"{}").await;
        let (status, headers) = parsed(&answer, "access-control-");
        assert_eq!((status, headers), (403, Vec::new()));
        assert!(answer.contains("--cors-origin"), "{answer}");
        assert!(!answer.contains("vary:"), "{answer}");
    }
    assert_eq!(
        turned_away(&metrics(&none.pages).await, "otlp_http", "origin"),
        2
    );
    let any = Program::new();
    let any = collect(&any, &["--cors-origin", "*"]);
    for origin in [APP, "Origin: null"] {
        let answer = ask(
            &any.otlp,
            "POST /v1/traces",
            &[origin, JSON, CROSS_SITE],
            b"{}",
        )
        .await;
        let (status, headers) = parsed(&answer, "access-control-");
        let expected = pairs(&[("allow-origin", "*"), ("expose-headers", "retry-after")]);
        assert_eq!((status, headers), (200, expected));
    }
    let answer = ask(&any.otlp, "OPTIONS /v1/traces", &asked, b"").await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert!(!answer.contains("credentials"), "{answer}");
}

#[test]
fn wrong_origins_stop_the_start() {
    let check = |arguments: &[&str], words: &[&str]| {
        let program = Program::new();
        let run = program.run(&[&["collect"], arguments].concat());
        run.fails_with(2, words);
        assert!(!program.data().exists());
    };
    let example = "https://app.example.com";
    check(
        &["--cors-origin", "app.example.com"],
        &["--cors-origin", "app.example.com", "SCHEME://HOST"],
    );
    check(
        &["--cors-origin", "https://*.example.com"],
        &["SCHEME://HOST", example],
    );
    check(
        &["--cors-origin", "https://a.example/shop"],
        &["such as https://a.example,"],
    );
    check(
        &["--cors-origin", example, "--cors-origin", "*"],
        &["--cors-origin '*' allows all"],
    );
    check(
        &["--cors-origin", example, "--otlp-http", "none"],
        &["--otlp-http none disables"],
    );
}
