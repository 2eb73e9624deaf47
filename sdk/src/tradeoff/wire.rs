//! Applies policies sent by the collector.

use stroboscope_proto::v1;
use stroboscope_tradeoff::Policy;

use super::in_force;

/// Installs a policy from the collector. An empty policy removes the policy in force. An invalid
/// policy is rejected and counted.
pub(crate) fn directed(sent: v1::TradeoffPolicy) {
    let policy = Policy::from(sent);
    if policy.is_empty() {
        in_force::uninstall();
    } else {
        // The statistics describe the problem; there is no caller to report it to.
        let _ = in_force::install(policy);
    }
}

/// Counts a directive that was rejected before or during parsing as a rejected policy.
pub(crate) fn refused(problem: &str) {
    in_force::refused(problem.to_owned());
}
