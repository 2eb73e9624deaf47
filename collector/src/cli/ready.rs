//! The `ready` subcommand.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use super::ask::{ask, parse_address};
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};

/// Timeout of the request to the collector.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a response, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Check whether a running collector accepts data
///
/// Prints `ok` and exits with status 0 if it does; otherwise prints the reason and exits with
/// status 2. For probes in containers that have no other program. Does not support TLS.
#[derive(Debug, Args)]
pub(super) struct Ready {
    /// Address of the collector's pages and metrics, by IP address or host name
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4319", value_parser = parse_address)]
    http: SocketAddr,
}

impl Ready {
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let answer = ask(self.http, "/readyz", PATIENCE, ANSWER_BYTES_MAX).map_err(Failure::of)?;
        match answer.status {
            200 => print(answer.body.trim_end()).map(|()| Status::Done),
            _ => Err(Failure::new(format!(
                "not ready: {}",
                answer.body.trim_end()
            ))),
        }
    }
}
