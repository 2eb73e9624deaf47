//! The two-sample test of Kolmogorov and Smirnov.
//!
//! Small samples are tested exactly, by counting the orders in which their values can occur
//! (Hodges, The significance probability of the Smirnov two-sample test, 1958). For larger samples
//! of n and m values, the p-value is that of one sample of n m / (n + m) values against its true
//! distribution, as in scipy's `ks_2samp(method='asymp')`. With ties, the p-value of either method
//! is conservative, because equal values cannot lie apart.

mod one_sample;

/// Difference between the distributions of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KolmogorovSmirnov {
    /// Largest distance between the distribution functions of the samples.
    pub statistic: f64,
    /// Largest distance by which the first sample's distribution function lies above the second's.
    /// It is large if the second sample has larger values.
    pub above: f64,
    /// Largest distance by which the first sample's distribution function lies below the second's.
    /// It is large if the second sample has smaller values.
    pub below: f64,
    /// Probability of a distance of at least `statistic` if both samples are from one distribution.
    pub p_value: f64,
    /// True if the p-value is exact, except for ties.
    pub is_exact: bool,
}

/// Maximum product of the sample sizes for an exact test, whose time is proportional to it.
const EXACT_MAX: u64 = 10_000;

/// Compares two samples, given as (value, count) in order of value. If a sample is empty, all
/// distances are 0 and the p-value is 1.
pub fn kolmogorov_smirnov(a: &[(u64, u64)], b: &[(u64, u64)]) -> KolmogorovSmirnov {
    let total = |of: &[(u64, u64)]| of.iter().map(|(_, count)| count).sum::<u64>();
    let (n, m) = (total(a), total(b));
    if n == 0 || m == 0 {
        return KolmogorovSmirnov {
            statistic: 0.0,
            above: 0.0,
            below: 0.0,
            p_value: 1.0,
            is_exact: true,
        };
    }
    // Distances in units of 1 / (n m) are whole numbers.
    let (mut i, mut j, mut below_a, mut below_b) = (0, 0, 0u128, 0u128);
    let (mut above, mut below) = (0u128, 0u128);
    while i < a.len() || j < b.len() {
        let value = |of: &[(u64, u64)], at: usize| of.get(at).map_or(u64::MAX, |(value, _)| *value);
        let next = value(a, i).min(value(b, j));
        while i < a.len() && a[i].0 == next {
            below_a += u128::from(a[i].1);
            i += 1;
        }
        while j < b.len() && b[j].0 == next {
            below_b += u128::from(b[j].1);
            j += 1;
        }
        let (of_a, of_b) = (below_a * u128::from(m), below_b * u128::from(n));
        above = above.max(of_a.saturating_sub(of_b));
        below = below.max(of_b.saturating_sub(of_a));
    }
    let largest = above.max(below);
    let part = |distance: u128| distance as f64 / (n as f64 * m as f64);
    let statistic = part(largest);
    let is_exact = n.saturating_mul(m) <= EXACT_MAX;
    let p_value = if is_exact {
        exact(n as usize, m as usize, largest)
    } else {
        let size = n as f64 * m as f64 / (n as f64 + m as f64);
        one_sample::at_least(size.round_ties_even() as u64, statistic)
    };
    KolmogorovSmirnov {
        statistic,
        above: part(above),
        below: part(below),
        p_value,
        is_exact,
    }
}

