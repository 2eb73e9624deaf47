//! The demo's processes: the newsfeed's roles, each this same program started again.

use stroboscope_newsfeed::{Fleet, FleetError, FleetOptions, LoadReport};

/// The verb, hidden from help, under which this program is one role of the newsfeed.
pub const ROLE_VERB: &str = "newsfeed";

/// Runs the load against a fresh fleet and stops it; `None` when `interrupted` resolved first. Nothing is left running
/// in either case.
///
/// # Errors
/// A process did not start, or ended by itself.
pub(super) async fn run(
    options: FleetOptions,
    started: impl FnOnce(&[(&'static str, u32)]),
    interrupted: impl Future<Output = ()>,
) -> Result<Option<LoadReport>, FleetError> {
    tokio::pin!(interrupted);
    let mut fleet = tokio::select! {
        // Dropping a half-started fleet kills what it has started.
        fleet = Fleet::start(options) => fleet?,
        () = &mut interrupted => return Ok(None),
    };
    started(&fleet.pids());
    let report = tokio::select! {
        report = fleet.run_load() => report.map(Some),
        () = &mut interrupted => Ok(None),
    };
    for stopped in fleet.stop().await.iter().filter(|stopped| !stopped.clean) {
        tracing::warn!("{} (pid {}) did not stop cleanly: {}", stopped.role, stopped.pid, stopped.status);
    }
    report
}
