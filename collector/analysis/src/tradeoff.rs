//! Learns models of data-quality tradeoffs from recorded requests: the time that giving up data
//! saves, and the quality that it costs.
//!
//! Source: Chow, "Scaling causality analysis for production systems" (dissertation, 2016), chapter
//! IV (DQBarge), §4.3.2 and §4.3.4. The models, and the decisions based on them, are in
//! [`stroboscope_tradeoff`], which the SDK also uses.

mod observed;
mod performance;
mod quality;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_tradeoff::{PerformanceModel, QualityModel};

pub use observed::{
    ATTRIBUTES, Answer, EVENT, FeatureValue, ITEMS_EVENT, PointObserved, TradeoffInstance,
    TradeoffObservations,
};
pub use performance::{PerformanceSettings, learn_performance};
pub use quality::{QualitySettings, learn_quality};
pub use sweep::{Level, LoadSweep, SweepSettings};

/// Options for learning models.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnSettings {
    /// Options for the time that tradeoffs save.
    pub performance: PerformanceSettings,
    /// Options for the quality that tradeoffs cost.
    pub quality: QualitySettings,
}

/// Reason why a point has no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLearned {
    /// No request explored the point with a proactive decision.
    #[error(
        "no request explored it: send copies of requests with explore.POINT in their baggage, at rates from 0 to nearly 1"
    )]
    NothingExplored,
    /// Too few requests explored the point with one tradeoff rate at one load.
    #[error(
        "{requests} requests explored it, and there are no {needed} of one tradeoff rate at one load: explore for longer"
    )]
    TooFew {
        /// Number of proactive decisions of requests that explored the point.
        requests: usize,
        /// Number of requests needed with one tradeoff rate at one load.
        needed: usize,
    },
}

/// Models learned for one point.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedPoint {
    /// Model of the latency, by load and tradeoff rate.
    pub performance: PerformanceModel,
    /// Model of the loss that an item's absence causes, by the item's provenance.
    pub quality: QualityModel,
    /// Number of proactive decisions of requests that explored. The performance model leaves out
    /// those at unsteady loads, and those with too few others of about the same rate and load.
    pub requests: usize,
    /// Number of answers that the quality model was learned from.
    pub answers: usize,
    /// Number of answers that judged the quality model.
    pub judged: usize,
}

/// Learns the models of each point, by the point's name.
#[must_use]
pub fn learn(
    observed: &TradeoffObservations,
    settings: &LearnSettings,
) -> BTreeMap<Arc<str>, Result<LearnedPoint, NotLearned>> {
    let of_point = |point: &PointObserved| {
        let performance = learn_performance(point, &settings.performance)?;
        let (quality, answers, judged) = learn_quality(point, &settings.quality);
        Ok(LearnedPoint {
            requests: point.explored().count(),
            performance,
            quality,
            answers,
            judged,
        })
    };
    let points = observed.points.iter();
    points
        .map(|(name, point)| (name.clone(), of_point(point)))
        .collect()
}
