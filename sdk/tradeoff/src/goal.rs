//! What the operator wants of a point, and the tradeoff rate that follows.

use crate::performance::{PerformanceModel, Rate};
use crate::quality::QualityModel;
use crate::slack::SlackModel;
use crate::utility::{Utility, UtilityDecision};

/// What to aim for (§4.3.3).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Goal {
    /// Full fidelity, whatever it takes.
    Full,
    /// The best quality within a latency of the component, at the model's quantile (§4.3.3.1).
    Latency {
        /// The most that may be taken, ns.
        limit_ns: f64,
    },
    /// A tradeoff rate at which to stay, less what fits into the slack that was predicted for this component (§4.3.3.2).
    Slack {
        /// The component's name in the prediction.
        component: String,
        /// The tradeoff rate of a request without slack.
        default_rate: f64,
    },
    /// The most utility (§4.3.3.3).
    Utility(Utility),
}

/// One point with its models and its goal.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PointPolicy {
    /// The point's name, as the service declares it.
    pub point: String,
    /// What tradeoffs save.
    pub performance: PerformanceModel,
    /// What they cost.
    pub quality: QualityModel,
    /// What to aim for.
    pub goal: Goal,
    /// No more than this is given up, 0 to 1.
    pub rate_max: f64,
}

/// All points: what the collector sends and services decide by.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Policy {
    /// Grows with every change; in every record of a tradeoff.
    pub version: u64,
    /// When the models were learned, ns since the Unix epoch.
    pub learned_ns: u64,
    /// How long they hold, ns; then services go back to full fidelity. 0: for good.
    pub valid_for_ns: u64,
    /// By name.
    pub points: Vec<PointPolicy>,
    /// What slack components have in requests of a key, if that is foretold.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub slack: Option<SlackModel>,
}

impl Policy {
    /// Whether there is nothing to decide by.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points.is_empty() && self.slack.is_none()
    }

    /// Whether the models are too old at an instant, ns since the Unix epoch.
    #[must_use]
    pub const fn is_stale(&self, now_ns: u64) -> bool {
        self.valid_for_ns != 0 && now_ns.saturating_sub(self.learned_ns) > self.valid_for_ns
    }
}

impl PointPolicy {
    /// The tradeoff rate for requests of which nothing is known but the load.
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

    /// With a goal of utility: the best that can be had at a load, and whether another number of instances pays.
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

    /// The tradeoff rate for a request with this much slack at a component that otherwise gives up `from`: the least at
    /// which the latency that comes on top fits into the slack.
    #[must_use]
    pub fn rate_within_slack(&self, requests_per_second: f64, from: f64, slack_ns: f64) -> Rate {
        let base_ns = self.performance.latency_ns(requests_per_second, from);
        if !base_ns.is_finite() {
            // More load than was ever measured: nobody knows what would come on top.
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
