//! Converts policies to and from their wire form.

use stroboscope_proto::v1;

use crate::goal::{Goal, PointPolicy, Policy};
use crate::performance::{ClassCost, Curve, CurvePoint, PerformanceModel};
use crate::quality::{QualityDrop, QualityModel, Weight};
use crate::slack::SlackModel;
use crate::utility::{Piecewise, Utility};

impl From<&Policy> for v1::TradeoffPolicy {
    fn from(policy: &Policy) -> Self {
        Self {
            version: policy.version,
            learned_ns: policy.learned_ns,
            valid_for_ns: policy.valid_for_ns,
            points: policy.points.iter().map(v1::TradeoffPoint::from).collect(),
            slack: policy.slack.as_ref().map(v1::SlackModel::from),
        }
    }
}

/// Converts a received policy. Measurements that no decision needs (request counts, errors,
/// intervals, fractions) stay with the collector. The result is not validated; see
/// [`Policy::check`].
impl From<v1::TradeoffPolicy> for Policy {
    fn from(sent: v1::TradeoffPolicy) -> Self {
        Self {
            version: sent.version,
            learned_ns: sent.learned_ns,
            valid_for_ns: sent.valid_for_ns,
            points: sent.points.into_iter().map(PointPolicy::from).collect(),
            slack: sent.slack.map(SlackModel::from),
        }
    }
}

impl From<&SlackModel> for v1::SlackModel {
    fn from(model: &SlackModel) -> Self {
        // A model has so few components that their positions always fit.
        let edges = model.edges.iter().map(|&(before, after)| v1::SlackEdge {
            before: u32::try_from(before).unwrap_or(u32::MAX),
            after: u32::try_from(after).unwrap_or(u32::MAX),
        });
        Self {
            key: model.key.clone(),
            components: model.components.clone(),
            edges: edges.collect(),
            keys: model.keys.keys().copied().collect(),
            slack_us: model.keys.values().flatten().copied().collect(),
        }
    }
}

impl From<v1::SlackModel> for SlackModel {
    fn from(sent: v1::SlackModel) -> Self {
        let position = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        // `Policy::check` rejects keys with missing values.
        let mut rows = sent.slack_us.chunks(sent.components.len().max(1));
        let keys = sent
            .keys
            .into_iter()
            .map(|key| (key, rows.next().unwrap_or_default().to_vec()))
            .collect();
        let edges = sent.edges.iter();
        Self {
            key: sent.key,
            components: sent.components,
            edges: edges
                .map(|edge| (position(edge.before), position(edge.after)))
                .collect(),
            keys,
        }
    }
}

impl From<&PointPolicy> for v1::TradeoffPoint {
    fn from(point: &PointPolicy) -> Self {
        let goal = match &point.goal {
            Goal::Full => None,
            Goal::Latency { limit_ns } => Some(v1::tradeoff_point::Goal::LatencyLimitNs(*limit_ns)),
            Goal::Slack {
                component,
                default_rate,
            } => Some(v1::tradeoff_point::Goal::Slack(v1::SlackGoal {
                component: component.clone(),
                default_rate: *default_rate,
            })),
            Goal::Utility(utility) => Some(v1::tradeoff_point::Goal::Utility(v1::UtilityGoal {
                of_latency: Some((&utility.of_latency).into()),
                of_drop: Some((&utility.of_drop).into()),
                instance_per_second: utility.instance_per_second,
                instances: utility.instances,
                instances_max: utility.instances_max,
            })),
        };
        Self {
            point: point.point.clone(),
            rate_max: point.rate_max,
            performance: Some((&point.performance).into()),
            quality: Some((&point.quality).into()),
            goal,
        }
    }
}

