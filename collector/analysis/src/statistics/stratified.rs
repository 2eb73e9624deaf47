//! Exact permutation tests of an earlier and a later sample, within strata.
//!
//! The later sample takes a given number of members from each stratum. Under the null hypothesis,
//! all choices of so many members are equally probable (Lehmann, Nonparametrics, 1975, §3.3). For
//! few observations, the probability is counted over all choices, because a normal approximation
//! would overstate it. For example, if a stratum has 96 members and the five later ones rank
//! highest, the probability is 3e-8, not 2e-4.

use super::ln_gamma;

/// Members of a stratum in a rank-sum test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankStratum {
    /// Twice the joint rank of each member, which is a whole number even for ties. Tied members
    /// share the mean of their ranks.
    pub doubled_ranks: Vec<u32>,
    /// Number of members in the later sample, or in the earlier one if its ranks are summed.
    pub later: usize,
}

/// Maximum number of additions for all rank sums, and for each sum of two distributions. Beyond it,
/// the exact distribution is not computed.
const STEPS_MAX: usize = 8_000_000;

/// Returns the two-sided probability that the rank sum of one sample lies at least as far from its
/// mean as the observed sum. `doubled_sum` is twice the observed sum. Returns `None` if counting
/// all choices would take too long.
pub fn rank_sum_two_sided(strata: &[RankStratum], doubled_sum: u64) -> Option<f64> {
    let steps = strata.iter().fold(0usize, |steps, stratum| {
        let of_stratum = [
            stratum.doubled_ranks.len(),
            stratum.later,
            most_sum(stratum),
        ];
        steps.saturating_add(of_stratum.into_iter().fold(1, usize::saturating_mul))
    });
    if steps > STEPS_MAX {
        return None;
    }
    let mut size = SumSize::default();
    let mut mean = 0.0;
    for stratum in strata {
        let sum: u64 = stratum
            .doubled_ranks
            .iter()
            .map(|rank| u64::from(*rank))
            .sum();
        mean += sum as f64 * stratum.later as f64 / stratum.doubled_ranks.len().max(1) as f64;
        size.add(most_sum(stratum) + 1)?;
    }
    let mut ends = Ends::of(size, mean, doubled_sum as f64);
    for stratum in strata {
        let of_stratum = rank_sums(stratum);
        ends.add(of_stratum.len(), |sum| of_stratum[sum]);
    }
    Some(ends.probability())
}

/// Returns an upper bound of the doubled rank sum of a stratum's later members.
fn most_sum(stratum: &RankStratum) -> usize {
    *stratum.doubled_ranks.iter().max().unwrap_or(&0) as usize * stratum.later
}

/// Returns the probability of each doubled rank sum, by its value, for a random choice of the later
/// members.
fn rank_sums(stratum: &RankStratum) -> Vec<f64> {
    let most = most_sum(stratum);
    let mut ways = vec![vec![0.0f64; most + 1]; stratum.later + 1];
    ways[0][0] = 1.0;
    for (seen, rank) in stratum.doubled_ranks.iter().enumerate() {
        let rank = *rank as usize;
        for taken in (0..stratum.later.min(seen + 1)).rev() {
            let (few, more) = ways.split_at_mut(taken + 1);
            for (sum, count) in few[taken]
                .iter()
                .enumerate()
                .take(most + 1 - rank.min(most))
            {
                if *count > 0.0 {
                    more[0][sum + rank] += count;
                }
            }
        }
    }
    let last = ways.pop().unwrap_or_default();
    let choices: f64 = last.iter().sum();
    last.into_iter().map(|count| count / choices).collect()
}

/// Members of a stratum in a test of one property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareStratum {
    /// Number of members with the property.
    pub with: u64,
    /// Total number of members.
    pub of: u64,
    /// Number of members that are in the later sample.
    pub later: u64,
}

/// Returns the two-sided probability that the number of later members with the property lies at
/// least as far from its mean as `seen`. Returns `None` if there are too many members to count.
pub fn shares_two_sided(strata: &[ShareStratum], seen: u64) -> Option<f64> {
    let mut size = SumSize::default();
    let mut mean = 0.0;
    let strata = || strata.iter().filter(|stratum| stratum.of > 0);
    let values = |stratum: &ShareStratum| stratum.with.min(stratum.later) as usize + 1;
    for stratum in strata() {
        mean += stratum.with as f64 * stratum.later as f64 / stratum.of as f64;
        size.add(values(stratum))?;
    }
    let mut ends = Ends::of(size, mean, seen as f64);
    for stratum in strata() {
        let probability = hypergeometric(*stratum);
        ends.add(values(stratum), |with| probability(with as u64));
    }
    Some(ends.probability())
}

