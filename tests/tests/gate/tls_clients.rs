//! Tests clients of a collector with TLS: subcommands that request pages, agents and services.

use std::time::{Duration, Instant};

use stroboscope::BurstConfig;
use stroboscope_tests::{Program, Server};

use crate::certificates::Authority;
use crate::collect;

#[test]
fn subcommands_reach_a_collector_with_tls() {
    let program = Program::new();
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server();
    let (certificate, key) = (
        program.file("cert.pem", &server.certificate),
        program.file("key.pem", &server.key),
    );
    let mut collector = collect(&program, &["--tls-cert", &certificate, "--tls-key", &key]);
    let (_, port) = collector.pages.rsplit_once(':').expect("a port");
    let (plain, http) = (
        format!("localhost:{port}"),
        format!("https://localhost:{port}"),
    );
    let address = format!("https://127.0.0.1:{port}");
    let ca = program.file("ca.pem", authority.pem());
    let another_ca = program.file("other.pem", other.pem());
    let check = |verb: &[&str], expected: &str| {
        let run = |more: &[&str]| Program::run_plain(&[verb, more].concat());
        let done = run(&["--http", &http, "--ca", &ca]).succeeds();
        assert!(done.stdout.contains(expected), "{verb:?}: {done:#?}");
        run(&["--http", &http, "--ca", &another_ca]).fails_with(2, &[&http, "certificate"]);
        // The certificate is for the name only.
        run(&["--http", &address, "--ca", &ca]).fails_with(2, &[&address, "certificate"]);
        run(&["--http", &plain]).fails_with(2, &["requires TLS"]);
    };
    check(&["burst", "set", "--config", "4ms/32ms"], "burst-config");
    check(&["top", "--once", "--interval", "0.1"], &http);
    check(&["collect", "ready"], "ok");
    assert!(collector.server.stop(libc::SIGTERM).success());
}

/// Starts a collector with TLS at this address.
fn gateway(program: &Program, address: &str, signed_by: &Authority) -> Server {
    let server = signed_by.server();
    let (certificate, key) = (
        program.file("cert.pem", &server.certificate),
        program.file("key.pem", &server.key),
    );
    let mut command = program.command(&["collect", "--listen", address, "--http", "127.0.0.1:0"]);
    command.args(["--otlp-http", "none"]);
    command.args(["--tls-cert", &certificate, "--tls-key", &key]);
    Server::start(command)
}

/// A service and an agent reach a collector whose certificate is from another authority as soon as
/// their file has it, without a restart.
#[test]
fn a_changed_authority_is_read_for_the_next_connection() {
    let program = Program::new();
    let authorities = [Authority::new(), Authority::new()];
    let ca = program.file("ca.pem", authorities[0].pem());
    let mut collector = gateway(&program, "127.0.0.1:0", &authorities[0]);
    let address = collector.collector_address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let url = format!("https://localhost:{port}");

    let of_agent = Program::new();
    let mut agent = of_agent.command(&[
        "collect",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]);
    agent.args([
        "--otlp-http",
        "none",
        "--forward",
        &url,
        "--forward-ca",
        &ca,
    ]);
    let mut agent = Server::start(agent);
    let connections = |said: &str, expected: usize| {
        let is_one = |line: &&str| line.contains("connected") && !line.contains("not connected");
        (said.lines().filter(is_one).count() >= expected).then_some(())
    };
    let _service = stroboscope::builder()
        .service("shop")
        .collector(&url)
        .certificate_authority(&ca)
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .expect("it starts");
    let acknowledged = |above: u64| {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            stroboscope::span!("request").scope(|| ());
            let stats = stroboscope::stats();
            if stats.batches_acknowledged > above {
                return stats.batches_acknowledged;
            }
            assert!(Instant::now() < deadline, "{stats:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    acknowledged(0);
    agent.wait_for("the gateway", |said| connections(said, 1));

    assert!(collector.stop(libc::SIGTERM).success());
    let before = stroboscope::stats().batches_acknowledged;
    let mut collector = gateway(&program, &address, &authorities[1]);
    // The old authority does not fit.
    agent.wait_for("the certificate", |said| {
        said.contains("not connected").then_some(())
    });
    let _ = program.file("ca.pem", authorities[1].pem());
    acknowledged(before);
    agent.wait_for("the gateway again", |said| connections(said, 2));
    assert!(agent.stop(libc::SIGTERM).success());
    assert!(collector.stop(libc::SIGTERM).success());
}
