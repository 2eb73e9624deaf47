//! Data-quality tradeoffs, from what was recorded of them: what they save, what they cost, and what was given up.
//!
//! Source: Chow, "Analyzing complex distributed systems" (dissertation), chapter IV (DQBarge), §4.3.2 and §4.3.4. The models
//! and the decision by them are [`stroboscope_tradeoff`]'s, which the SDK has, too.

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
    ATTRIBUTES, Answer, EVENT, FeatureValue, ITEMS_EVENT, Made, Observed, PointObserved,
};
pub use performance::{PerformanceSettings, learn_performance};
pub use quality::{QualitySettings, learn_quality};
pub use sweep::{Level, LoadSweep, SweepSettings};

/// How models are learned.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnSettings {
    /// What tradeoffs save.
    pub performance: PerformanceSettings,
    /// What they cost.
    pub quality: QualitySettings,
}

/// Why a point has no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLearned {
    /// No request explored.
    #[error(
        "no request explored it: send copies of requests with explore.POINT in their baggage, at rates from 0 to nearly 1"
    )]
    NothingExplored,
    /// Too few requests at any load.
    #[error(
        "{requests} requests explored it, and there are no {needed} of one tradeoff rate at one load: explore for longer"
    )]
    TooFew {
        /// That explored.
        requests: usize,
        /// At one load.
        needed: usize,
    },
}

/// What was learned of one point.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedPoint {
    /// Latency by load and tradeoff rate.
    pub performance: PerformanceModel,
    /// Loss by provenance.
    pub quality: QualityModel,
    /// Requests that the performance model was learned from.
    pub requests: usize,
    /// Answers that the quality model was learned from.
    pub answers: usize,
    /// Answers that it was judged by.
    pub judged: usize,
}

/// Learns the models of each point.
#[must_use]
pub fn learn(
    observed: &Observed,
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
