//! Tests access control: certificates, tokens and host names.

use std::process::{Command, Stdio};
use std::time::Duration;

use stroboscope_tests::{Program, Server};
use tonic::Code;

use crate::certificates::{Authority, Pair, connect};
use crate::client::{EXPORT, ask, ask_over, call, call_over, metrics};
use crate::{collect, turned_away};

const WRITE: &str = "tOken-of-those-who-write";
const READ: &str = "tOken-of-those-who-read";
const CONTROL: &str = "tOken-of-those-who-control";
const JSON: &str = "Content-Type: application/json";
const PROTOBUF: &str = "Content-Type: application/x-protobuf";

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[test]
fn beyond_loopback_it_asks_who_comes() {
    let refuse = |arguments: &[&str], words: &[&str]| {
        let program = Program::new();
        program.run(arguments).fails_with(2, words);
        assert!(!program.data().exists(), "refused before anything is made");
    };
    let beyond = "0.0.0.0:0";
    for flag in ["--listen", "--otlp-http", "--http"] {
        let words = [flag, "--token-file", "--tls-client-ca", "--insecure-listen"];
        refuse(&["collect", flag, beyond], &words);
    }
    refuse(
        &["collect", "--token-file", "/no/such/file"],
        &["cannot read /no/such/file"],
    );
    let program = Program::new();
    let bad = program.file(
        "tokens",
        "write 0123456789abcdef\nreed s3cret-s3cret-s3cret\n",
    );
    let run = program.run(&["collect", "--token-file", &bad]);
    assert!(!run.stderr.contains("s3cret"), "{run:#?}");
    run.fails_with(2, &["tokens", "line 2", "read,control"]);
    let nothing = program.file("nothing", "");
    let tls = ["collect", "--tls-cert", &nothing, "--tls-key", &nothing];
    program.run(&tls).fails_with(2, &["--tls-cert", "PEM"]);
    // With `--insecure-listen` or with tokens, the collector listens.
    let tokens = program.file("tokens", format!("write {WRITE}\n"));
    for allowed in [vec!["--insecure-listen"], vec!["--token-file", &tokens]] {
        let program = Program::new();
        let mut command =
            program.command(&["collect", "--listen", beyond, "--http", "127.0.0.1:0"]);
        command.args(["--otlp-http", "none"]).args(allowed);
        let mut server = Server::start(command);
        let said = server.wait_for("its address", |said| {
            said.contains("collecting on grpc").then(|| said.to_owned())
        });
        assert!(said.contains("nothing is encrypted"), "{said}");
        assert!(server.stop(libc::SIGTERM).success());
    }
}

