//! Removes questions that are not worth asking (Quinlan, 1993, chapter 4).
//!
//! The expected number of errors of a leaf on other rows follows from its share of errors. The
//! upper bound of a confidence interval for that share is used, as if the leaf's rows were a
//! sample. A question becomes a leaf unless its branches are expected to make fewer errors than
//! that leaf, by more than [`ERRORS_SAVED_MIN`].

use super::growth::Node;
use crate::statistics::incomplete_beta;

/// Number of expected errors of which a question must save more to be kept, as in C4.5.
const ERRORS_SAVED_MIN: f64 = 0.1;

/// Prunes from the leaves up. Returns the expected number of errors of the pruned tree.
pub(super) fn prune(node: &mut Node, confidence: f64) -> f64 {
    let rows = node.rows();
    let as_leaf = errors_expected(rows, confidence);
    if let Node::Question { branches, .. } = node {
        let branches = branches.iter_mut();
        let below: f64 = branches.map(|branch| prune(branch, confidence)).sum();
        if as_leaf > below + ERRORS_SAVED_MIN {
            return below;
        }
        *node = Node::Leaf(rows);
    }
    as_leaf
}

fn errors_expected(rows: [f64; 2], confidence: f64) -> f64 {
    let total = rows[0] + rows[1];
    total * share_at_most(rows[0].min(rows[1]), total, confidence)
}

/// Returns the upper bound of the share of errors (Clopper and Pearson): the share at which the
/// probability of at most `errors` errors is `confidence`; 1 if all rows are errors.
fn share_at_most(errors: f64, total: f64, confidence: f64) -> f64 {
    if total - errors < 1e-9 {
        return 1.0;
    }
    let (mut low, mut high) = (errors / total, 1.0);
    // One halving for each bit of an `f64`'s fraction.
    for _ in 0..52 {
        let middle = (low + high) / 2.0;
        match incomplete_beta(total - errors, errors + 1.0, 1.0 - middle) > confidence {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of Quinlan's book, chapter 4, at 25 %. (Its 0.157 for one error of 16 is C4.5's
    /// approximation of 0.1596.)
    #[test]
    fn bounds_are_those_of_the_book() {
        for (errors, total, expected) in [(0.0, 6.0, 0.206), (0.0, 9.0, 0.143), (0.0, 1.0, 0.750)] {
            let found = share_at_most(errors, total, 0.25);
            assert!((found - expected).abs() < 6e-4, "{errors} {total}: {found}");
        }
    }

    /// Sums the terms of the binomial probability of at most `errors` errors at the upper bound.
    /// The sum must be the confidence level.
    #[test]
    fn bounds_have_the_probability_that_they_say() {
        for total in 1..40u32 {
            for errors in 0..total {
                let share = share_at_most(f64::from(errors), f64::from(total), 0.25);
                let mut term = (1.0 - share).powi(total as i32);
                let mut sum = term;
                for k in 0..errors {
                    term *= f64::from(total - k) / f64::from(k + 1) * share / (1.0 - share);
                    sum += term;
                }
                assert!((sum - 0.25).abs() < 1e-9, "{errors} of {total}: {sum}");
            }
        }
    }
}
