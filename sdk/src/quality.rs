//! Quality functions that measure how much a response of lower fidelity lacks, and a wrapper that
//! makes custom quality functions safe to call.
//!
//! Source: Chow, "Scaling causality analysis for production systems" (dissertation, 2016), §4.3.2
//! and §4.5.3: 0 means as good as the full response; larger values are worse.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the mean displacement of the reduced response's first `top` items, or 0 if `top` is 0 or
/// the full response is empty. An item's displacement is the number of places by which it stands
/// further down in the full response than in the reduced one, at least 0. An item that the full
/// response lacks counts as standing after its end, and so does each place after the end of the
/// reduced response. If `top` exceeds the length of the full response, that length is used.
///
/// With `top` 1, the result is Chow's quality drop: the place, from 0, of the reduced response's
/// first item in the full response.
#[must_use]
pub fn rank_displacement<K: PartialEq>(full: &[K], reduced: &[K], top: usize) -> f64 {
    let top = top.min(full.len());
    if top == 0 {
        return 0.0;
    }
    let displaced = |(place, item): (usize, Option<&K>)| {
        let stood = item
            .and_then(|item| full.iter().position(|known| known == item))
            .unwrap_or(full.len());
        stood.saturating_sub(place) as f64
    };
    let places = (0..top).map(|place| (place, reduced.get(place)));
    places.map(displaced).sum::<f64>() / top as f64
}

/// Returns the fraction of the full response's items that the reduced one lacks, 0 to 1; 0 if the
/// full response is empty.
#[must_use]
pub fn overlap_loss<K: PartialEq>(full: &[K], reduced: &[K]) -> f64 {
    if full.is_empty() {
        return 0.0;
    }
    let missing = full.iter().filter(|item| !reduced.contains(item)).count();
    missing as f64 / full.len() as f64
}

/// Returns the error of the reduced response's number relative to the full response's number. If
/// the full response's number is 0, returns the absolute error.
#[must_use]
pub fn numeric_error(full: f64, reduced: f64) -> f64 {
    let error = (reduced - full).abs();
    if full == 0.0 {
        error
    } else {
        error / full.abs()
    }
}

/// Evaluates a custom quality function. Returns `None` if it panics or returns a negative or
/// non-finite number.
#[must_use]
pub fn judged<A: ?Sized>(
    quality: impl FnOnce(&A, &A) -> f64,
    full: &A,
    reduced: &A,
) -> Option<f64> {
    catch_unwind(AssertUnwindSafe(|| quality(full, reduced)))
        .ok()
        .filter(|drop| drop.is_finite() && *drop >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lacks_nothing_and_less_lacks_more() {
        let full = [1, 2, 3, 4];
        assert_eq!(rank_displacement(&full, &full, 4), 0.0);
        assert_eq!(rank_displacement(&full, &[3, 4], 1), 2.0);
        assert_eq!(rank_displacement(&full, &[2, 4], 2), 1.5);
        assert_eq!(rank_displacement(&full, &[], 1), 4.0);
        assert_eq!(rank_displacement(&full, &[9], 1), 4.0);
        assert_eq!(rank_displacement::<i32>(&[], &[], 3), 0.0);
        assert_eq!(overlap_loss(&full, &[4, 1]), 0.5);
        assert_eq!(overlap_loss::<i32>(&[], &[1]), 0.0);
        assert_eq!(numeric_error(4.0, 3.0), 0.25);
        assert_eq!(numeric_error(0.0, -2.0), 2.0);
    }

    #[test]
    fn a_function_that_fails_says_nothing() {
        let by_first = |full: &[i32], reduced: &[i32]| f64::from(full[0] - reduced[0]);
        assert_eq!(judged(by_first, &[3][..], &[1][..]), Some(2.0));
        assert_eq!(judged(by_first, &[3][..], &[][..]), None);
        assert_eq!(judged(by_first, &[1][..], &[3][..]), None);
        assert_eq!(
            judged(|_: &[i32], _: &[i32]| f64::NAN, &[1][..], &[1][..]),
            None
        );
    }
}