/// Returns the two-sided mid-p-value of `seen` later members with the property. It is the
/// probability of a number farther from the mean than `seen`, plus half of the probability of an
/// equally far one. Unlike a p-value, it is 0.5 on average even if few members have the property.
pub(crate) fn share_mid_two_sided(stratum: ShareStratum, seen: u64) -> f64 {
    let mean = stratum.with as f64 * stratum.later as f64 / stratum.of as f64;
    let off = |with: u64| (with as f64 - mean).abs();
    let part = |with: u64| {
        let farther = off(with) - off(seen);
        if farther > 1e-9 {
            1.0
        } else if farther > -1e-9 {
            0.5
        } else {
            0.0
        }
    };
    let probability = hypergeometric(stratum);
    (0..=stratum.with.min(stratum.later))
        .map(|with| part(with) * probability(with))
        .sum()
}

/// Returns a function that maps a number to the probability that exactly so many of a stratum's
/// later members have the property.
fn hypergeometric(stratum: ShareStratum) -> impl Fn(u64) -> f64 {
    let ShareStratum { with, of, later } = stratum;
    let others = of - with;
    let ln_factorial = |x: u64| ln_gamma(x as f64 + 1.0);
    let [ln_with, ln_others] = [with, others].map(ln_factorial);
    let ln_all = ln_factorial(of) - ln_factorial(later) - ln_factorial(of - later);
    move |seen| {
        if later - seen > others {
            return 0.0;
        }
        let ln_choose = |ln_n: f64, n: u64, k: u64| ln_n - ln_factorial(k) - ln_factorial(n - k);
        (ln_choose(ln_with, with, seen) + ln_choose(ln_others, others, later - seen) - ln_all).exp()
    }
}

/// Number of possible values of a sum of independent integers whose minimum is 0.
#[derive(Clone, Copy)]
struct SumSize(usize);

impl Default for SumSize {
    fn default() -> SumSize {
        SumSize(1)
    }
}

impl SumSize {
    /// Adds a number with so many values. Returns `None` if adding its distribution would take too
    /// long.
    fn add(&mut self, values: usize) -> Option<()> {
        if self.0 * values > STEPS_MAX {
            return None;
        }
        self.0 += values - 1;
        Some(())
    }
}

/// Both ends of the distribution of a sum of independent whole numbers: the values at least as far
/// from the mean as the observed sum. The probabilities of values between them are not computed. An
/// extreme sum of thousands of numbers therefore takes few additions.
struct Ends {
    /// Numbers of values of the whole sum at its lower and its upper end.
    wanted: [usize; 2],
    /// Probabilities of the lowest and of the highest values of the sum so far, in ascending order
    /// of the values.
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Ends {
    fn of(size: SumSize, mean: f64, seen: f64) -> Ends {
        let off = (seen - mean).abs() - 1e-9;
        let is_far = |value: &usize| (*value as f64 - mean).abs() >= off;
        let low = (0..size.0).take_while(is_far).count();
        let high = (low..size.0).rev().take_while(is_far).count();
        Ends {
            wanted: [low, high],
            low: vec![1.0; low.min(1)],
            high: vec![1.0; high.min(1)],
        }
    }

    /// Adds a number with so many values to the sum.
    fn add(&mut self, values: usize, probability: impl Fn(usize) -> f64) {
        let [low, high] = self.wanted.map(|wanted| wanted.min(values));
        let lowest: Vec<f64> = (0..low).map(&probability).collect();
        let highest: Vec<f64> = (values - high..values).map(&probability).collect();
        self.low = convolved(&self.low, &lowest);
        self.low.truncate(self.wanted[0]);
        self.high = convolved(&self.high, &highest);
        let excess = self.high.len().saturating_sub(self.wanted[1]);
        self.high.drain(..excess);
    }

    /// Returns the probability of both ends.
    fn probability(&self) -> f64 {
        self.low.iter().chain(&self.high).sum::<f64>().min(1.0)
    }
}

/// Returns the distribution of the sum of two independent whole numbers; empty if neither has
/// values.
fn convolved(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; (a.len() + b.len()).saturating_sub(1)];
    for (i, p) in a.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        for (sum, q) in sums[i..].iter_mut().zip(b) {
            *sum += p * q;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Share, fisher_two_sided};
    use proptest::prelude::*;

