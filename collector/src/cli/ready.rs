//! `ready`

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use super::output::print;
use super::{Failure, Status};

/// How long a collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Ask a running collector whether it takes what is sent
///
/// Prints `ok` and ends with status 0 if it does; otherwise says why not, and ends with status 2. For probes inside of
/// containers that have no other program. Speaks no TLS.
#[derive(Debug, Args)]
pub(super) struct Ready {
    /// The collector's address for pages and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4319")]
    http: SocketAddr,
}

impl Ready {
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let answer = self
            .ask()
            .map_err(|error| Failure(format!("no collector answers at {}: {error}", self.http)))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split_whitespace().nth(1);
        match status {
            Some("200") => print(body.trim_end()).map(|()| Status::Done),
            Some(_) => Err(Failure(format!("not ready: {}", body.trim_end()))),
            None => Err(Failure(format!(
                "what listens at {} is no collector, or speaks TLS",
                self.http
            ))),
        }
    }

    fn ask(&self) -> std::io::Result<String> {
        let mut connection = TcpStream::connect_timeout(&self.http, PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        // The older protocol: its answers are not chunked, and end with the connection.
        write!(
            connection,
            "GET /readyz HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.http
        )?;
        let mut answer = Vec::new();
        connection.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
