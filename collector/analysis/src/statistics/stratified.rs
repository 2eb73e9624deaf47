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
    /// Number of members that are in the later sample.
    pub later: usize,
}

/// Maximum number of additions; beyond it, the exact distribution is not computed.
const STEPS_MAX: usize = 8_000_000;

/// Returns the two-sided probability that the later sample's rank sum lies at least as far from its
/// mean as the observed sum. `doubled_sum` is twice the observed sum. Returns `None` if counting
/// all choices would take too long.
pub fn rank_sum_two_sided(strata: &[RankStratum], doubled_sum: u64) -> Option<f64> {
    let steps: usize = strata
        .iter()
        .map(|stratum| {
            let most = *stratum.doubled_ranks.iter().max().unwrap_or(&0) as usize;
            stratum.doubled_ranks.len() * stratum.later * stratum.later * most
        })
        .sum();
    if steps > STEPS_MAX {
        return None;
    }
    let mut all = vec![1.0];
    let mut mean = 0.0;
    for stratum in strata {
        let sum: u64 = stratum
            .doubled_ranks
            .iter()
            .map(|rank| u64::from(*rank))
            .sum();
        mean += sum as f64 * stratum.later as f64 / stratum.doubled_ranks.len().max(1) as f64;
        let of_stratum = rank_sums(stratum);
        if all.len() * of_stratum.len() > STEPS_MAX {
            return None;
        }
        all = convolved(&all, &of_stratum);
    }
    Some(both_tails(&all, mean, doubled_sum as f64))
}

/// Returns the probability of each doubled rank sum, by its value, for a random choice of the later
/// members.
fn rank_sums(stratum: &RankStratum) -> Vec<f64> {
    let most = *stratum.doubled_ranks.iter().max().unwrap_or(&0) as usize * stratum.later;
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
    let mut all = vec![1.0];
    let mut mean = 0.0;
    for stratum in strata {
        if stratum.of == 0 {
            continue;
        }
        mean += stratum.with as f64 * stratum.later as f64 / stratum.of as f64;
        let most = stratum.with.min(stratum.later) as usize;
        if all.len() * (most + 1) > STEPS_MAX {
            return None;
        }
        let of_stratum: Vec<f64> = (0..=most as u64)
            .map(|with| hypergeometric(*stratum, with))
            .collect();
        all = convolved(&all, &of_stratum);
    }
    Some(both_tails(&all, mean, seen as f64))
}

/// Returns the two-sided mid-p-value of `seen` later members with the property. It is the
/// probability of a number that is farther from its mean, plus half of that of an equally far one.
/// Unlike a p-value, it is 0.5 on average even if few members have the property.
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
    (0..=stratum.with.min(stratum.later))
        .map(|with| part(with) * hypergeometric(stratum, with))
        .sum()
}

/// Returns the probability that exactly `with` of a stratum's later members have the property.
fn hypergeometric(stratum: ShareStratum, with: u64) -> f64 {
    let others = stratum.of - stratum.with;
    if stratum.later - with > others {
        return 0.0;
    }
    let ln_choose = |n: u64, k: u64| {
        let ln_factorial = |x: u64| ln_gamma(x as f64 + 1.0);
        ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
    };
    (ln_choose(stratum.with, with) + ln_choose(others, stratum.later - with)
        - ln_choose(stratum.of, stratum.later))
    .exp()
}

/// Returns the distribution of the sum of two independent whole numbers.
fn convolved(a: &[f64], b: &[f64]) -> Vec<f64> {
    if a.len() == 1 {
        return b.iter().map(|p| p * a[0]).collect();
    }
    let mut sums = vec![0.0; a.len() + b.len() - 1];
    for (i, p) in a.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        for (sum, q) in sums[i..].iter_mut().zip(b) {
            *sum += p * q;
        }
    }
    sums
}

fn both_tails(probabilities: &[f64], mean: f64, seen: f64) -> f64 {
    let off = (seen - mean).abs() - 1e-9;
    let as_far = probabilities
        .iter()
        .enumerate()
        .filter(|(value, _)| (*value as f64 - mean).abs() >= off);
    as_far.map(|(_, p)| p).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Share, fisher_two_sided};

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
                .map(|seen| hypergeometric(stratum, seen) * share_mid_two_sided(stratum, seen))
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