impl From<v1::TradeoffPoint> for PointPolicy {
    fn from(sent: v1::TradeoffPoint) -> Self {
        use v1::tradeoff_point::Goal as Sent;
        let goal = match sent.goal {
            None => Goal::Full,
            Some(Sent::LatencyLimitNs(limit_ns)) => Goal::Latency { limit_ns },
            Some(Sent::Slack(slack)) => Goal::Slack {
                component: slack.component,
                default_rate: slack.default_rate,
            },
            Some(Sent::Utility(utility)) => Goal::Utility(Utility {
                of_latency: utility.of_latency.unwrap_or_default().into(),
                of_drop: utility.of_drop.unwrap_or_default().into(),
                instance_per_second: utility.instance_per_second,
                instances: utility.instances,
                instances_max: utility.instances_max,
            }),
        };
        Self {
            point: sent.point,
            performance: sent.performance.unwrap_or_default().into(),
            quality: sent.quality.unwrap_or_default().into(),
            goal,
            rate_max: sent.rate_max,
        }
    }
}

impl From<&Piecewise> for v1::Piecewise {
    fn from(Piecewise(pieces): &Piecewise) -> Self {
        let (arguments, values) = pieces.iter().copied().unzip();
        Self { arguments, values }
    }
}

impl From<v1::Piecewise> for Piecewise {
    fn from(sent: v1::Piecewise) -> Self {
        Self(sent.arguments.into_iter().zip(sent.values).collect())
    }
}

impl From<&PerformanceModel> for v1::TradeoffPerformance {
    fn from(model: &PerformanceModel) -> Self {
        let curves = model.curves.iter().map(|curve| v1::TradeoffCurve {
            tradeoff_rate: curve.tradeoff_rate,
            requests_per_second: curve.points.iter().map(|p| p.requests_per_second).collect(),
            latency_ns: curve.points.iter().map(|point| point.latency_ns).collect(),
        });
        let (class_feature, class_costs) = model.class_costs.clone().unwrap_or_default();
        let class_costs = class_costs.into_iter().map(|cost| v1::ClassCost {
            class: cost.class,
            relative_cost: cost.relative_cost,
        });
        Self {
            quantile: model.quantile,
            curves: curves.collect(),
            class_feature,
            class_costs: class_costs.collect(),
        }
    }
}

impl From<v1::TradeoffPerformance> for PerformanceModel {
    fn from(sent: v1::TradeoffPerformance) -> Self {
        // Keeps the sender's order, so that `Policy::check` detects a wrong one.
        let curves = sent.curves.into_iter().map(|curve| Curve {
            tradeoff_rate: curve.tradeoff_rate,
            points: std::iter::zip(curve.requests_per_second, curve.latency_ns)
                .map(|(requests_per_second, latency_ns)| CurvePoint {
                    requests_per_second,
                    latency_ns,
                    requests: 0,
                    error_ns: 0.0,
                })
                .collect(),
        });
        let class_costs = sent.class_costs.into_iter().map(|cost| ClassCost {
            class: cost.class,
            relative_cost: cost.relative_cost,
        });
        Self {
            quantile: sent.quantile,
            curves: curves.collect(),
            class_costs: (!sent.class_feature.is_empty())
                .then(|| (sent.class_feature, class_costs.collect())),
        }
    }
}

impl From<&QualityModel> for v1::TradeoffQuality {
    fn from(model: &QualityModel) -> Self {
        let weights = model.weights.iter().map(|weight| v1::QualityWeight {
            feature: u32::try_from(weight.feature).unwrap_or(u32::MAX),
            value: weight.value.clone(),
            weight: weight.weight,
        });
        let (arguments, values) = model
            .drops
            .iter()
            .map(|drop| (drop.tradeoff_rate, drop.mean_drop))
            .unzip();
        Self {
            schema: model.schema.clone(),
            intercept: model.intercept,
            weights: weights.collect(),
            mean_drop: Some(v1::Piecewise { arguments, values }),
        }
    }
}