    proptest! {
        /// Checks that the ends have the same probability, to the last bit, as in the whole
        /// distribution.
        #[test]
        fn ends_are_as_in_the_whole_distribution(
            strata in proptest::collection::vec((0u64..9, 0u64..9, 0u64..=16), 0..6),
        ) {
            let strata: Vec<ShareStratum> = strata
                .into_iter()
                .map(|(with, others, later)| {
                    let of = with + others;
                    ShareStratum { with, of, later: later.min(of) }
                })
                .collect();
            let (mut whole, mut mean) = (vec![1.0], 0.0);
            for stratum in strata.iter().filter(|stratum| stratum.of > 0) {
                mean += stratum.with as f64 * stratum.later as f64 / stratum.of as f64;
                let values = 0..=stratum.with.min(stratum.later);
                let of_stratum: Vec<f64> = values.map(hypergeometric(*stratum)).collect();
                whole = convolved(&whole, &of_stratum);
            }
            for seen in 0..whole.len() {
                let off = (seen as f64 - mean).abs() - 1e-9;
                let values = (0..).zip(&whole);
                let far = values.filter(|(value, _)| (f64::from(*value) - mean).abs() >= off);
                let expected = far.map(|(_, p)| p).sum::<f64>().min(1.0);
                prop_assert_eq!(shares_two_sided(&strata, seen as u64), Some(expected));
            }
        }
    }

    #[test]
    fn ranks_of_many_requests_are_not_counted() {
        // The number of additions is 2^67, which overflows 64 bits to 0.
        let members = 1 << 17;
        let many = RankStratum {
            doubled_ranks: (1..=members).map(|rank| 2 * rank).collect(),
            later: 1 << 16,
        };
        assert_eq!(rank_sum_two_sided(&[many], 0), None);
    }

    /// Computes the two-sided probability by enumerating all choices.
    fn enumerated(strata: &[RankStratum], doubled_sum: u64) -> f64 {
        let mut sums = vec![0u64];
        let mut mean = 0.0;
        for stratum in strata {
            let n = stratum.doubled_ranks.len();
            let choices = (0u32..1 << n).filter(|mask| mask.count_ones() as usize == stratum.later);
            let of: Vec<u64> = choices
                .map(|mask| {
                    let taken = (0..n).filter(|at| mask >> at & 1 == 1);
                    taken.map(|at| u64::from(stratum.doubled_ranks[at])).sum()
                })
                .collect();
            mean += of.iter().sum::<u64>() as f64 / of.len() as f64;
            sums = sums
                .iter()
                .flat_map(|a| of.iter().map(move |b| a + b))
                .collect();
        }
        let off = (doubled_sum as f64 - mean).abs() - 1e-9;
        let far = sums
            .iter()
            .filter(|sum| (**sum as f64 - mean).abs() >= off)
            .count();
        far as f64 / sums.len() as f64
    }

    #[test]
    fn rank_sums_equal_an_enumeration_of_all_choices() {
        let stratum = |ranks: &[u32], later| RankStratum {
            doubled_ranks: ranks.to_vec(),
            later,
        };
        let cases = [
            vec![stratum(&[2, 4, 6, 8, 10, 12, 14], 3)],
            vec![stratum(&[3, 3, 6, 9, 9, 12], 2), stratum(&[14, 16, 18], 1)],
            vec![stratum(&[5, 5, 5, 5], 2), stratum(&[2, 20, 22, 24, 26], 4)],
        ];
        for strata in cases {
            for sum in 0..140 {
                let exact = rank_sum_two_sided(&strata, sum).expect("few");
                assert!(
                    (exact - enumerated(&strata, sum)).abs() < 1e-12,
                    "{strata:?} {sum}"
                );
            }
        }
    }

    #[test]
    fn five_of_96_that_rank_highest_are_no_chance() {
        let strata = [RankStratum {
            doubled_ranks: (1..=96).map(|rank| 2 * rank).collect(),
            later: 5,
        }];
        let p = rank_sum_two_sided(&strata, 2 * (92 + 93 + 94 + 95 + 96)).expect("few");
        assert!((3e-8..4e-8).contains(&p), "{p}");
    }

    #[test]
    fn mid_p_values_are_half_on_average() {
        for (with, of, later) in [
            (1, 12, 6),
            (2, 12, 6),
            (3, 25, 12),
            (11, 12, 6),
            (20, 60, 31),
        ] {
            let stratum = ShareStratum { with, of, later };
            let mean: f64 = (0..=with.min(later))
                .map(|seen| hypergeometric(stratum)(seen) * share_mid_two_sided(stratum, seen))
                .sum();
            assert!((mean - 0.5).abs() < 1e-9, "{stratum:?}: {mean}");
        }
        let one = ShareStratum {
            with: 1,
            of: 12,
            later: 6,
        };
        assert!((share_mid_two_sided(one, 1) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn shares_of_one_stratum_are_fishers_table() {
        for seen in 0..=9 {
            let stratum = ShareStratum {
                with: 9,
                of: 60,
                later: 30,
            };
            let exact = shares_two_sided(&[stratum], seen).expect("few");
            let share = |part| Share { part, of: 30 };
            let fisher = fisher_two_sided(share(9 - seen), share(seen));
            assert!((exact - fisher).abs() < 1e-9, "{seen}: {exact} {fisher}");
        }
    }
}
