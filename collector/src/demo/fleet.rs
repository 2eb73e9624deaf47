//! Processes of the demo: each role of the newsfeed is this same program, started again.

use stroboscope_newsfeed::{Fleet, FleetError, FleetOptions, LoadReport};

/// Hidden subcommand under which this program runs one role of the newsfeed.
pub const ROLE_VERB: &str = "newsfeed";

/// Result of running the load.
pub(super) enum LoadOutcome {
    /// Report of a load that ran to its end.
    Report(LoadReport),
    /// Number of the signal that interrupted the load.
    Interrupted(i32),
}

/// Runs the load against a fresh fleet and stops the fleet, also when `interrupted` resolves first.
/// Leaves nothing running in either case.
///
/// # Errors
/// Returns an error if an option is invalid, if a process does not start or ends before the load
/// does, or if the client fails.
pub(super) async fn run(
    options: FleetOptions,
    started: impl FnOnce(&[(&'static str, u32)]),
    interrupted: impl Future<Output = i32>,
) -> Result<LoadOutcome, FleetError> {
    tokio::pin!(interrupted);
    let mut fleet = tokio::select! {
        // Dropping a half-started fleet kills the processes that it has started.
        fleet = Fleet::start(options) => fleet?,
        signal = &mut interrupted => return Ok(LoadOutcome::Interrupted(signal)),
    };
    started(&fleet.pids());
    let report = tokio::select! {
        report = fleet.run_load() => report.map(LoadOutcome::Report),
        signal = &mut interrupted => Ok(LoadOutcome::Interrupted(signal)),
    };
    for stopped in fleet.stop().await.iter().filter(|stopped| !stopped.clean) {
        tracing::warn!(
            "{} (pid {}) did not stop cleanly: {}",
            stopped.role,
            stopped.pid,
            stopped.status
        );
    }
    report
}