/// Returns the fraction of all orders of n and m values in which the distribution functions are
/// somewhere at least `distance` apart, in units of 1 / (n m). The recursion computes the
/// probability that they reach this distance within the first i values of one sample and j of the
/// other. It only adds positive terms, so that even small results are precise.
fn exact(n: usize, m: usize, distance: u128) -> f64 {
    let mut row = vec![0.0; m + 1];
    for i in 0..=n {
        for j in 0..=m {
            let apart = (i as u128 * m as u128).abs_diff(j as u128 * n as u128);
            row[j] = if apart >= distance && (i, j) != (0, 0) {
                1.0
            } else if (i, j) == (0, 0) {
                f64::from(u8::from(distance == 0))
            } else {
                let from_i = if i > 0 { row[j] * i as f64 } else { 0.0 };
                let from_j = if j > 0 { row[j - 1] * j as f64 } else { 0.0 };
                (from_i + from_j) / (i + j) as f64
            };
        }
    }
    row[m]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(values: &[u64]) -> Vec<(u64, u64)> {
        let mut values = values.to_vec();
        values.sort_unstable();
        values
            .chunk_by(|a, b| a == b)
            .map(|alike| (alike[0], alike.len() as u64))
            .collect()
    }

    /// Enumerates all orders of n and m values, by the sample that each place belongs to.
    fn orders(n: usize, m: usize) -> Vec<Vec<bool>> {
        if n == 0 || m == 0 {
            return vec![[vec![true; n], vec![false; m]].concat()];
        }
        let with = |of: Vec<Vec<bool>>, last: bool| {
            of.into_iter().map(move |mut order| {
                order.push(last);
                order
            })
        };
        with(orders(n - 1, m), true)
            .chain(with(orders(n, m - 1), false))
            .collect()
    }

    fn distance(order: &[bool], n: usize, m: usize) -> usize {
        let (mut i, mut j, mut largest) = (0usize, 0usize, 0);
        for of_first in order {
            if *of_first {
                i += 1;
            } else {
                j += 1;
            }
            largest = largest.max((i * m).abs_diff(j * n));
        }
        largest
    }

    proptest! {
        #[test]
        fn exact_is_what_all_orders_give(n in 1usize..7, m in 1usize..7, distance_min in 0usize..40) {
            let all = orders(n, m);
            let far = all.iter().filter(|order| distance(order, n, m) >= distance_min).count();
            let expected = far as f64 / all.len() as f64;
            prop_assert!((exact(n, m, distance_min as u128) - expected).abs() < 1e-12);
        }

        #[test]
        fn the_statistic_is_the_largest_distance(
            a in prop::collection::vec(0u64..12, 1..20),
            b in prop::collection::vec(0u64..12, 1..20),
        ) {
            let below = |of: &[u64], value| of.iter().filter(|one| **one <= value).count() as f64 / of.len() as f64;
            let expected = (0..12).map(|value| (below(&a, value) - below(&b, value)).abs()).fold(0.0, f64::max);
            let found = kolmogorov_smirnov(&counted(&a), &counted(&b));
            prop_assert!((found.statistic - expected).abs() < 1e-12);
            let apart = |one: &[u64], other: &[u64]| {
                (0..12).map(|value| below(one, value) - below(other, value)).fold(0.0, f64::max)
            };
            prop_assert!((found.above - apart(&a, &b)).abs() < 1e-12);
            prop_assert!((found.below - apart(&b, &a)).abs() < 1e-12);
            let other = kolmogorov_smirnov(&counted(&b), &counted(&a));
            prop_assert!((found.p_value - other.p_value).abs() < 1e-12);
        }
    }

    /// Values from scipy 1.17, `ks_2samp(a, b, method=…)` with a = 0 … n-1 and b = shift …
    /// shift+m-1: 'exact' for the first four, 'asymp' for the last two.
    #[test]
    fn figures_are_those_of_scipy() {
        let shifted = |n: u64, from: u64| -> Vec<(u64, u64)> {
            (from..from + n).map(|value| (value, 1)).collect()
        };
        let check = |n, m, shift, statistic: f64, p_value: f64, within: f64| {
            let found = kolmogorov_smirnov(&shifted(n, 0), &shifted(m, shift));
            assert!((found.statistic - statistic).abs() < 1e-12, "{found:?}");
            assert!(
                (found.p_value / p_value - 1.0).abs() < within,
                "{n} {m} {shift}: {found:?}"
            );
        };
        check(10, 12, 4, 0.5, 0.092_702_962_672_002_93, 1e-12);
        check(40, 60, 20, 2.0 / 3.0, 1.398_687_826_885_095_6e-10, 1e-9);
        check(100, 100, 55, 0.55, 3.040_658_508_705_030_5e-14, 1e-9);
        check(7, 90, 30, 1.0, 1.556_875_691_206_879_2e-10, 1e-9);
        // For large samples scipy takes the distribution for one sample of n m / (n + m) values.
        check(5000, 5000, 200, 0.04, 0.000_651_868_963_245_677_8, 1e-6);
        check(5000, 5000, 300, 0.06, 2.889_141_156_254_228_7e-8, 1e-6);
    }

    #[test]
    fn nothing_differs_from_nothing() {
        assert_eq!(kolmogorov_smirnov(&[], &[(1, 5)]).p_value, 1.0);
        let same = [(3, 10), (9, 4)];
        assert_eq!(kolmogorov_smirnov(&same, &same).p_value, 1.0);
        assert!(kolmogorov_smirnov(&[(1, 1000)], &[(2, 1000)]).p_value < 1e-100);
    }
}
