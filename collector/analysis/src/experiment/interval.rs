//! Computes a confidence interval as the set of values that a test does not reject.

/// Distance from its start at which the search for an end stops, except towards a rejected 0.
/// Values are logarithms of factors.
const DISTANCE_MAX: f64 = 12.0;

/// Returns the ends of the range around `found` that the test does not reject, each to within
/// 0.0001. Except towards a rejected 0, an end is infinite if the search finds no rejected value
/// before it reaches [`DISTANCE_MAX`]. Assumes that the test rejects everything beyond the first
/// value that it rejects.
///
/// The p-value need not decrease with the distance from `found`: the variance depends on the shift.
/// Therefore `is_none_held` decides about 0: unless `found` is 0, the range reaches beyond 0 if and
/// only if `is_none_held` is true.
pub(super) fn interval_of(
    is_held: impl Fn(f64) -> bool,
    found: f64,
    is_none_held: bool,
) -> (f64, f64) {
    let end = |direction: f64| {
        let is_towards_none = found * direction < 0.0;
        // The search for the end covers these distances from `found`.
        let (near, far) = match (is_towards_none, is_none_held) {
            (true, true) => (found.abs(), found.abs() + DISTANCE_MAX),
            (true, false) => (0.0, found.abs()),
            (false, _) => (0.0, DISTANCE_MAX),
        };
        let (mut inside, mut outside) = (near, near + 0.01);
        while outside < far && is_held(found + direction * outside) {
            (inside, outside) = (outside, near + (outside - near) * 2.0);
        }
        let is_none_rejected = is_towards_none && !is_none_held;
        if outside >= far && !is_none_rejected {
            return direction * f64::INFINITY;
        }
        outside = outside.min(far);
        while outside - inside > 1e-4 {
            let middle = (inside + outside) / 2.0;
            match is_held(found + direction * middle) {
                true => inside = middle,
                false => outside = middle,
            }
        }
        // `outside` may be the distance of 0.
        found + direction * if is_none_rejected { inside } else { outside }
    };
    (end(-1.0), end(1.0))
}
