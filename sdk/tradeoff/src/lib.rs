//! Models of data-quality tradeoffs, and the decision by them: pure functions that the SDK calls in a running service and
//! the collector calls at rest.
//!
//! Source: Chow, "Analyzing complex distributed systems" (dissertation), chapter IV (DQBarge): §4.3.2 for the models, §4.3.3
//! for the goals.
//!
//! | word | here |
//! |---|---|
//! | point | a place in a service's code where data can be given up for time |
//! | tradeoff rate | the share of a point's data that is given up, 0 to 1 ([`Rate`]) |
//! | performance | latency by request rate and tradeoff rate: [`PerformanceModel`] |
//! | quality | what an item's absence costs the answer, by the item's provenance: [`QualityModel`] |
//! | goal | what the operator wants: [`Goal`] |
//! | slack | how much longer a component may take at no cost, by a request's key: [`SlackModel`] |
//! | policy | all points with their models and goals, and a version: [`Policy`] |
//!
//! Nothing here allocates while it decides about a rate; choosing among items needs one buffer, which the caller keeps.

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
    KEYS_MAX, Malformed, POINTS_MAX, SLACK_COMPONENTS_MAX, SLACK_EDGES_MAX, WEIGHTS_MAX,
};
pub use choose::{Chooser, Item};
pub use goal::{Goal, PointPolicy, Policy};
pub use performance::{ClassCost, Curve, CurvePoint, PerformanceModel, Rate};
pub use quality::{Feature, InSequence, QualityDrop, QualityModel, Scorer, Weight};
pub use slack::SlackModel;
pub use utility::{Capacity, Piecewise, Utility, UtilityDecision};
