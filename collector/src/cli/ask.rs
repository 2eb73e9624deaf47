//! Sends one request to a collector's HTTP port and reads the response.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stroboscope_reports::Failure;
use stroboscope_reports::failure::FailureCode;
use stroboscope_server::net::TlsClient;

/// HTTP response of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub status: u16,
    pub body: String,
}

/// Reason why a request got no response from a collector.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoResponse {
    #[error("no collector answers at {0}: {1}")]
    Silent(HttpAddress, io::Error),
    #[error("the server at {0} is not a collector, or requires TLS: --http https://HOST:PORT")]
    Foreign(HttpAddress),
}

/// Address of a collector's HTTP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpAddress {
    /// Addresses of the host; at least one.
    sockets: Vec<SocketAddr>,
    /// Host name or IP address that the certificate must be for; `None` without TLS.
    tls_host: Option<String>,
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.tls_host.as_ref().map_or("", |_| "https://");
        write!(f, "{scheme}{}", self.authority())
    }
}

impl HttpAddress {
    /// Returns the host and the port for a request; without TLS, the host's first address.
    fn authority(&self) -> String {
        let first = self.sockets[0];
        match &self.tls_host {
            Some(name) if name.contains(':') => format!("[{name}]:{}", first.port()),
            Some(name) => format!("{name}:{}", first.port()),
            None => first.to_string(),
        }
    }

    /// Connects to the first address that accepts a connection.
    fn connect(&self, patience: Duration) -> io::Result<TcpStream> {
        let mut tried = Err(io::ErrorKind::AddrNotAvailable.into());
        for socket in &self.sockets {
            tried = TcpStream::connect_timeout(socket, patience);
            if tried.is_ok() {
                break;
            }
        }
        tried
    }
}

/// Arguments of the subcommands that request pages of a collector.
#[derive(Clone, Debug, Args)]
pub(super) struct HttpArguments {
    /// Address of the collector's pages and metrics, by IP address or host name; with TLS,
    /// https://HOST:PORT
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4319", value_parser = parse_address)]
    http: HttpAddress,
    /// Authority that signed the certificate of an https collector, as PEM [default: those of the
    /// system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl HttpArguments {
    /// Creates a client of the collector.
    pub(super) fn client(&self) -> Result<HttpClient, Failure> {
        let wrong = |cause: String| Failure::coded(FailureCode::Asked, cause);
        let tls = match (&self.http.tls_host, &self.ca) {
            (None, None) => None,
            (None, Some(_)) => return Err(wrong("--ca needs --http https://HOST:PORT".to_owned())),
            (Some(_), ca) => {
                let name = ca
                    .as_ref()
                    .map_or(String::new(), |ca| format!("--ca {}: ", ca.display()));
                let pem = ca.as_ref().map(std::fs::read).transpose();
                let pem = pem.map_err(|error| wrong(format!("{name}{error}")))?;
                let client = TlsClient::new(pem.as_deref());
                Some(client.map_err(|error| wrong(format!("{name}{error}")))?)
            }
        };
        Ok(HttpClient {
            address: self.http.clone(),
            tls,
        })
    }
}

