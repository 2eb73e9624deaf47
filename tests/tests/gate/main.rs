//! Tests of the collector's ports: certificates, tokens, host names, origins, malicious clients,
//! and redaction.

mod access;
mod bad;
mod bombs;
mod certificates;
mod client;
mod cors;
mod masks;
mod redaction;
mod tls_clients;
mod withdrawn;

use stroboscope_tests::{Program, Server};

/// A collector, and the addresses of its ports.
struct Collector {
    server: Server,
    grpc: String,
    otlp: String,
    pages: String,
}

/// Starts a collector on free ports of loopback.
fn collect(program: &Program, more: &[&str]) -> Collector {
    let mut command = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    command.args(["--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(more);
    let mut server = Server::start(command);
    let bare = |url: String| {
        let bare = url.trim_end_matches("/v1/traces");
        let bare = bare.trim_start_matches("https://");
        bare.trim_start_matches("http://").to_owned()
    };
    let grpc = server.collector_address();
    let otlp = bare(server.after("collecting OTLP on "));
    let pages = bare(server.after("page on "));
    Collector {
        server,
        grpc,
        otlp,
        pages,
    }
}

/// Returns the value of a metric of rejections.
fn turned_away(metrics: &str, door: &str, cause: &str) -> u64 {
    let line = format!("stroboscope_turned_away_total{{door=\"{door}\",cause=\"{cause}\"}} ");
    let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
    let value = value.unwrap_or_else(|| panic!("there is no {line} in {metrics}"));
    value.parse().expect("a number")
}
