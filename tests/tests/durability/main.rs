//! Durability, with real processes, sockets and disks: kills under load, absent gateways, failing
//! disks, changes of the burst-config, and a collector without input.

mod absence;
mod acknowledgements;
mod agents;
mod failing_disk;
mod kills;
mod quiet;
mod senders;
mod stored;
mod switching;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use stroboscope_tests::{Program, Server};

/// Addresses of a collector, which stay the same after each restart.
#[derive(Clone, Copy, Debug)]
struct Ports {
    grpc: SocketAddr,
    otlp: SocketAddr,
    pages: SocketAddr,
}

impl Ports {
    fn free() -> Self {
        // These ports are below those that the system gives to clients, so no client takes them
        // while the collector is away.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = 10_000 + std::process::id() % 1_000 * 20 + NEXT.fetch_add(5, Relaxed);
        let mut free = (first..32_000).filter_map(|port| {
            let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).ok()?));
            TcpListener::bind(address).is_ok().then_some(address)
        });
        let mut next = || free.next().expect("a free port");
        Self {
            grpc: next(),
            otlp: next(),
            pages: next(),
        }
    }

    /// Starts a collector on `data`, and waits until it listens.
    fn collect(&self, data: &Path, more: &[&str]) -> Server {
        let mut command = Command::new(Program::path());
        command.arg("collect").arg("--data").arg(data);
        command.args(["--listen", &self.grpc.to_string()]);
        command.args(["--otlp-http", &self.otlp.to_string()]);
        command.args(["--http", &self.pages.to_string()]);
        command.args(more).stdin(Stdio::null());
        let mut server = Server::start(command);
        // The port for pages is the last that the collector opens.
        server.wait_for("its doors", |said| {
            said.contains("page on http://").then_some(())
        });
        server
    }

    /// Returns the status and body of `/healthz`.
    fn health(&self) -> (String, String) {
        let (head, body) = ask(self.pages, "GET /healthz", &[], b"").expect("the pages");
        (head.split(' ').nth(1).unwrap_or_default().to_owned(), body)
    }

    /// Waits until `/healthz` has this status, and returns its text.
    fn wait_for_health(&self, status: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let health = self.health();
            if health.0 == status {
                return health.1;
            }
            assert!(Instant::now() < deadline, "not {status}: {health:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = ask(self.pages, "GET /metrics", &[], b"")
            .expect("the pages")
            .1;
        let value = metrics.lines().find_map(|line| {
            let rest = line.strip_prefix("stroboscope_")?.strip_prefix(name)?;
            rest.trim().parse().ok()
        });
        value.unwrap_or_else(|| panic!("{name} is not in {metrics}"))
    }
}

/// Sends one request over HTTP/1.1. Returns the status line with the headers, and the body.
fn ask(
    address: SocketAddr,
    what: &str,
    headers: &[&str],
    body: &[u8],
) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let head = format!(
        "{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // The server may answer before it has read all.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.to_owned(), body.to_owned()))
}
