//! Formats numbers for people.

use super::table::Kind;
use crate::humanise::{duration, percent, three_digits};

/// Formats a number according to its kind.
pub fn real(value: f64, kind: Kind) -> String {
    match kind {
        Kind::DurationNs => duration(value),
        Kind::DifferenceNs if value > 0.0 => format!("+{}", duration(value)),
        Kind::DifferenceNs if value < 0.0 => format!("-{}", duration(-value)),
        Kind::DifferenceNs => duration(0.0),
        Kind::Share => percent(value),
        Kind::Probability => format!("{value:.1e}"),
        Kind::Mean => three_digits(value),
        Kind::Text
        | Kind::Segment
        | Kind::Request
        | Kind::Count
        | Kind::Instant
        | Kind::Number
        | Kind::Flag => format!("{value:+.2}"),
    }
}
