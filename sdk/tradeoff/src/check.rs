//! Validates policies before they are used.

use std::fmt;

use crate::goal::{Goal, PointPolicy, Policy};
use crate::slack::SlackModel;
use crate::utility::Piecewise;

/// Maximum number of points in a policy.
pub const POINTS_MAX: usize = 256;
/// Maximum length of each list in a point's models: features, weights, quality drops, curves,
/// measurements of a curve, class costs, and pieces of a utility.
pub const WEIGHTS_MAX: usize = 4_096;

/// Maximum number of keys in a slack model. The model must fit into a message of the control
/// stream.
pub const KEYS_MAX: usize = 65_536;
/// Maximum number of components in a slack model. Their slack must fit into a request's baggage.
pub const SLACK_COMPONENTS_MAX: usize = 16;
/// Maximum number of edges in a slack model: the pairs of [`SLACK_COMPONENTS_MAX`] components.
pub const SLACK_EDGES_MAX: usize = SLACK_COMPONENTS_MAX * (SLACK_COMPONENTS_MAX - 1) / 2;

/// Error for an invalid policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// Name of the invalid point; empty if it has none, or if the problem concerns no single
    /// point.
    pub point: String,
    /// Description of the problem.
    pub problem: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.point.as_str() {
            "" => write!(f, "the policy is unusable: {}", self.problem),
            point => write!(
                f,
                "the policy is unusable: point {point:?}: {}",
                self.problem
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

impl Policy {
    /// Validates the numbers that decisions use: they must be finite, and fractions must be between
    /// 0 and 1. Curves, measurements, quality drops and pieces of a utility must be in strictly
    /// ascending order.
    ///
    /// Also limits the length of every list, and rejects inconsistent values, such as negative
    /// sizes, references to unknown features, and two points of one name.
    ///
    /// # Errors
    /// Returns the first problem found.
    pub fn check(&self) -> Result<(), PolicyError> {
        let count = self.points.len();
        if count > POINTS_MAX {
            return Err(PolicyError {
                point: String::new(),
                problem: format!("it has {count} points; {POINTS_MAX} are accepted"),
            });
        }
        for (place, point) in self.points.iter().enumerate() {
            let twice = self
                .points
                .iter()
                .take(place)
                .any(|other| other.point == point.point);
            let problem = if twice {
                Some("it occurs twice".to_owned())
            } else {
                point.problem()
            };
            if let Some(problem) = problem {
                return Err(PolicyError {
                    point: point.point.clone(),
                    problem,
                });
            }
        }
        match self.slack.as_ref().and_then(SlackModel::problem) {
            Some(problem) => Err(PolicyError {
                point: String::new(),
                problem: format!("its model of slack {problem}"),
            }),
            None => Ok(()),
        }
    }
}

impl SlackModel {
    fn problem(&self) -> Option<String> {
        let (keys, components) = (self.keys.len(), self.components.len());
        if keys > KEYS_MAX {
            return Some(format!("has {keys} keys; {KEYS_MAX} are accepted"));
        }
        if components > SLACK_COMPONENTS_MAX {
            return Some(format!(
                "has {components} components; {SLACK_COMPONENTS_MAX} are accepted"
            ));
        }
        let edges = self.edges.len();
        if edges > SLACK_EDGES_MAX {
            return Some(format!("has {edges} edges; {SLACK_EDGES_MAX} are accepted"));
        }
        if self.keys.values().any(|slack| slack.len() != components) {
            return Some("has a key without the slack of each component".to_owned());
        }
        if self
            .edges
            .iter()
            .any(|&(before, after)| before.max(after) >= components)
        {
            return Some("has an edge of an unknown component".to_owned());
        }
        None
    }
}

fn is_share(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

fn is_size(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn ascends(values: impl Iterator<Item = f64> + Clone) -> bool {
    values.clone().zip(values.skip(1)).all(|(a, b)| a < b)
}

impl PointPolicy {
    fn problem(&self) -> Option<String> {
        let is_long = |count: usize| count > WEIGHTS_MAX;
        let (performance, quality) = (&self.performance, &self.quality);
        let costs = performance
            .class_costs
            .as_ref()
            .map(|(_, costs)| costs.as_slice());
        let lengths = [
            performance.curves.len(),
            quality.weights.len(),
            quality.drops.len(),
            quality.schema.len(),
            costs.map_or(0, <[_]>::len),
        ];
        if self.point.is_empty() {
            return Some("it has no name".to_owned());
        }
        if lengths.into_iter().any(is_long)
            || performance
                .curves
                .iter()
                .any(|curve| is_long(curve.points.len()))
        {
            return Some(format!("a list has more than {WEIGHTS_MAX} elements"));
        }
        if !is_share(self.rate_max) {
            return Some(format!(
                "rate_max is {}, not a share from 0 to 1",
                self.rate_max
            ));
        }
        if !is_share(performance.quantile) {
            return Some(format!(
                "the quantile is {}, not from 0 to 1",
                performance.quantile
            ));
        }
        if !performance
            .curves
            .iter()
            .all(|curve| is_share(curve.tradeoff_rate))
            || !ascends(performance.curves.iter().map(|curve| curve.tradeoff_rate))
        {
            return Some("the curves' tradeoff rates are not ascending from 0 to 1".to_owned());
        }
        for curve in &performance.curves {
            let points = &curve.points;
            let sizes = points
                .iter()
                .all(|point| is_size(point.requests_per_second) && is_size(point.latency_ns));
            if !sizes || !ascends(points.iter().map(|point| point.requests_per_second)) {
                return Some(format!(
                    "the curve of tradeoff rate {} has a request rate or a latency that is not a number, negative or not ascending",
                    curve.tradeoff_rate
                ));
            }
        }
        if costs.is_some_and(|costs| costs.iter().any(|cost| !is_size(cost.relative_cost))) {
            return Some("the cost of a class is not a number or negative".to_owned());
        }
        if !quality.intercept.is_finite()
            || quality
                .weights
                .iter()
                .any(|weight| !weight.weight.is_finite())
        {
            return Some("a weight of the quality model is not a number".to_owned());
        }
        if quality
            .weights
            .iter()
            .any(|weight| weight.feature >= quality.schema.len())
        {
            return Some("a weight is of a feature that is not in the schema".to_owned());
        }
        let is_drop = |rate: f64, drop: f64| is_share(rate) && drop.is_finite();
        if !quality
            .drops
            .iter()
            .all(|drop| is_drop(drop.tradeoff_rate, drop.mean_drop))
            || !ascends(quality.drops.iter().map(|drop| drop.tradeoff_rate))
        {
            return Some(
                "the quality drops are not numbers, or their rates not ascending from 0 to 1"
                    .to_owned(),
            );
        }
        self.goal.problem()
    }
}

impl Goal {
    fn problem(&self) -> Option<String> {
        let piecewise = |of: &Piecewise| {
            of.0.iter().all(|(x, y)| x.is_finite() && y.is_finite())
                && ascends(of.0.iter().map(|(x, _)| *x))
        };
        match self {
            Self::Full => None,
            Self::Latency { limit_ns } if !is_size(*limit_ns) => {
                Some(format!("the latency limit is {limit_ns} ns"))
            }
            Self::Latency { .. } => None,
            Self::Slack { default_rate, .. } if !is_share(*default_rate) => Some(format!(
                "the default rate is {default_rate}, not a share from 0 to 1"
            )),
            Self::Slack { .. } => None,
            Self::Utility(utility) => {
                let pieces = utility.of_latency.0.len().max(utility.of_drop.0.len());
                if pieces > WEIGHTS_MAX {
                    return Some(format!(
                        "the utility has {pieces} pieces; {WEIGHTS_MAX} are accepted"
                    ));
                }
                let is_good = piecewise(&utility.of_latency)
                    && piecewise(&utility.of_drop)
                    && is_size(utility.instance_per_second)
                    && utility.instances_max >= utility.instances.max(1);
                (!is_good).then(|| {
                    "the utility has pieces that are not numbers or not ascending, a negative price, or a maximum below the present instances".to_owned()
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, PerformanceModel, QualityModel, Utility, Weight};

    fn policy() -> Policy {
        Policy {
            version: 1,
            learned_ns: 10,
            valid_for_ns: 5,
            points: vec![PointPolicy {
                point: "a".to_owned(),
                performance: PerformanceModel::new(0.5, vec![Curve::new(0.0, [(1.0, 2.0)])]),
                quality: QualityModel {
                    schema: vec!["x".to_owned()],
                    intercept: 0.0,
                    weights: vec![],
                    drops: vec![],
                },
                goal: Goal::Full,
                rate_max: 1.0,
            }],
            slack: Some(SlackModel {
                key: "user".to_owned(),
                components: vec!["ranker".to_owned()],
                edges: vec![],
                keys: [(1, vec![2])].into(),
            }),
        }
    }

    #[track_caller]
    fn refused(change: impl Fn(&mut PointPolicy), expected: &str) {
        let mut policy = policy();
        change(&mut policy.points[0]);
        let problem = policy.check().expect_err("refused").to_string();
        assert!(problem.contains(expected), "{problem}");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(policy().check(), Ok(()));
        refused(|point| point.rate_max = f64::NAN, "rate_max");
        refused(|point| point.point.clear(), "no name");
        refused(|point| point.quality.intercept = f64::INFINITY, "weight");
        refused(
            |point| point.performance.curves[0].points[0].latency_ns = f64::NAN,
            "tradeoff rate 0",
        );
        refused(
            |point| point.performance.curves.push(Curve::new(0.0, [])),
            "ascending",
        );
        refused(
            |point| point.goal = Goal::Latency { limit_ns: -1.0 },
            "-1 ns",
        );
        refused(
            |point| {
                point.quality.weights = vec![
                    Weight {
                        feature: 1,
                        value: None,
                        weight: 1.0,
                        low: 0.0,
                        high: 0.0
                    };
                    1
                ];
            },
            "schema",
        );
        refused(
            |point| point.quality.schema = vec![String::new(); WEIGHTS_MAX + 1],
            "4096",
        );
        for (latency_pieces, drop_pieces) in [(WEIGHTS_MAX + 1, 1), (1, WEIGHTS_MAX + 1)] {
            let pieces = |count: usize| Piecewise((0..count).map(|x| (x as f64, 1.0)).collect());
            let utility = Utility {
                of_latency: pieces(latency_pieces),
                of_drop: pieces(drop_pieces),
                instance_per_second: 1.0,
                instances: 1,
                instances_max: 1,
            };
            refused(
                |point| point.goal = Goal::Utility(utility.clone()),
                "4097 pieces; 4096 are accepted",
            );
        }
        let slack_refused = |change: fn(&mut SlackModel), expected: &str| {
            let mut policy = policy();
            policy.slack.as_mut().map(change);
            let problem = policy.check().expect_err("refused").to_string();
            assert!(problem.contains(expected), "{problem}");
        };
        slack_refused(|slack| slack.components.clear(), "each component");
        slack_refused(|slack| slack.edges.push((0, 1)), "edge");
        slack_refused(
            |slack| slack.edges = vec![(0, 0); SLACK_EDGES_MAX + 1],
            "120 are accepted",
        );
        slack_refused(
            |slack| slack.components = vec![String::new(); SLACK_COMPONENTS_MAX + 1],
            "16 are accepted",
        );
        let mut twice = policy();
        twice.points.push(twice.points[0].clone());
        assert!(
            twice
                .check()
                .expect_err("twice")
                .to_string()
                .contains("\"a\"")
        );
    }

    #[test]
    fn old_models_are_stale() {
        let policy = policy();
        assert!(!policy.is_stale(15) && policy.is_stale(16) && !policy.is_stale(0));
        assert!(
            !Policy {
                valid_for_ns: 0,
                ..policy
            }
            .is_stale(u64::MAX)
        );
    }
}
