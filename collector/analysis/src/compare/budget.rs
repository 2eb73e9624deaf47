//! Divides the permitted error rate among tests.
//!
//! A correction for the number of tests makes each test less sensitive. Two properties of a test
//! reduce this loss. Neither depends on which period each request is from, so if nothing changed
//! both are independent of the p-values (Bourgon, Gentleman and Huber, Independent filtering
//! increases detection power, 2010). First, a test that no assignment of its requests to the
//! periods could make significant takes no part of the error rate (Tarone, 1990; Gilbert, 2005).
//! Second, half of the error rate is divided in proportion to the spread of times, if there is any.
//! A large change makes the times of both periods together spread widely (Genovese, Roeder and
//! Wasserman, False discovery control with p-value weighting, 2006).

use crate::statistics::benjamini_hochberg;

/// A test before the correction for the number of tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightedTest {
    pub(super) p_value: f64,
    /// Smallest p-value that its numbers of requests allow.
    pub(super) least_p_value: f64,
    /// Total deviation of the times of both periods from the medians of their strata, clipped; 0
    /// for a feature.
    pub(super) spread_ns: f64,
}

/// Result of a test among others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decision {
    /// `None` if the test was left out, because its smallest p-value exceeds its level.
    pub(super) q_value: Option<f64>,
    /// Largest p-value that would be significant if no other test were significant. For a test that
    /// was left out, the level that it would have among the remaining tests.
    pub(super) level: f64,
}

/// Fraction of the error rate that is divided in proportion to spread. The rest is divided equally,
/// so that a test of small spread loses at most this fraction of its level.
const BY_SPREAD: f64 = 0.5;

/// Tests that share an error rate.
struct Budget {
    rate: f64,
    tests: usize,
    spread_ns: f64,
}

impl Budget {
    /// Returns the level of one of the tests. The levels of all tests add up to the rate.
    fn level(&self, test: &WeightedTest) -> f64 {
        let equal = 1.0 / self.tests as f64;
        let by_spread = match self.spread_ns > 0.0 {
            true => test.spread_ns / self.spread_ns,
            false => equal,
        };
        self.rate * ((1.0 - BY_SPREAD) * equal + BY_SPREAD * by_spread)
    }
}

/// Decides tests so that at most a fraction `rate` of the discoveries is expected to be false.
pub(super) fn decisions(tests: &[WeightedTest], rate: f64) -> Vec<Decision> {
    let mut kept: Vec<usize> = (0..tests.len()).collect();
    let mut budget = Budget {
        rate,
        tests: tests.len(),
        spread_ns: tests.iter().map(|test| test.spread_ns).sum(),
    };
    // Each test that is left out raises the levels of the others, so the least testable goes first.
    loop {
        let excess = |at: usize| tests[at].least_p_value / budget.level(&tests[at]);
        let excesses = kept.iter().map(|at| excess(*at)).enumerate();
        let worst = excesses.max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((worst, _)) = worst.filter(|(_, excess)| *excess > 1.0) else {
            break;
        };
        budget.spread_ns -= tests[kept.swap_remove(worst)].spread_ns;
        budget.tests -= 1;
    }
    let with_it = |test: &WeightedTest| {
        let with_it = Budget {
            rate,
            tests: budget.tests + 1,
            spread_ns: budget.spread_ns + test.spread_ns,
        };
        Decision {
            q_value: None,
            level: with_it.level(test),
        }
    };
    let mut decisions: Vec<Decision> = tests.iter().map(with_it).collect();
    let levels: Vec<f64> = kept.iter().map(|at| budget.level(&tests[*at])).collect();
    let with_levels = kept.iter().zip(&levels);
    let weighted =
        with_levels.map(|(at, level)| tests[*at].p_value * rate / (level * budget.tests as f64));
    let q_values = benjamini_hochberg(&weighted.collect::<Vec<f64>>());
    for ((at, level), q_value) in kept.into_iter().zip(levels).zip(q_values) {
        decisions[at] = Decision {
            q_value: Some(q_value.min(1.0)),
            level,
        };
    }
    decisions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(p_value: f64, least_p_value: f64, spread_ns: f64) -> WeightedTest {
        WeightedTest {
            p_value,
            least_p_value,
            spread_ns,
        }
    }

    fn q_values(tests: &[WeightedTest]) -> Vec<Option<f64>> {
        let decisions = decisions(tests, 0.01);
        decisions.iter().map(|decision| decision.q_value).collect()
    }

    #[test]
    fn equal_tests_are_corrected_as_by_benjamini_and_hochberg() {
        let p_values = [0.001, 0.2, 0.004, 0.9, 0.0001];
        for spread_ns in [0.0, 3.0] {
            let tests = p_values.map(|p_value| test(p_value, 0.0, spread_ns));
            for (q_value, expected) in q_values(&tests).iter().zip(benjamini_hochberg(&p_values)) {
                let q_value = q_value.expect("testable");
                assert!((q_value - expected).abs() < 1e-9, "{q_value} {expected}");
            }
        }
    }

    #[test]
    fn tests_of_too_few_requests_cost_the_others_nothing() {
        let mut tests = vec![test(0.006, 0.001, 1.0)];
        assert_eq!(q_values(&tests), [Some(0.006)]);
        tests.extend([test(0.5, 0.1, 1.0); 50]);
        let decisions = decisions(&tests, 0.01);
        assert_eq!(decisions[0].q_value, Some(0.006));
        // If this test had been kept, two tests of equal spread would have half of the rate each.
        assert_eq!((decisions[1].q_value, decisions[1].level), (None, 0.005));
    }

    #[test]
    fn a_large_spread_raises_the_level_and_a_small_one_keeps_half_of_it() {
        let mut tests = vec![test(1.0, 0.0, 1.0); 99];
        tests.push(test(0.001, 0.0, 99_000.0));
        let q_value = q_values(&tests)[99].expect("testable");
        assert!((0.0019..0.0021).contains(&q_value), "{q_value}");
        tests[99].p_value = 1.0;
        tests[0].p_value = 1e-5;
        let q_value = q_values(&tests)[0].expect("testable");
        assert!((0.0019..0.0021).contains(&q_value), "{q_value}");
    }

    #[test]
    fn quiet_tests_are_seldom_significant() {
        let mut state = 5u64;
        let mut unit = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut quiet = || {
            let tests: Vec<WeightedTest> = (0..40)
                .map(|_| test(unit(), 0.0, unit().powi(-2)))
                .collect();
            q_values(&tests).iter().flatten().any(|q| *q <= 0.01)
        };
        let significant = (0..4_000).filter(|_| quiet()).count();
        assert!((20..60).contains(&significant), "{significant} of 4000");
    }
}