impl From<v1::TradeoffQuality> for QualityModel {
    fn from(sent: v1::TradeoffQuality) -> Self {
        let weights = sent.weights.into_iter().map(|weight| Weight {
            feature: weight.feature as usize,
            value: weight.value,
            weight: weight.weight,
            low: weight.weight,
            high: weight.weight,
        });
        let Piecewise(drops) = sent.mean_drop.unwrap_or_default().into();
        let drops = drops
            .into_iter()
            .map(|(tradeoff_rate, mean_drop)| QualityDrop {
                tradeoff_rate,
                requests: 0,
                share_with_drop: 0.0,
                mean_drop,
                random_share_with_drop: 0.0,
                random_mean_drop: 0.0,
            });
        Self {
            schema: sent.schema,
            intercept: sent.intercept,
            weights: weights.collect(),
            drops: drops.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, goal: Goal) -> PointPolicy {
        let mut performance =
            PerformanceModel::new(0.9, vec![Curve::new(0.0, [(1.0, 2.0), (3.0, 4.0)])]);
        performance.curves[0]
            .points
            .iter_mut()
            .for_each(|point| point.requests = 0);
        performance.class_costs = Some((
            "generator".to_owned(),
            vec![ClassCost {
                class: "ads".to_owned(),
                relative_cost: 2.0,
            }],
        ));
        let weight = |value: Option<&str>| Weight {
            feature: 0,
            value: value.map(str::to_owned),
            weight: 0.5,
            low: 0.5,
            high: 0.5,
        };
        let quality = QualityModel {
            schema: vec!["generator".to_owned()],
            intercept: -1.0,
            weights: vec![weight(Some("")), weight(None)],
            drops: vec![QualityDrop {
                tradeoff_rate: 0.5,
                requests: 0,
                share_with_drop: 0.0,
                mean_drop: 3.0,
                random_share_with_drop: 0.0,
                random_mean_drop: 0.0,
            }],
        };
        PointPolicy {
            point: name.to_owned(),
            performance,
            quality,
            goal,
            rate_max: 0.8,
        }
    }

    #[test]
    fn what_is_decided_by_arrives_as_it_was_sent() {
        let utility = Utility {
            of_latency: Piecewise(vec![(1.0, 2.0), (3.0, 0.0)]),
            of_drop: Piecewise(vec![]),
            instance_per_second: 1.0,
            instances: 2,
            instances_max: 3,
        };
        let slack = Goal::Slack {
            component: "ranker".to_owned(),
            default_rate: 0.5,
        };
        let policy = Policy {
            version: 7,
            learned_ns: 8,
            valid_for_ns: 9,
            points: vec![
                point("a", Goal::Full),
                point("b", Goal::Latency { limit_ns: 5e6 }),
                point("c", slack),
                point("d", Goal::Utility(utility)),
            ],
            slack: Some(SlackModel {
                key: "user".to_owned(),
                components: vec!["web".to_owned(), "ranker".to_owned()],
                edges: vec![(0, 1)],
                keys: [(3, vec![1, 2]), (9, vec![0, u32::MAX])].into(),
            }),
        };
        assert_eq!(Policy::from(v1::TradeoffPolicy::from(&policy)), policy);
    }

    #[test]
    fn what_is_missing_makes_no_sense_or_full_fidelity() {
        let sent = v1::TradeoffPolicy {
            points: vec![v1::TradeoffPoint {
                point: "a".to_owned(),
                ..v1::TradeoffPoint::default()
            }],
            ..v1::TradeoffPolicy::default()
        };
        let policy = Policy::from(sent);
        assert_eq!(policy.check(), Ok(()));
        assert_eq!(policy.points[0].rate(10.0).rate, 0.0);
        let sent = v1::TradeoffPolicy {
            slack: Some(v1::SlackModel {
                components: vec!["web".to_owned()],
                keys: vec![1, 2],
                slack_us: vec![5],
                ..v1::SlackModel::default()
            }),
            ..v1::TradeoffPolicy::default()
        };
        assert!(Policy::from(sent).check().is_err());
    }
}
