//! Models of data-quality tradeoffs, and decisions based on them. The functions are pure: the SDK
//! calls them in a running service, and the collector calls them offline.
//!
//! Source: Chow, "Scaling causality analysis for production systems" (dissertation, 2016), chapter
//! IV (DQBarge): §4.3.2 for the models, §4.3.3 for the goals.
//!
//! | term | meaning |
//! |---|---|
//! | point | a place in a service's code where data can be given up for time |
//! | tradeoff rate | the fraction of a point's data that is given up, 0 to 1 ([`Rate`]) |
//! | performance | latency as a function of request rate and tradeoff rate: [`PerformanceModel`] |
//! | quality | loss caused by an item's absence, depending on its provenance: [`QualityModel`] |
//! | goal | the operator's objective: [`Goal`] |
//! | slack | the additional time that a component may take at no cost, by a request's key: [`SlackModel`] |
//! | policy | all points with their models and goals, and a version: [`Policy`] |
//!
//! Deciding on a rate allocates nothing. Choosing among items requires buffers, which the caller's
//! [`Chooser`] keeps.

mod check;
mod choose;
mod goal;
mod performance;
mod quality;
mod slack;
mod utility;
#[cfg(feature = "wire")]
mod wire;

pub use check::{
    KEYS_MAX, POINTS_MAX, PolicyError, SLACK_COMPONENTS_MAX, SLACK_EDGES_MAX, WEIGHTS_MAX,
};
pub use choose::{Chooser, Item};
pub use goal::{Goal, PointPolicy, Policy};
pub use performance::{ClassCost, Curve, CurvePoint, PerformanceModel, Rate};
pub use quality::{Feature, InSequence, QualityDrop, QualityModel, Scorer, Weight};
pub use slack::SlackModel;
pub use utility::{Capacity, Piecewise, Utility, UtilityDecision};