/// Parses `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`, and looks up the host.
fn parse_address(text: &str) -> Result<HttpAddress, String> {
    let (is_tls, address) = match text.strip_prefix("https://") {
        Some(address) => (true, address),
        None => (false, text.strip_prefix("http://").unwrap_or(text)),
    };
    let address = address.trim_end_matches('/');
    let found = address.to_socket_addrs().map_err(|error| {
        format!("{error}; expected HOST:PORT or https://HOST:PORT, such as 127.0.0.1:4319")
    })?;
    let sockets: Vec<SocketAddr> = found.collect();
    if sockets.is_empty() {
        return Err("this host has no address".to_owned());
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(HttpAddress {
        sockets,
        tls_host: is_tls.then(|| host.to_owned()),
    })
}

/// Client of a collector's HTTP port. Sends the token in the environment variable STROBOSCOPE_TOKEN
/// if it is set, is UTF-8 and has no control characters.
#[derive(Clone, Debug)]
pub(super) struct HttpClient {
    address: HttpAddress,
    tls: Option<TlsClient>,
}

impl HttpClient {
    pub(super) fn address(&self) -> &HttpAddress {
        &self.address
    }

    /// Requests a page. `patience` is the timeout for each attempt to connect, each read and each
    /// write. Truncates the response, including its head, at `bytes_max`.
    pub(super) fn ask(
        &self,
        path: &str,
        patience: Duration,
        bytes_max: u64,
    ) -> Result<Response, NoResponse> {
        self.request(&format!("GET {path}"), "", patience, bytes_max)
    }

    /// Posts a text, and otherwise works as [`ask`](Self::ask).
    pub(super) fn post(
        &self,
        path: &str,
        body: &str,
        patience: Duration,
        bytes_max: u64,
    ) -> Result<Response, NoResponse> {
        self.request(&format!("POST {path}"), body, patience, bytes_max)
    }

    fn request(
        &self,
        target: &str,
        body: &str,
        patience: Duration,
        bytes_max: u64,
    ) -> Result<Response, NoResponse> {
        let answer = self
            .exchange(target, body, patience, bytes_max)
            .map_err(|error| NoResponse::Silent(self.address.clone(), error))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.strip_prefix("HTTP/").and_then(|head| {
            let status = head.split_whitespace().nth(1)?;
            status.parse().ok()
        });
        Ok(Response {
            status: status.ok_or_else(|| NoResponse::Foreign(self.address.clone()))?,
            body: body.to_owned(),
        })
    }

    fn exchange(
        &self,
        target: &str,
        body: &str,
        patience: Duration,
        bytes_max: u64,
    ) -> io::Result<String> {
        let connection = self.address.connect(patience)?;
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(patience))?;
        let token = std::env::var("STROBOSCOPE_TOKEN").ok();
        let token = token.filter(|token| !token.chars().any(char::is_control));
        let authorization = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        // HTTP/1.0 responses are not chunked, and end with the connection.
        let request = format!(
            "{target} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n{authorization}\r\n{body}",
            self.address.authority(),
            body.len()
        );
        match self.tls.as_ref().zip(self.address.tls_host.as_ref()) {
            Some((tls, name)) => converse(tls.encrypt(name, connection)?, &request, bytes_max),
            None => converse(connection, &request, bytes_max),
        }
    }
}

fn converse(
    mut connection: impl Read + Write,
    request: &str,
    bytes_max: u64,
) -> io::Result<String> {
    connection.write_all(request.as_bytes())?;
    connection.flush()?;
    let mut answer = Vec::new();
    connection.take(bytes_max).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let loopback = parse_address("localhost:4319").unwrap();
        let is_ours = |of: &SocketAddr| of.ip().is_loopback() && of.port() == 4319;
        assert!(loopback.sockets.iter().all(is_ours));
        assert_eq!(loopback.tls_host, None);
        assert_eq!(parse_address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for (text, host) in [
            ("https://localhost:4319", "localhost"),
            ("https://[::1]:80/", "::1"),
            ("https://127.0.0.1:80", "127.0.0.1"),
        ] {
            let address = parse_address(text).unwrap();
            assert_eq!(address.tls_host.as_deref(), Some(host), "{text}");
            assert_eq!(address.to_string(), text.trim_end_matches('/'));
        }
        assert_eq!(
            parse_address("http://127.0.0.1:80"),
            parse_address("127.0.0.1:80")
        );
        for wrong in [
            "localhost",
            "4319",
            "127.0.0.1:99999",
            "",
            "no such host:1",
            "https://localhost",
        ] {
            assert!(
                parse_address(wrong).unwrap_err().contains("HOST:PORT"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn authorities_are_of_tls() {
        let client = |http: &str, ca: Option<&str>| {
            let arguments = HttpArguments {
                http: parse_address(http).unwrap(),
                ca: ca.map(PathBuf::from),
            };
            arguments.client().map(|client| client.tls.is_some())
        };
        assert!(!client("127.0.0.1:80", None).unwrap());
        let causes = [
            client("127.0.0.1:80", Some("ca.pem")).unwrap_err().cause,
            client("https://127.0.0.1:80", Some("/no/such/file"))
                .unwrap_err()
                .cause,
            client("https://127.0.0.1:80", Some("/dev/null"))
                .unwrap_err()
                .cause,
        ];
        let expected = ["--ca needs", "--ca /no/such/file: ", "no PEM certificate"];
        for (cause, expected) in causes.iter().zip(expected) {
            assert!(cause.contains(expected), "{cause}");
        }
    }
}
