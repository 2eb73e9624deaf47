//! Access control of servers: TLS, tokens, limits, and the addresses on which they may listen.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stroboscope_server::net::{CorsOrigin, NetSettings, TlsFiles};

use super::memory::MemorySplit;
use stroboscope_reports::Failure;
use stroboscope_reports::arguments::parse_duration;

/// Arguments of ports, some of which browsers use.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Access")]
pub(super) struct NetArguments {
    #[command(flatten)]
    ports: PortArguments,
    /// Another host name of this collector that browsers may use; repeatable
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
}

impl Deref for NetArguments {
    type Target = PortArguments;

    fn deref(&self) -> &PortArguments {
        &self.ports
    }
}

/// Arguments of all ports.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Access")]
pub(super) struct PortArguments {
    /// Certificate for all TCP ports, with its chain, as PEM; enables TLS. A changed file is read
    /// again within a second
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates that one of these authorities signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Require a token from this file, which has lines of `ROLE TOKEN`. Roles are write (to send),
    /// read (pages and metrics), control (to set the burst-config), or several, such as
    /// read,control. A changed file is read again within a second
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Allow unauthenticated access from non-loopback addresses
    #[arg(long)]
    insecure_listen: bool,
    /// Maximum number of open connections on each port
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Timeout of a TLS handshake, of the head of a request, and of its body or message, each
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    request_timeout: Duration,
}

/// Number of file descriptors reserved for everything but connections, such as the log and the
/// store.
const FILES_BESIDE: u64 = 256;
/// Maximum number of TCP ports, without those for clients of Jaeger and Tempo.
const DOORS: u64 = 3;

impl PortArguments {
    /// Rejects non-loopback addresses unless clients have to authenticate or `--insecure-listen` is
    /// given. Logs a warning if there is such an address without TLS.
    pub(super) fn check(&self, listen: &[(&str, SocketAddr)]) -> Result<(), Failure> {
        let is_beyond =
            |(_, address): &&(&str, SocketAddr)| !address.ip().to_canonical().is_loopback();
        let Some((flag, address)) = listen.iter().find(is_beyond) else {
            return Ok(());
        };
        let is_asking = self.token_file.is_some() || self.tls_client_ca.is_some();
        if !is_asking && !self.insecure_listen {
            return Err(Failure::new(format!(
                "{flag} {address} is beyond loopback, and everyone who reaches it could read and write the recorded \
                 data: require tokens with --token-file FILE (and --tls-cert and --tls-key), or certificates with \
                 --tls-client-ca FILE; --insecure-listen requires neither, for networks that admit nobody else"
            )));
        }
        if self.tls_cert.is_none() {
            tracing::warn!(
                "{flag} {address} is beyond loopback, and nothing is encrypted, not even tokens: enable TLS with \
                 --tls-cert and --tls-key"
            );
        }
        Ok(())
    }

    /// Reports whether clients need tokens.
    pub(super) fn asks_for_tokens(&self) -> bool {
        self.token_file.is_some()
    }

    /// Returns the path and name of the login page; `None` if no token is required.
    pub(super) fn login(&self) -> Option<(&'static str, &'static str)> {
        self.asks_for_tokens().then_some(("/login", "Login"))
    }

    /// Returns the URL scheme of the ports, `http` or `https`.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() {
            "https"
        } else {
            "http"
        }
    }
}

impl NetArguments {
    /// Returns the settings of the ports; `readers` is the number of those for clients of Jaeger
    /// and of Tempo, and `has_unix` is true if there is a unix socket.
    pub(super) fn settings(
        &self,
        memory: MemorySplit,
        readers: usize,
        has_unix: bool,
    ) -> NetSettings {
        let readers = readers as u64;
        let mut settings = NetSettings {
            tls: self.tls(),
            tokens: self.token_file.clone(),
            allowed_hosts: self.allowed_host.clone(),
            connections_max: connections(
                self.max_connections,
                DOORS + readers + u64::from(has_unix),
            ),
            request_timeout: self.request_timeout,
            ..NetSettings::default()
        };
        memory.bound_doors(&mut settings, readers, has_unix);
        settings
    }
}

impl PortArguments {
    /// Returns the settings of a worker's port. Requests that arrive take at most a quarter of
    /// `memory`, in bytes.
    #[cfg(feature = "cluster")]
    pub(super) fn worker_settings(&self, memory: u64) -> NetSettings {
        NetSettings {
            tls: self.tls(),
            tokens: self.token_file.clone(),
            connections_max: connections(self.max_connections, 1),
            request_timeout: self.request_timeout,
            reading_bytes_max: usize::try_from(memory / 4).unwrap_or(usize::MAX),
            ..NetSettings::default()
        }
    }

    fn tls(&self) -> Option<TlsFiles> {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        tls.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca: self.tls_client_ca.clone(),
        })
    }
}

/// Returns the maximum number of connections to each port: the requested number, or fewer if the
/// limit on open files requires it.
fn connections(asked: u32, ports: u64) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    // Raise the limit as far as possible. The next lines handle a failure.
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = (files.saturating_sub(FILES_BESIDE) / ports).max(1);
    if u64::from(asked) > room {
        tracing::warn!(
            "--max-connections {asked} exceeds the limit of {files} open files of this process: it is reduced to \
             {room}. `ulimit -n` shows the limit"
        );
    }
    usize::try_from(room.min(u64::from(asked))).unwrap_or(usize::MAX)
}

/// Checks the origins whose pages may send OTLP over HTTP.
pub(super) fn check_origins(origins: &[CorsOrigin], has_otlp_http: bool) -> Result<(), Failure> {
    let problem = if origins.is_empty() {
        return Ok(());
    } else if !has_otlp_http {
        "--cors-origin is for OTLP over HTTP, which --otlp-http none disables"
    } else if origins.len() > 1 && origins.contains(&CorsOrigin::Any) {
        "--cors-origin '*' allows all origins: leave out the others, or '*'"
    } else {
        return Ok(());
    };
    Err(Failure::new(problem.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        doors: NetArguments,
    }

    #[test]
    fn beyond_loopback_somebody_asks() {
        let check = |arguments: &[&str], address: &str, is_allowed: bool| {
            let all = ["collect"].iter().chain(arguments);
            let Arguments { doors } = Arguments::try_parse_from(all).unwrap();
            let listen = [
                ("--listen", "127.0.0.1:1".parse().unwrap()),
                ("--http", address.parse().unwrap()),
            ];
            let checked = doors.check(&listen);
            assert_eq!(checked.is_ok(), is_allowed, "{arguments:?} {address}");
            if let Err(Failure { cause: said, .. }) = checked {
                assert!(
                    said.contains("--http") && said.contains("--token-file"),
                    "{said}"
                );
            }
        };
        for loopback in [
            "127.0.0.1:2",
            "127.9.9.9:2",
            "[::1]:2",
            "[::ffff:127.0.0.1]:2",
        ] {
            check(&[], loopback, true);
        }
        for beyond in ["0.0.0.0:2", "[::]:2", "10.0.0.1:2", "[::ffff:10.0.0.1]:2"] {
            check(&[], beyond, false);
            check(&["--tls-cert", "c", "--tls-key", "k"], beyond, false);
            check(&["--token-file", "t"], beyond, true);
            check(
                &["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"],
                beyond,
                true,
            );
            check(&["--insecure-listen"], beyond, true);
        }
    }
}
