//! Policies that the collector sends.

use stroboscope_proto::v1;
use stroboscope_tradeoff::Policy;

use super::in_force;

/// The collector directs what to decide by; a policy that makes no sense is not taken, and counted.
pub(crate) fn directed(sent: v1::TradeoffPolicy) {
    let policy = Policy::from(sent);
    if policy.is_empty() {
        in_force::uninstall();
    } else {
        // What is wrong with it is in the statistics; nobody else is there to be told.
        let _ = in_force::install(policy);
    }
}

/// Counts a directive that could not be parsed as a policy that is not taken.
pub(crate) fn refused(problem: &str) {
    in_force::refused(problem.to_owned());
}
