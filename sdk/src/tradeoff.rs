//! Data-quality tradeoffs controlled by a policy. The service declares the points in its code where
//! it can give up data for time. At each point, the SDK decides for each request what to give up.
//!
//! Source: Chow, "Scaling causality analysis for production systems" (dissertation, 2016), chapter
//! IV (DQBarge), §4.3.
//!
//! ```
//! use stroboscope::tradeoff::{Feature, Point};
//!
//! // Declared once. Candidates differ by who proposed them.
//! static CANDIDATES: Point = Point::omitting("ranker.candidates", &["generator"]);
//!
//! let mut candidates = vec![("friends", 17), ("ads", 4), ("ads", 9)];
//! let decision = CANDIDATES.decide_items(candidates.len(), |i| [Feature::Is(candidates[i].0)]);
//! decision.retain(&mut candidates); // without a policy, all stay
//! // … work on what is left, under `decision` …
//! drop(decision);
//! # assert_eq!(candidates.len(), 3);
//! ```
//!
//! A point's decisions follow from a [`Policy`]. It consists of models of the savings and costs of
//! the point's tradeoffs, and of the goal set by the operator. `stroboscope tradeoffs learn`
//! derives the models from recorded requests. The collector sends the policy
//! (`collect --tradeoffs FILE`), or the service installs one itself ([`install`]). An invalid
//! policy is rejected, and the previous one stays in force. Without a policy, or with one that is
//! too old, every request that does not explore gets full fidelity. [`stats`] shows why.
//!
//! # Load
//!
//! A point measures its own load in two ways. The first is the number of requests that arrive per
//! second, over the last ten intervals between measurements, usually of 100 ms each. If the rate
//! over the last five or two of these is higher even after a deduction for chance, the reduced rate
//! is used instead, so that a spike shows sooner. The second is the number of requests under way,
//! which are those whose [`Choice`] has not been dropped. Requests beyond the number that the model
//! explains form a backlog, which counts as arriving within the next second.
//!
//! # Recorded data
//!
//! If a request does not explore and nothing is given up, nothing is recorded. A tradeoff is added
//! to the request's baggage ([`baggage::tradeoffs`](crate::baggage::tradeoffs)), and recorded as an
//! event of the current span, [`EVENT`]. Report tradeoffs forced by a timeout or an error through
//! the same handle ([`Choice::reacted`]).
//!
//! # Exploring
//!
//! A request with `explore.POINT` (a fraction, 0 to 1) in its baggage gives up that fraction at
//! that point. The items are chosen at random or, with `explore.by` = `model`, by the model. In
//! this way, copies of requests try all fidelities. Their tradeoffs are recorded, even if they give
//! up 0. At the end of the pipeline, [`Point::meter`] records the value of items to the
//! response.

mod arrivals;
mod capacity;
mod choice;
mod explore;
mod identity;
mod in_force;
mod point;
mod record;
mod wire;

pub use crate::baggage::EXPLORE;
pub use capacity::on_capacity;
pub use choice::Choice;
pub use explore::EXPLORE_BY;
pub use in_force::{TradeoffStats, foretold_slack, install, stats, uninstall};
pub use point::Point;
pub use record::{EVENT, ITEMS_EVENT};
pub use stroboscope_tradeoff::{
    Capacity, ClassCost, Curve, CurvePoint, Feature, Goal, PerformanceModel, Piecewise,
    PointPolicy, Policy, PolicyError, QualityDrop, QualityModel, SlackModel, Utility,
    UtilityDecision, Weight,
};

pub(crate) use wire::{directed, refused};

/// Guards of the locks of tradeoffs, in the order in which they are taken.
pub(crate) struct TradeoffLocks {
    _in_force: in_force::InForceLocks,
    _callback: capacity::CallbackLock,
}

/// Locks tradeoffs until the result is dropped, so that a fork copies them in a consistent state.
pub(crate) fn lock() -> TradeoffLocks {
    TradeoffLocks {
        _in_force: in_force::lock(),
        _callback: capacity::lock(),
    }
}
