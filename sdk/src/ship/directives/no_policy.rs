//! Policies of data-quality tradeoffs in a service that is built without the feature `tradeoff`:
//! all are rejected.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use prost::bytes::Bytes;
use stroboscope_proto::v1;

use super::{SET_TRADEOFFS, each_field};
use crate::sys;

/// Rejects a directive with a policy, before it is parsed, and a malformed one.
pub(super) fn check(directive: Bytes) -> Result<(), String> {
    each_field(directive, |tag, _| match tag {
        SET_TRADEOFFS => Err(
            "the collector sent a policy of data-quality tradeoffs, but the service is built \
             without the feature `tradeoff` of the crate `stroboscope`: nothing is left out"
                .to_owned(),
        ),
        _ => Ok(()),
    })
}

/// Does nothing, because [`check`] rejects every policy.
pub(super) fn install(_: v1::TradeoffPolicy) {}

/// Prints the first problem of the process on standard error.
pub(super) fn refuse(problem: &str) {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    if !PRINTED.swap(true, Relaxed) {
        sys::say(format_args!("{problem}"));
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_policy_is_refused_and_other_directives_are_taken() {
        let encoded = |kind| {
            let directive = v1::Directive { kind: Some(kind) };
            directive.encode_to_vec().into()
        };
        let policy = v1::directive::Kind::SetTradeoffs(v1::TradeoffPolicy::default());
        let problem = check(encoded(policy)).expect_err("a policy");
        assert!(problem.contains("feature `tradeoff`"), "{problem}");
        let switch = v1::directive::Kind::SetBurstConfig(v1::SetBurstConfig::default());
        assert_eq!(check(encoded(switch)), Ok(()));
    }
}
