//! The `collect ready` subcommand.

use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use super::ask::HttpArguments;
use stroboscope_reports::output::print;
use stroboscope_reports::{Failure, Status};

/// Timeout for each attempt to connect to the collector, each read and each write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a response and its head, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Check whether a running collector accepts data
///
/// Prints `ok` and exits with status 0 if it does; otherwise prints the reason and exits with
/// status 2. For probes in containers that have no other program.
#[derive(Debug, Args)]
pub(super) struct Ready {
    #[command(flatten)]
    collector: HttpArguments,
}

impl Ready {
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let client = self.collector.client()?;
        let answer = client.ask("/readyz", PATIENCE, ANSWER_BYTES_MAX);
        let answer = answer.map_err(Failure::of)?;
        match answer.status {
            200 => print(answer.body.trim_end()).map(|()| Status::Done),
            _ => Err(Failure::new(format!(
                "not ready: {}",
                answer.body.trim_end()
            ))),
        }
    }
}
