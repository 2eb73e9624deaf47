//! Policies of data-quality tradeoffs that the collector sends.

use prost::bytes::Bytes;
use stroboscope_tradeoff::{KEYS_MAX, POINTS_MAX, SLACK_COMPONENTS_MAX, SLACK_EDGES_MAX};

use super::{SET_TRADEOFFS, each_field};
pub(super) use crate::tradeoff::{directed as install, refused as refuse};

/// Maximum bytes of all points of a policy, with their models.
const POINTS_BYTES_MAX: usize = 1 << 20;

// Field numbers as in `proto/stroboscope/v1/`; tests fail if they differ.
const POINTS: u32 = 4;
const SLACK: u32 = 5;
const COMPONENTS: u32 = 2;
const EDGES: u32 = 3;
const KEYS: u32 = 4;

/// Checks the number of elements that parsing would turn into many small allocations. Returns a
/// description of the first number that exceeds its limit, or of the malformed part.
pub(super) fn check(directive: Bytes) -> Result<(), String> {
    // Counts all policies of one message together, because parsing merges them.
    let (mut points, mut points_bytes) = (0, 0);
    let (mut components, mut edges, mut keys_bytes) = (0, 0, 0);
    each_field(directive, |tag, policy| {
        if tag != SET_TRADEOFFS {
            return Ok(());
        }
        each_field(policy, |tag, part| match tag {
            POINTS => {
                points += 1;
                points_bytes += part.len();
                Ok(())
            }
            SLACK => each_field(part, |tag, part| {
                match tag {
                    COMPONENTS => components += 1,
                    EDGES => edges += 1,
                    KEYS => keys_bytes += part.len(),
                    _ => {}
                }
                Ok(())
            }),
            _ => Ok(()),
        })
    })?;
    for (what, count, max) in [
        ("points", points, POINTS_MAX),
        ("bytes of points", points_bytes, POINTS_BYTES_MAX),
        ("components with slack", components, SLACK_COMPONENTS_MAX),
        ("edges between components", edges, SLACK_EDGES_MAX),
        ("bytes of keys", keys_bytes, 8 * KEYS_MAX),
    ] {
        if count > max {
            return Err(format!("the policy has {count} {what}; {max} are accepted"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use stroboscope_proto::v1;

    use super::super::{DIRECTIVE_BYTES_MAX, decode};
    use super::*;

    fn directive(policy: v1::TradeoffPolicy) -> Bytes {
        let directive = v1::Directive {
            kind: Some(v1::directive::Kind::SetTradeoffs(policy)),
        };
        directive.encode_to_vec().into()
    }

    fn policy() -> v1::TradeoffPolicy {
        v1::TradeoffPolicy {
            version: 7,
            points: vec![v1::TradeoffPoint::default(); POINTS_MAX],
            slack: Some(v1::SlackModel {
                components: vec!["component".to_owned(); SLACK_COMPONENTS_MAX],
                edges: vec![v1::SlackEdge::default(); SLACK_EDGES_MAX],
                keys: vec![u64::MAX; KEYS_MAX],
                slack_us: vec![1; KEYS_MAX * SLACK_COMPONENTS_MAX],
                ..v1::SlackModel::default()
            }),
            ..v1::TradeoffPolicy::default()
        }
    }

    #[track_caller]
    fn refused(change: impl Fn(&mut v1::TradeoffPolicy, &mut v1::SlackModel), expected: &str) {
        let mut policy = policy();
        let mut slack = policy.slack.take().unwrap();
        change(&mut policy, &mut slack);
        policy.slack = Some(slack);
        let problem = decode(directive(policy)).expect_err(expected);
        assert!(problem.contains(expected), "{problem}");
    }

    #[test]
    fn the_largest_policy_is_taken_and_larger_ones_are_not() {
        let kind = v1::directive::Kind::SetTradeoffs(policy());
        assert!(directive(policy()).len() < DIRECTIVE_BYTES_MAX);
        assert_eq!(decode(directive(policy())), Ok(Some(kind)));
        refused(
            |policy, _| policy.points.push(v1::TradeoffPoint::default()),
            "257 points; 256",
        );
        refused(
            |policy, _| policy.points[0].point = "p".repeat(POINTS_BYTES_MAX),
            "bytes of points",
        );
        refused(
            |_, slack| slack.components.push(String::new()),
            "components",
        );
        refused(
            |_, slack| slack.edges.push(v1::SlackEdge::default()),
            "edges",
        );
        refused(|_, slack| slack.keys.push(0), "bytes of keys");
    }

    #[test]
    fn keys_that_come_one_by_one_are_counted_too() {
        let mut slack = Vec::new();
        for _ in 0..=KEYS_MAX {
            prost::encoding::fixed64::encode(KEYS, &1, &mut slack);
        }
        let mut policy = Vec::new();
        prost::encoding::bytes::encode(SLACK, &slack, &mut policy);
        let mut sent = Vec::new();
        prost::encoding::bytes::encode(SET_TRADEOFFS, &policy, &mut sent);
        let problem = decode(sent.into()).expect_err("too many");
        assert!(problem.contains("bytes of keys"), "{problem}");
    }
}
