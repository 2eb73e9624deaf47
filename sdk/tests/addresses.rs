//! Tests every kind of collector address (`http`, `https` and `unix`), and tokens.

mod collector;

use std::net::{IpAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{Builder, BurstConfig, span};

static TURN: Mutex<()> = Mutex::new(());

fn check(collector: &Collector, builder: Builder, authorization: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = builder.burst_config(BurstConfig::ALWAYS_ON).init().unwrap();
    wait_for("the gate", || stroboscope::stats().windows > 0);
    drop(span!("sent"));
    assert!(
        stroboscope::flush(Duration::from_secs(10)),
        "{:?}",
        stroboscope::stats()
    );
    wait_for("the control stream", || {
        !collector.authorizations().is_empty()
    });
    drop(guard);
    assert_eq!(collector.span("sent").parent, 0);
    assert_eq!(collector.authorizations(), [authorization]);
}

/// Returns an address of this machine that is not a loopback address. `None` if there is none.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing. The system chooses the local address of the socket.
    socket.connect("203.0.113.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn what_leaves_the_machine_is_compressed() {
    let collector = Collector::default();
    let address = collector.clone().start();
    check(
        &collector,
        stroboscope::builder().collector(&address),
        "none",
    );
    assert_eq!(collector.encodings(), ["none"]);
    let Some(outer) = outer_address() else {
        eprintln!(
            "SKIPPED: compression on the way to another machine (this one has no address but its own)"
        );
        return;
    };
    let collector = Collector::default();
    let address = collector
        .clone()
        .start()
        .replace("127.0.0.1", &outer.to_string());
    check(
        &collector,
        stroboscope::builder().collector(address),
        "none",
    );
    assert_eq!(collector.encodings(), ["zstd"]);
}

#[test]
fn tcp_with_a_token() {
    let collector = Collector::default();
    let builder = stroboscope::builder()
        .collector(collector.clone().start())
        .token("s3cret");
    assert!(!format!("{builder:?}").contains("s3cret"));
    check(&collector, builder, "Bearer s3cret");
}

#[test]
fn a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::default();
    let address = collector
        .clone()
        .start_on_unix_socket(&directory.path().join("collector.sock"));
    check(
        &collector,
        stroboscope::builder().collector(address),
        "none",
    );
}

/// Checks that a process starts although the unix socket does not exist, and that `stats` names the
/// address.
#[test]
fn a_unix_socket_that_is_not_there_is_named() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = stroboscope::builder()
        .collector("unix:/nowhere/collector.sock")
        .shutdown_deadline(Duration::ZERO)
        .init()
        .unwrap();
    wait_for("an explanation", || stroboscope::stats().trouble.is_some());
    let trouble = stroboscope::stats().trouble.unwrap();
    assert!(
        trouble.contains("collector at unix:/nowhere/collector.sock"),
        "{trouble}"
    );
    drop(guard);
}

/// Starts recording with an address that is no collector's, and returns the problem that `stats`
/// reports.
fn trouble_at(address: &str) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = stroboscope::builder()
        .collector(address)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .unwrap();
    wait_for("an explanation", || stroboscope::stats().trouble.is_some());
    let trouble = stroboscope::stats().trouble.unwrap();
    drop(guard);
    trouble
}

#[test]
fn who_answers_and_is_no_collector_is_doubted() {
    // A web server that supports only HTTP/1.1.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let web = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    // A gRPC server of another kind, such as OpenTelemetry's collector.
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(format!("http://{}", listener.local_addr().unwrap()))
                .unwrap();
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            let router =
                tonic::transport::Server::builder().add_routes(tonic::service::Routes::default());
            router.serve_with_incoming(incoming).await.unwrap();
        });
    });
    for address in [web, receive.recv().unwrap()] {
        let trouble = trouble_at(&address);
        assert!(
            trouble.contains(&address) && trouble.contains("4317"),
            "{trouble}"
        );
        assert!(!trouble.contains("MetadataMap"), "{trouble}");
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use tonic::transport::{Identity, Server, ServerTlsConfig};

    const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/ca.pem");

    fn start(collector: &Collector) -> String {
        // A certificate for `localhost`, signed by the authority in `tls/ca.pem`. Both are used
        // only in these tests.
        let identity = Identity::from_pem(
            include_str!("tls/server.pem"),
            include_str!("tls/server.key"),
        );
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap();
        let address = collector.clone().serve(server, None);
        address.replace("http://127.0.0.1", "https://localhost")
    }

    #[test]
    fn https_with_a_certificate_authority_and_a_token() {
        let collector = Collector::default();
        let builder = stroboscope::builder()
            .collector(start(&collector))
            .certificate_authority(CA)
            .token("s3cret");
        check(&collector, builder, "Bearer s3cret");
    }

    #[test]
    fn a_collector_signed_by_somebody_else_gets_nothing() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let collector = Collector::default();
        let guard = stroboscope::builder()
            .collector(start(&collector))
            .shutdown_deadline(Duration::ZERO)
            .init()
            .unwrap();
        wait_for("an explanation", || stroboscope::stats().trouble.is_some());
        let trouble = stroboscope::stats().trouble.unwrap();
        assert!(trouble.contains("certificate"), "{trouble}");
        drop(guard);
        assert!(collector.authorizations().is_empty());
    }
}
