//! Tradeoff rates in a request's baggage, which the request must try.

use crate::baggage::exploring::is_exploring;
use crate::baggage::{self, EXPLORE, Value};

/// Baggage key for the choice of the items to leave out: `random` (the default) or `model`. With
/// `model`, the policy in force chooses by loss and cost; without a policy for the point and its
/// schema, the choice is random.
pub const EXPLORE_BY: &str = "explore.by";

/// Tradeoff rate that the current request must try at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exploration {
    /// Fraction to give up, 0 to 1.
    pub(super) rate: f64,
    pub(super) is_by_model: bool,
}

/// Returns the tradeoff rate that the current request must try at the point of this name. Returns
/// `None` if it need not explore there, or if the rate is not a number from 0 to 1.
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
