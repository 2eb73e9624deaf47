//! The demo's processes: the newsfeed's roles, each this same program started again.

use stroboscope_newsfeed::{Fleet, FleetError, FleetOptions, LoadReport};

/// The verb, hidden from help, under which this program is one role of the newsfeed.
pub const ROLE_VERB: &str = "newsfeed";

/// What became of the load.
pub(super) enum Loaded {
    /// It ran to its end.
    Report(LoadReport),
    /// A signal of this number came first.
    Interrupted(i32),
}

/// Runs the load against a fresh fleet and stops it, or what there is of it when `interrupted` resolves first. Nothing
/// is left running in either case.
///
/// # Errors
/// A process did not start, or ended by itself.
pub(super) async fn run(
    options: FleetOptions,
    started: impl FnOnce(&[(&'static str, u32)]),
    interrupted: impl Future<Output = i32>,
) -> Result<Loaded, FleetError> {
    tokio::pin!(interrupted);
    let mut fleet = tokio::select! {
        // Dropping a half-started fleet kills what it has started.
        fleet = Fleet::start(options) => fleet?,
        signal = &mut interrupted => return Ok(Loaded::Interrupted(signal)),
    };
    started(&fleet.pids());
    let report = tokio::select! {
        report = fleet.run_load() => report.map(Loaded::Report),
        signal = &mut interrupted => Ok(Loaded::Interrupted(signal)),
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
