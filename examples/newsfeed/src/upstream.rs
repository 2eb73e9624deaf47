//! Connections to the roles that a role depends on.

use std::io;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use stroboscope::marked::{ConnectionUsers, UsedStream, UsingService};
use stroboscope::tower::{ClientLayer, ClientService};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::{Layer, service_fn};

/// Connection to another role. It carries the context of the request that uses it, and attributes
/// its system calls to that request.
pub(crate) type Upstream = ClientService<UsingService<Channel>>;

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Timeout of one attempt.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Error for a role that this one depends on and that cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The address is not a URL of a gRPC server.
    #[error("--{role} {url:?} is not a URL such as http://127.0.0.1:7001: {problem}")]
    BadUrl {
        /// Name of the flag: the role at the other end, or `duplicate`.
        role: &'static str,
        /// URL as it was given.
        url: String,
        /// Description of the problem.
        problem: String,
    },
    /// The role does not answer at this URL.
    #[error(
        "cannot reach the {role} at {url} within {waited_ms} ms: {problem}; \
         start the {role} first, or check --{role}"
    )]
    Unreachable {
        /// Name of the role at the other end.
        role: &'static str,
        /// URL of the role.
        url: String,
        /// Time for which this role tried, in milliseconds.
        waited_ms: u128,
        /// Text of the last error.
        problem: String,
    },
}

/// Connects to `role` at `url`. Retries for the time `patience`.
///
/// # Errors
/// Returns an error if `url` is not a URL, or the role does not answer in time.
pub(crate) async fn connect(
    role: &'static str,
    url: &str,
    patience: Duration,
) -> Result<Upstream, UpstreamError> {
    let bad = |problem: String| UpstreamError::BadUrl {
        role,
        url: url.to_owned(),
        problem,
    };
    let uri: Uri = url.parse().map_err(|error| bad(format!("{error}")))?;
    if uri.scheme_str() != Some("http") || uri.authority().is_none() {
        return Err(bad("it needs http:// and a host".to_owned()));
    }
    let endpoint = Endpoint::from(uri).connect_timeout(ATTEMPT);
    let users = ConnectionUsers::default();
    let start = Instant::now();
    loop {
        let of_users = users.clone();
        let connector = service_fn(move |uri| open(uri, of_users.clone()));
        match endpoint.connect_with_connector(connector).await {
            Ok(channel) => return Ok(ClientLayer::new().layer(users.layer(channel))),
            Err(error) if start.elapsed() >= patience => {
                let (url, waited_ms) = (url.to_owned(), start.elapsed().as_millis());
                return Err(UpstreamError::Unreachable {
                    role,
                    url,
                    waited_ms,
                    problem: root_cause(&error),
                });
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Opens a connection whose reads and writes are attributed to the requests that use it.
async fn open(uri: Uri, users: ConnectionUsers) -> io::Result<TokioIo<UsedStream<TcpStream>>> {
    let to = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80));
    // An IPv6 address has brackets in a URL, and none in a socket address.
    let stream = TcpStream::connect((to.0.trim_matches(['[', ']']), to.1)).await?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(users.wrap(stream)))
}

/// Returns the text of the innermost error, because tonic's own text is only "transport error".
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(result: Result<Upstream, UpstreamError>, expected: &[&str]) {
        let error = result.expect_err("no connection").to_string();
        for part in expected {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }

    #[tokio::test]
    async fn errors_name_the_role_the_address_and_the_flag() {
        let patience = Duration::from_millis(120);
        for url in ["", "::", "127.0.0.1:1", "https://127.0.0.1:1", "ftp://a"] {
            check(
                connect("store", url, patience).await,
                &["--store", "is not a URL"],
            );
        }
        // Port 1 of loopback is reserved, and has no listener.
        let result = connect("web", "http://127.0.0.1:1", patience).await;
        check(
            result,
            &[
                "cannot reach the web at http://127.0.0.1:1",
                "refused",
                "check --web",
            ],
        );
    }
}
