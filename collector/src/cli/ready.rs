//! `ready`

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use super::ask::ask;
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};

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
