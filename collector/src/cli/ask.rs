//! Sends one request to a collector's HTTP port and reads the response.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

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
    Silent(SocketAddr, io::Error),
    #[error("the server at {0} is not a collector, or requires TLS")]
    Foreign(SocketAddr),
}

/// Parses `HOST:PORT`, and looks up the host. Of several addresses, returns the first.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| format!("{error}; expected HOST:PORT, such as 127.0.0.1:4319"))?;
    found
        .next()
        .ok_or_else(|| "this host has no address".to_owned())
}

/// Requests a page without TLS. Sends the token in the environment variable STROBOSCOPE_TOKEN if it
/// is set and has no control characters. `patience` is the timeout for connecting, and for each
/// read and write. Truncates the response, including its head, at `bytes_max`.
pub(super) fn ask(
    address: SocketAddr,
    path: &str,
    patience: Duration,
    bytes_max: u64,
) -> Result<Response, NoResponse> {
    request(address, &format!("GET {path}"), "", patience, bytes_max)
}

/// Posts a text, and otherwise works as [`ask`].
pub(super) fn post(
    address: SocketAddr,
    path: &str,
    body: &str,
    patience: Duration,
    bytes_max: u64,
) -> Result<Response, NoResponse> {
    request(address, &format!("POST {path}"), body, patience, bytes_max)
}

fn request(
    address: SocketAddr,
    target: &str,
    body: &str,
    patience: Duration,
    bytes_max: u64,
) -> Result<Response, NoResponse> {
    let answer = exchange(address, target, body, patience, bytes_max)
        .map_err(|error| NoResponse::Silent(address, error))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.strip_prefix("HTTP/").and_then(|head| {
        let status = head.split_whitespace().nth(1)?;
        status.parse().ok()
    });
    Ok(Response {
        status: status.ok_or(NoResponse::Foreign(address))?,
        body: body.to_owned(),
    })
}

fn exchange(
    address: SocketAddr,
    target: &str,
    body: &str,
    patience: Duration,
    bytes_max: u64,
) -> io::Result<String> {
    let mut connection = TcpStream::connect_timeout(&address, patience)?;
    connection.set_read_timeout(Some(patience))?;
    connection.set_write_timeout(Some(patience))?;
    let token = std::env::var("STROBOSCOPE_TOKEN").ok();
    let token = token.filter(|token| !token.chars().any(char::is_control));
    let authorization = token.map_or_else(String::new, |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    // HTTP/1.0 responses are not chunked, and end with the connection.
    write!(
        connection,
        "{target} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n{authorization}\r\n{body}",
        body.len()
    )?;
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
        assert!(loopback.ip().is_loopback() && loopback.port() == 4319);
        assert_eq!(parse_address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for wrong in ["localhost", "4319", "127.0.0.1:99999", "", "no such host:1"] {
            assert!(
                parse_address(wrong).unwrap_err().contains("HOST:PORT"),
                "{wrong}"
            );
        }
    }
}
