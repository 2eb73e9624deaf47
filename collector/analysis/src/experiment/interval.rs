//! Computes a confidence interval as the set of values that a test does not reject.

/// Distance from the estimate beyond which an end counts as unbounded. Values are logarithms of
/// factors.
const SHIFT_MAX: f64 = 12.0;

/// Returns the ends of the range around `found` in which the p-value is at least `alpha`, each to
/// within 0.0001. An end is infinite if the p-value does not fall below `alpha` within
/// [`SHIFT_MAX`] in that direction. Assumes that the p-value decreases with the distance from
/// `found`.
pub(super) fn interval_of(p_of: impl Fn(f64) -> f64, found: f64, alpha: f64) -> (f64, f64) {
    let end = |direction: f64| {
        let mut inside = 0.0;
        let mut outside = 0.01;
        while p_of(found + direction * outside) >= alpha {
            (inside, outside) = (outside, outside * 2.0);
            if outside > SHIFT_MAX {
                return direction * f64::INFINITY;
            }
        }
        while outside - inside > 1e-4 {
            let middle = (inside + outside) / 2.0;
            match p_of(found + direction * middle) >= alpha {
                true => inside = middle,
                false => outside = middle,
            }
        }
        found + direction * outside
    };
    (end(-1.0), end(1.0))
}