/// Returns the cookie that a response sets, as the header that a browser sends, and the cookie's
/// attributes.
fn cookie(answer: &str) -> (String, String) {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let (cookie, attributes) = line
        .and_then(|line| line.split_once(';'))
        .expect("a cookie");
    (format!("Cookie: {cookie}"), attributes.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_logs_in_and_out() {
    const HTML: &str = "Accept: text/html,*/*";
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
    let program = Program::new();
    let text = format!("write {WRITE}\nread {READ}\ncontrol,read {CONTROL}\n");
    let tokens = program.file("tokens", &text);
    let mut collector = collect(&program, &["--token-file", &tokens]);
    let pages = &*collector.pages;
    let check = async |line: &str, headers: &[&str], body: &str, status: u16, words: &str| {
        let answer = ask(pages, line, headers, body.as_bytes()).await;
        let is_right = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(
            is_right && answer.contains(words),
            "{line} {headers:?}: {answer}"
        );
        assert!(!answer.contains("tOken-of"), "{answer}");
        answer
    };
    // A page leads a browser to the login, and back. A program gets an error with the header.
    let to_login = "location: /login?to=%2Ffleet%3Fsince%3D1h";
    check("GET /fleet?since=1h", &[HTML], "", 303, to_login).await;
    check("GET /fleet", &[], "", 401, "authorization: Bearer TOKEN").await;
    check(
        "GET /fleet",
        &[HTML, &bearer("wrong-token-of-nobody")],
        "",
        303,
        "/login",
    )
    .await;
    let login = "POST /login?to=%2Ffleet%3Fsince%3D1h";
    check("GET /login", &[HTML], "", 200, "type=\"password\"").await;
    let log_in = async |token: &str| {
        let form = format!("token={token}");
        let location = "location: /fleet?since=1h";
        cookie(&check(login, &[HTML, FORM], &form, 303, location).await)
    };
    let (reader, attributes) = log_in(READ).await;
    assert_eq!(attributes, " Path=/; Max-Age=43200; HttpOnly; SameSite=Lax");
    let (controller, _) = log_in(CONTROL).await;
    for page in ["/", "/fleet", "/metrics", "/model"] {
        check(&format!("GET {page}"), &[HTML, &reader], "", 200, "").await;
    }
    check(
        "GET /login",
        &[HTML, &reader],
        "",
        200,
        "action=\"/logout\"",
    )
    .await;

    // A login allows no more than its token.
    let set = "config=8ms/64ms";
    check("POST /fleet", &[FORM, &reader], set, 403, "role control").await;
    check("POST /fleet", &[FORM, &controller], set, 200, "").await;
    let of_others = ["Origin: http://evil.example", FORM, &controller];
    check("POST /fleet", &of_others, set, 403, "another origin").await;
    let answer = ask(
        &collector.otlp,
        "POST /v1/traces",
        &[JSON, &controller],
        b"{}",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    check(
        login,
        &[FORM],
        &format!("token={WRITE}"),
        403,
        "lacks the role read",
    )
    .await;
    check(
        "GET /fleet",
        &[&reader.replace('=', "=1")],
        "",
        401,
        "has ended",
    )
    .await;

    let out = check(
        "POST /logout",
        &[FORM, &reader],
        "",
        303,
        "location: /login",
    )
    .await;
    let (out, attributes) = cookie(&out);
    assert!(
        out.ends_with('=') && attributes.contains("Max-Age=0"),
        "{out}; {attributes}"
    );
    check("GET /fleet", &[&out], "", 401, "requires a token").await;

    // Logins with a token that is removed from the file end, and the others continue.
    let _ = program.file("tokens", format!("write {WRITE}\nread {READ}\n"));
    collector.server.wait_for("the new tokens", |said| {
        said.contains("reloaded certificates and tokens")
            .then_some(())
    });
    check("GET /fleet", &[&controller], "", 401, "has ended").await;
    check("GET /fleet", &[&reader], "", 200, "").await;

    // The login does not count a body that it cannot read as a wrong token.
    let form = format!("token={}", "a".repeat(8 << 10));
    check(login, &[FORM], &form, 413, "longer than 8192 bytes").await;
    // One token without the role came before these four, of which the last is longer than any.
    for length in [9, 10, 11, 5_000] {
        let form = format!("token={}", "a".repeat(length));
        check(login, &[FORM], &form, 401, "Not logged in").await;
    }
    let form = format!("token={READ}");
    let answer = check(login, &[FORM], &form, 429, "in a minute").await;
    assert!(answer.contains("retry-after: "), "{answer}");
    check("GET /fleet", &[&reader], "", 200, "").await;
    let told = ask(pages, "GET /metrics", &[&bearer(READ)], b"").await;
    assert_eq!(turned_away(&told, "pages", "login_attempts"), 1);
    assert!(collector.server.stop(libc::SIGTERM).success());
    assert!(!collector.server.said().contains("tOken-of"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_asked_for_at_each_door() {
    let program = Program::new();
    let text = format!("# of the fleet\nwrite {WRITE}\nread {READ}\ncontrol,read {CONTROL}\n");
    let tokens = program.file("tokens", &text);
    let mut collector = collect(&program, &["--token-file", &tokens]);
    let (grpc, otlp, pages) = (&*collector.grpc, &*collector.otlp, &*collector.pages);

    let check = async |address: &str, line: &str, token: Option<&str>, status: u16| {
        let bearer = token.map(bearer);
        let mut headers = vec![JSON];
        headers.extend(bearer.as_deref());
        let body: &[u8] = if line.ends_with("burst-config") {
            b"8ms/64ms"
        } else {
            b"{}"
        };
        let answer = ask(
            address,
            line,
            &headers,
            if line.starts_with("GET") { b"" } else { body },
        )
        .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line} {token:?}: {answer}"
        );
        assert!(!answer.contains("tOken-of"), "{answer}");
        answer
    };
    let unknown = "tOken-of-nobody-at-all";
    for page in ["/", "/fleet", "/metrics", "/model", "/burst-config"] {
        let line = format!("GET {page}");
        let told = check(pages, &line, None, 401).await;
        assert!(
            told.to_lowercase().contains("www-authenticate: bearer"),
            "{told}"
        );
        check(pages, &line, Some(unknown), 401).await;
        check(pages, &line, Some(WRITE), 403).await;
        check(pages, &line, Some(READ), 200).await;
    }
    for token in [None, Some(unknown), Some(READ)] {
        check(pages, "GET /healthz", token, 200).await;
    }
    check(pages, "POST /burst-config", Some(READ), 403).await;
    check(pages, "POST /burst-config", Some(CONTROL), 200).await;
    for (token, status, code) in [
        (None, 401, 16),
        (Some(unknown), 401, 16),
        (Some(READ), 403, 7),
    ] {
        let answer = check(otlp, "POST /v1/traces", token, status).await;
        assert!(answer.contains(&format!("\"code\":{code}")), "{answer}");
        // A client that sends protobuf gets the status in protobuf.
        let bearer = token.map(bearer);
        let headers: Vec<&str> = [PROTOBUF].into_iter().chain(bearer.as_deref()).collect();
        let answer = ask(otlp, "POST /v1/traces", &headers, b"").await;
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        assert_eq!(body.as_bytes()[..2], [8, code], "{answer}");
    }
    check(otlp, "POST /v1/traces", Some(WRITE), 200).await;

    for path in [
        EXPORT,
        "/stroboscope.v1.Collector/Ship",
        "/stroboscope.v1.Collector/Control",
        "/no.such/Method",
    ] {
        let code = async |token: &str| {
            let status = call(grpc, path, &[("authorization", token)], b"").await;
            assert!(!status.message().contains("tOken-of"), "{status:?}");
            status.code()
        };
        assert_eq!(
            call(grpc, path, &[], b"").await.code(),
            Code::Unauthenticated,
            "{path}"
        );
        assert_eq!(
            code(&format!("Bearer {unknown}")).await,
            Code::Unauthenticated,
            "{path}"
        );
        assert_eq!(code(WRITE).await, Code::Unauthenticated, "{path}");
        assert_eq!(
            code(&format!("Bearer {READ}")).await,
            Code::PermissionDenied,
            "{path}"
        );
    }
    assert_eq!(
        call(
            grpc,
            EXPORT,
            &[("authorization", &format!("bearer {WRITE}"))],
            b""
        )
        .await
        .code(),
        Code::Ok
    );

    // A service with a token is let in, and one without is not.
    let service = |token: Option<&str>| {
        let mut command = Command::new(Program::path());
        command
            .args(["newsfeed", "store", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null());
        command.env("STROBOSCOPE_COLLECTOR", format!("http://{grpc}"));
        command.envs(token.map(|token| ("STROBOSCOPE_TOKEN", token)));
        Server::start(command)
    };
    let counted = async || {
        let answer = ask(pages, "GET /metrics", &[&bearer(READ)], b"").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    };
    let _with = service(Some(WRITE));
    while !counted().await.contains("\nstroboscope_processes 1\n") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let missing = turned_away(&counted().await, "grpc", "token_missing");
    let _without = service(None);
    while turned_away(&counted().await, "grpc", "token_missing") == missing {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let metrics = counted().await;
    assert!(metrics.contains("\nstroboscope_processes 1\n"), "{metrics}");
    assert_eq!(turned_away(&metrics, "pages", "token_missing"), 5);
    assert_eq!(turned_away(&metrics, "pages", "token_unknown"), 5);
    assert_eq!(turned_away(&metrics, "pages", "token_role"), 6);
    assert_eq!(turned_away(&metrics, "otlp_http", "token_missing"), 2);
    assert_eq!(turned_away(&metrics, "otlp_http", "token_unknown"), 2);
    assert_eq!(turned_away(&metrics, "otlp_http", "token_role"), 2);
    assert_eq!(turned_away(&metrics, "grpc", "token_unknown"), 4);
    assert_eq!(turned_away(&metrics, "grpc", "token_role"), 4);

    // A changed file applies without a restart, and an invalid one changes nothing.
    let _ = program.file("tokens", "write short\n");
    collector.server.wait_for("the complaint", |said| {
        said.contains("the previous ones stay in force")
            .then_some(())
    });
    check(pages, "GET /metrics", Some(READ), 200).await;
    let _ = program.file("tokens", format!("read {unknown}\n"));
    collector.server.wait_for("the change", |said| {
        said.contains("reloaded certificates and tokens")
            .then_some(())
    });
    check(pages, "GET /metrics", Some(READ), 401).await;
    check(pages, "GET /metrics", Some(unknown), 200).await;
    assert!(collector.server.stop(libc::SIGTERM).success());
    let said = collector.server.said();
    assert!(
        !said.contains("tOken-of") && !said.contains("panicked"),
        "{said}"
    );
}

/// Sends a request to the ports for gRPC, OTLP over HTTP, and pages, with the client certificate
/// `own`. Returns for each port, in this order, whether the request succeeded.
async fn doors(collector: &crate::Collector, authority: &str, own: Option<&Pair>) -> [bool; 3] {
    let page = async |address: &str, line: &str| match connect(address, authority, own, "http/1.1")
        .await
    {
        Ok(stream) => ask_over(stream, line, &[JSON], b"{}")
            .await
            .starts_with("HTTP/1.1 200 "),
        Err(_) => false,
    };
    let grpc = match connect(&collector.grpc, authority, own, "h2").await {
        Ok(stream) => call_over(stream, EXPORT, &[], b"")
            .await
            .is_ok_and(|status| status.code() == Code::Ok),
        Err(_) => false,
    };
    let pages = page(&collector.pages, "GET /metrics").await;
    [grpc, page(&collector.otlp, "POST /v1/traces").await, pages]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_shown_and_asked_for() {
    let program = Program::new();
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server();
    let (certificate, key) = (
        program.file("cert.pem", &server.certificate),
        program.file("key.pem", &server.key),
    );
    let client_ca = program.file("ca.pem", authority.pem());
    let arguments = [
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &client_ca,
        "--request-timeout",
        "2s",
    ];
    let mut collector = collect(&program, &arguments);
    let client = authority.client();
    let ca = authority.pem();
    // A client without a TLS handshake delays no other client.
    let silent = tokio::net::TcpStream::connect(&collector.grpc)
        .await
        .expect("it listens");
    assert_eq!(doors(&collector, &ca, Some(&client)).await, [true; 3]);
    assert_eq!(doors(&collector, &ca, None).await, [false; 3]);
    assert_eq!(
        doors(&collector, &ca, Some(&authority.expired_client())).await,
        [false; 3]
    );
    assert_eq!(
        doors(&collector, &ca, Some(&other.client())).await,
        [false; 3]
    );
    // A certificate that is not for clients.
    assert_eq!(
        doors(&collector, &ca, Some(&authority.server())).await,
        [false; 3]
    );
    // Without TLS.
    assert_eq!(
        ask(&collector.pages, "GET /metrics", &[], b"").await,
        "\u{15}\u{3}\u{3}\0\u{2}\u{2}2"
    );
    let counted = async |own: &Pair, ca: &str| {
        let stream = connect(&collector.pages, ca, Some(own), "http/1.1")
            .await
            .expect("TLS");
        ask_over(stream, "GET /metrics", &[], b"").await
    };
    let metrics = counted(&client, &ca).await;
    for door in ["grpc", "otlp_http", "pages"] {
        assert_eq!(
            turned_away(&metrics, door, "client_certificate"),
            4,
            "{metrics}"
        );
    }
    assert_eq!(turned_away(&metrics, "pages", "tls_handshake"), 1);
    while turned_away(&counted(&client, &ca).await, "grpc", "tls_timeout") == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(silent);

    // A key that does not fit changes nothing. A pair of another authority needs no restart.
    let new = other.server();
    let _ = program.file("key.pem", &new.key);
    collector.server.wait_for("the complaint", |said| {
        said.contains("the previous ones stay in force")
            .then_some(())
    });
    assert_eq!(doors(&collector, &ca, Some(&client)).await, [true; 3]);
    let _ = program.file("cert.pem", &new.certificate);
    collector.server.wait_for("the change", |said| {
        said.contains("reloaded certificates and tokens")
            .then_some(())
    });
    assert_eq!(doors(&collector, &ca, Some(&client)).await, [false; 3]);
    assert_eq!(
        doors(&collector, &other.pem(), Some(&client)).await,
        [true; 3]
    );
    let metrics = counted(&client, &other.pem()).await;
    assert!(
        metrics.contains("secrets_reloads_total{outcome=\"used\"} 1\n"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("secrets_reloads_total{outcome=\"failed\"} 0\n"),
        "{metrics}"
    );
    assert!(collector.server.stop(libc::SIGTERM).success());
    assert!(
        !collector.server.said().contains("panicked"),
        "{}",
        collector.server.said()
    );
}

/// The pages' port rejects requests that a browser sends for a page of another origin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_peoples_pages_get_nothing() {
    let program = Program::new();
    let collector = collect(&program, &["--allowed-host", "collector.internal"]);
    let pages = &*collector.pages;
    let check = async |line: &str, headers: &[&str], status: u16| {
        let answer = ask(pages, line, headers, b"8ms/64ms").await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line} {headers:?}: {answer}"
        );
    };
    check("GET /model", &["Host: evil.example"], 403).await;
    check("GET /model", &["Host: collector.internal:4319"], 200).await;
    check("GET /model", &["Host: 127.0.0.1:4319"], 200).await;
    check("POST /burst-config", &["Host: evil.example"], 403).await;
    check("POST /burst-config", &["Origin: http://evil.example"], 403).await;
    check("POST /burst-config", &["Sec-Fetch-Site: cross-site"], 403).await;
    check(
        "POST /burst-config",
        &["Host: localhost:1", "Origin: http://localhost:1"],
        200,
    )
    .await;
    let answer = ask(
        &collector.otlp,
        "POST /v1/traces",
        &["Host: evil.example", JSON],
        b"{}",
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("--allowed-host"),
        "{answer}"
    );
    let metrics = metrics(pages).await;
    assert_eq!(turned_away(&metrics, "pages", "host"), 2);
    assert_eq!(turned_away(&metrics, "pages", "origin"), 2);
    assert_eq!(turned_away(&metrics, "otlp_http", "host"), 1);
}
