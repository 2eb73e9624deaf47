//! Goal of the operator for a point, and the resulting tradeoff rate.

use crate::performance::{PerformanceModel, Rate};
use crate::quality::QualityModel;
use crate::slack::SlackModel;
use crate::utility::{Utility, UtilityDecision};

/// Goal of a point (§4.3.3).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Goal {
    /// Full fidelity, regardless of latency.
    Full,
    /// Best quality within a latency limit of the component, at the model's quantile (§4.3.3.1).
    Latency {
        /// Maximum latency in ns.
        limit_ns: f64,
    },
    /// Fixed tradeoff rate, reduced as far as the slack predicted for this component allows
    /// (§4.3.3.2).
    Slack {
        /// Name of the component in the prediction.
        component: String,
        /// Tradeoff rate of a request without slack.
        default_rate: f64,
    },
    /// Maximum utility of latency, quality and instances (§4.3.3.3).
    Utility(Utility),
}

/// One point with its models and its goal.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PointPolicy {
    /// Name of the point, as declared by the service.
    pub point: String,
    /// Model of the latency that tradeoffs save.
    pub performance: PerformanceModel,
    /// Model of the quality that tradeoffs cost.
    pub quality: QualityModel,
    /// Goal that the point's decisions pursue.
    pub goal: Goal,
    /// Maximum tradeoff rate: the fraction of items or calls that the point may give up, 0 to 1.
    pub rate_max: f64,
}

/// Policy for all points. The collector sends it, and services base their decisions on it.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Policy {
    /// Version, which should grow with every change; records of proactive tradeoffs contain it.
    pub version: u64,
    /// Time at which the models were learned, in ns since the Unix epoch.
    pub learned_ns: u64,
    /// Validity of the models in ns, after which services return to full fidelity. 0: unlimited.
    pub valid_for_ns: u64,
    /// Policies of the points, each with another name.
    pub points: Vec<PointPolicy>,
    /// Model that predicts slack by a request's key, if there is one.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub slack: Option<SlackModel>,
}

impl Policy {
    /// Reports whether the policy has neither points nor a slack model.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points.is_empty() && self.slack.is_none()
    }

    /// Reports whether the models have expired at `now_ns`, in ns since the Unix epoch.
    #[must_use]
    pub const fn is_stale(&self, now_ns: u64) -> bool {
        self.valid_for_ns != 0 && now_ns.saturating_sub(self.learned_ns) > self.valid_for_ns
    }
}

impl PointPolicy {
    /// Returns the tradeoff rate for a load in requests per second, without regard to the
    /// individual request.
    #[must_use]
    pub fn rate(&self, requests_per_second: f64) -> Rate {
        let predicted = |rate: f64| Rate {
            rate,
            predicted_ns: self.performance.latency_ns(requests_per_second, rate),
            is_met: true,
        };
        match &self.goal {
            Goal::Full => predicted(0.0),
            Goal::Latency { limit_ns } => {
                self.performance
                    .least_rate(requests_per_second, *limit_ns, self.rate_max)
            }
            Goal::Slack { default_rate, .. } => predicted(default_rate.min(self.rate_max)),
            Goal::Utility(utility) => {
                let decided = self.best(utility, requests_per_second);
                Rate {
                    rate: decided.rate,
                    predicted_ns: decided.predicted_ns,
                    is_met: true,
                }
            }
        }
    }

    /// Returns the decision for a utility goal: the best tradeoff rate at a load, and the utility
    /// with one instance more or less. Returns `None` for other goals.
    #[must_use]
    pub fn utility(&self, requests_per_second: f64) -> Option<UtilityDecision> {
        match &self.goal {
            Goal::Utility(utility) => Some(self.best(utility, requests_per_second)),
            _ => None,
        }
    }

    fn best(&self, utility: &Utility, requests_per_second: f64) -> UtilityDecision {
        utility.decide(
            &self.performance,
            &self.quality,
            self.rate_max,
            requests_per_second,
        )
    }

    /// Returns the tradeoff rate for a request with `slack_ns` of slack, at a component that
    /// otherwise uses the rate `from`. It is the lowest rate, up to `from`, whose additional
    /// latency fits into the slack, or `from` if the latency is unknown.
    #[must_use]
    pub fn rate_within_slack(&self, requests_per_second: f64, from: f64, slack_ns: f64) -> Rate {
        let base_ns = self.performance.latency_ns(requests_per_second, from);
        if !base_ns.is_finite() {
            // The load exceeds the measurements, so the additional latency is unknown.
            return Rate {
                rate: from,
                predicted_ns: base_ns,
                is_met: false,
            };
        }
        self.performance
            .least_rate(requests_per_second, base_ns + slack_ns.max(0.0), from)
    }
}
