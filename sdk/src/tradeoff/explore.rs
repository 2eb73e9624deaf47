//! Fidelities that a request is told to try, by its baggage.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::in_force::ACTIVE;
use crate::baggage::{self, Value};

/// Before a point's name, the key of the share that a request has to give up there: `explore.ranker.candidates` = 0.5.
pub const EXPLORE: &str = "explore.";
/// The key of how it is chosen: `random` (the default), or `model`, the least loss by the policy in force.
pub const EXPLORE_BY: &str = "explore.by";

static EXPLORING: AtomicBool = AtomicBool::new(false);

/// An entry with this key came with a request: from now on points look into the baggage, which others need not.
pub(crate) fn seen_in_baggage(key: &str) {
    if key.starts_with(EXPLORE) && !EXPLORING.load(Relaxed) {
        EXPLORING.store(true, Relaxed);
        ACTIVE.store(true, Relaxed);
    }
}

/// What the current request has to try at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exploration {
    /// 0 to 1.
    pub(super) rate: f64,
    pub(super) is_by_model: bool,
}

#[inline]
pub(super) fn is_exploring() -> bool {
    EXPLORING.load(Relaxed)
}

/// What the current request has to try at the point of this name; a share that is none is nothing to try.
pub(super) fn of_request(point: &str) -> Option<Exploration> {
    if !is_exploring() {
        return None;
    }
    let rate = match baggage::get(&format!("{EXPLORE}{point}"))? {
        Value::Double(rate) => rate,
        Value::Int(rate) => rate as f64,
        Value::Uint(rate) => rate as f64,
        Value::Bool(_) | Value::Text(_) => return None,
    };
    let is_by_model = baggage::get(EXPLORE_BY) == Some(Value::Text("model".to_owned()));
    (0.0..=1.0)
        .contains(&rate)
        .then_some(Exploration { rate, is_by_model })
}
