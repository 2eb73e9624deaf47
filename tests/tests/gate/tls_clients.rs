//! Tests subcommands that request pages of a collector with TLS.

use stroboscope_tests::Program;

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
