//! Data-quality tradeoffs that the service hands over: it names the places where data can be given up for time, and asks
//! there, request by request, what to give up.
//!
//! Source: Chow, "Analyzing complex distributed systems" (dissertation), chapter IV (DQBarge), §4.3.
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
//! What a point answers follows from a [`Policy`]: models of what its tradeoffs save and cost, which `stroboscope tradeoffs
//! learn` makes of recorded requests, and the goal that the operator set. The collector sends it
//! (`collect --tradeoffs FILE`), or the service installs one itself ([`install`]). Without one, with one that makes no
//! sense, and with one that is too old, everything is done in full fidelity, and [`stats`] says so.
//!
//! # Load
//!
//! A point measures its own load: requests that arrive at it per second, over the last second, or over the last half of it
//! where that is surely more (a spike shows sooner); and requests that are under way, which are those whose [`Choice`]
//! lives. More of them than the model explains are a backlog, which counts as arriving within the next second.
//!
//! # What is recorded
//!
//! Nothing where nothing is given up. A tradeoff is noted in the request's baggage ([`baggage::tradeoffs`](crate::baggage::tradeoffs)) and is an event
//! of the current span, [`EVENT`], with the policy's version. Tradeoffs that were forced, by a timeout or an error, are
//! reported by the same handle ([`Choice::reacted`]).
//!
//! # Exploring
//!
//! A request that carries `explore.POINT` (a share, 0 to 1) in its baggage has that much given up there, at random or, with
//! `explore.by` = `model`, by the model; it is how copies of requests are tried in all fidelities. Those are recorded with
//! what they gave up, 0 too. At the end of the pipeline [`Point::meter`] records what each item was worth to the answer.

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
    Capacity, ClassCost, Curve, CurvePoint, Feature, Goal, Malformed, PerformanceModel, Piecewise,
    PointPolicy, Policy, QualityDrop, QualityModel, SlackModel, Utility, UtilityDecision, Weight,
};

pub(crate) use wire::{directed, refused};
