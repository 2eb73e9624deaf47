//! Whether a difference between two periods is more than what one period differs from itself.
//!
//! Requests are not independent: what runs beside them, caches and queues make neighbours alike, and machines are faster in
//! one minute than in the next. Thousands of requests then prove any trifle. So each period is cut into slices of time, and
//! what differs between the periods is compared with what differs between slices of one (batch means; Law, Simulation
//! modeling and analysis, §9.5). Neighbouring slices that are alike still make it less certain.

use crate::statistics::student_two_sided;

/// At most so many slices a period: with more, they are of moments that belong together.
pub(super) const SLICES_MAX: usize = 12;
/// A slice has at least about so many requests, where a period has many.
const REQUESTS_PER_SLICE: usize = 6;
/// How much less certain neighbours that are alike make it, at most.
const INFLATION_MAX: f64 = 4.0;

/// How many slices so many requests are cut into.
pub(super) fn slice_count(requests: usize) -> usize {
    (requests / REQUESTS_PER_SLICE).clamp(2, SLICES_MAX)
}

/// A value of one slice: its weighted mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice {
    pub(super) weight: f64,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

impl Slice {
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        self.sum += weight * value;
        self.squares += weight * value * value;
    }

    /// Its mean; of nothing, that is not a number.
    fn mean(&self) -> f64 {
        self.sum / self.weight
    }
}

/// The mean of a period and how sure it is.
#[derive(Clone, Copy, Debug)]
struct Sureness {
    mean: f64,
    /// The variance of the mean.
    variance: f64,
    freedom: f64,
}

/// `rows`: how many requests the slices are of, as their weights need not say.
fn sureness(slices: &[Slice], rows: usize) -> Option<Sureness> {
    let used: Vec<Slice> = slices
        .iter()
        .copied()
        .filter(|slice| slice.weight > 0.0)
        .collect();
    let count = used.len() as f64;
    if used.len() < 2 {
        return None;
    }
    let weight: f64 = used.iter().map(|slice| slice.weight).sum();
    let mean = used.iter().map(|slice| slice.sum).sum::<f64>() / weight;
    let squares = used.iter().map(|slice| slice.squares).sum::<f64>() / weight;
    let residuals: Vec<f64> = used
        .iter()
        .map(|slice| (slice.mean() - mean) * (slice.weight * count / weight).sqrt())
        .collect();
    let between: f64 = residuals.iter().map(|r| r * r).sum::<f64>() / (count - 1.0);
    let alike = residuals
        .windows(2)
        .map(|pair| pair[0] * pair[1])
        .sum::<f64>()
        / (count - 1.0);
    // Of two or three neighbours nothing is known.
    let correlation = if between > 0.0 && used.len() > 3 {
        (alike / between).clamp(0.0, 0.9)
    } else {
        0.0
    };
    let inflation = ((1.0 + correlation) / (1.0 - correlation)).min(INFLATION_MAX);
    // Never surer than if all were independent: a few slices may be alike by chance.
    let independent = (squares - mean * mean).max(0.0) / rows.max(1) as f64;
    Some(Sureness {
        mean,
        variance: (between / count * inflation).max(independent),
        freedom: count - 1.0,
    })
}

/// How probable a difference of this size or more is where nothing has changed (two-sided): Welch's test over slices; 1, where
/// there are too few. And the difference, after minus before.
pub(super) fn difference(
    (before, rows_before): (&[Slice], usize),
    (after, rows_after): (&[Slice], usize),
) -> (f64, f64) {
    let (Some(before), Some(after)) = (sureness(before, rows_before), sureness(after, rows_after))
    else {
        return (1.0, 0.0);
    };
    let difference = after.mean - before.mean;
    let variance = before.variance + after.variance;
    if variance <= 0.0 {
        // Nothing varies at all.
        return (if difference == 0.0 { 1.0 } else { 0.0 }, difference);
    }
    let freedom = variance * variance
        / (before.variance.powi(2) / before.freedom + after.variance.powi(2) / after.freedom);
    (
        student_two_sided(difference / variance.sqrt(), freedom),
        difference,
    )
}

/// The standard error of the difference of two periods' means; `None`, where there are too few slices.
pub(super) fn error(
    (before, rows_before): (&[Slice], usize),
    (after, rows_after): (&[Slice], usize),
) -> Option<f64> {
    let both = [sureness(before, rows_before)?, sureness(after, rows_after)?];
    Some((both[0].variance + both[1].variance).sqrt())
}

/// The same by the later slices that lie farthest from the earlier ones: a change that lasted for a part of the period
/// only. How far slices lie apart is known from the earlier period. The second farthest counts, as a single request may
/// take a slice anywhere.
pub(super) fn farthest_difference(before: &[Slice], after: &[Slice]) -> f64 {
    let (before, after) = (means(before), means(after));
    let count = before.len() as f64;
    if before.len() < SLICES_KNOWN_MIN {
        return 1.0;
    }
    let mean = before.iter().sum::<f64>() / count;
    let variance = before.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    if variance <= 0.0 {
        return 1.0;
    }
    let far = after
        .iter()
        .map(|one| (one - mean).abs())
        .fold(0.0, f64::max);
    let t = far / (variance * (1.0 + 1.0 / count)).sqrt();
    (student_two_sided(t, count - 1.0) * after.len() as f64).min(1.0)
}

/// How slices differ is not known from fewer.
pub(super) const SLICES_KNOWN_MIN: usize = 5;

fn means(slices: &[Slice]) -> Vec<f64> {
    let used = slices.iter().filter(|slice| slice.weight > 0.0);
    used.map(Slice::mean).collect()
}

/// The same by which slices have the larger means (Wilcoxon's rank-sum test): a change in the midst of a period makes its
/// slices differ, which Welch's test takes for uncertainty, and this one does not.
pub(super) fn rank_difference(before: &[Slice], after: &[Slice]) -> f64 {
    let (before, after) = (means(before), means(after));
    let (n, m) = (before.len(), after.len());
    if n < 2 || m < 2 {
        return 1.0;
    }
    // Twice the rank sum of the one, with ties in the middle of theirs: whole numbers.
    let mut all: Vec<(f64, bool)> = before.iter().map(|mean| (*mean, false)).collect();
    all.extend(after.iter().map(|mean| (*mean, true)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut doubled: Vec<(usize, bool)> = Vec::with_capacity(all.len());
    for alike in all.chunk_by(|a, b| a.0 == b.0) {
        let first = doubled.len();
        let rank = 2 * first + alike.len() + 1;
        doubled.extend(alike.iter().map(|(_, is_after)| (rank, *is_after)));
    }
    let seen: usize = doubled
        .iter()
        .filter(|(_, is_after)| *is_after)
        .map(|(rank, _)| rank)
        .sum();
    // How many of the choices of m slices have which sum of ranks, exactly.
    let most: usize = doubled.iter().map(|(rank, _)| rank).sum();
    let mut ways = vec![vec![0.0f64; most + 1]; m + 1];
    ways[0][0] = 1.0;
    for (rank, _) in &doubled {
        for taken in (0..m).rev() {
            for sum in 0..=most - rank {
                let more = ways[taken][sum];
                if more > 0.0 {
                    ways[taken + 1][sum + rank] += more;
                }
            }
        }
    }
    let all: f64 = ways[m].iter().sum();
    let middle = most as f64 * m as f64 / (n + m) as f64;
    let off = (seen as f64 - middle).abs() - 1e-9;
    let as_far: f64 = ways[m]
        .iter()
        .enumerate()
        .filter(|(sum, _)| (*sum as f64 - middle).abs() >= off)
        .map(|(_, ways)| ways)
        .sum();
    (as_far / all).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slices(means: &[f64]) -> Vec<Slice> {
        let slice = |mean: &f64| {
            let mut slice = Slice::default();
            slice.add(*mean, 3.0);
            slice
        };
        means.iter().map(slice).collect()
    }

    /// All ways to choose so many of the ranks, and how many of them have a sum as far from the middle.
    fn by_enumeration(before: &[f64], after: &[f64]) -> f64 {
        let all: Vec<f64> = before.iter().chain(after).copied().collect();
        let rank = |of: f64| {
            let below = all.iter().filter(|one| **one < of).count();
            let same = all.iter().filter(|one| **one == of).count();
            below as f64 + (same as f64 + 1.0) / 2.0
        };
        let ranks: Vec<f64> = all.iter().map(|one| rank(*one)).collect();
        let middle = ranks.iter().sum::<f64>() * after.len() as f64 / all.len() as f64;
        let seen: f64 = after.iter().map(|one| rank(*one)).sum();
        let (mut far, mut ways) = (0, 0);
        for chosen in 0u32..1 << all.len() {
            if chosen.count_ones() as usize == after.len() {
                let picked = ranks
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| chosen >> at & 1 == 1);
                let sum: f64 = picked.map(|(_, rank)| rank).sum();
                ways += 1;
                far += u32::from((sum - middle).abs() >= (seen - middle).abs() - 1e-9);
            }
        }
        f64::from(far) / f64::from(ways)
    }

    proptest! {
        #[test]
        fn rank_sums_are_as_probable_as_all_choices_say(
            before in prop::collection::vec(0u8..6, 2..7),
            after in prop::collection::vec(0u8..6, 2..7),
        ) {
            let numbers = |of: &[u8]| of.iter().map(|one| f64::from(*one)).collect::<Vec<_>>();
            let (before, after) = (numbers(&before), numbers(&after));
            let found = rank_difference(&slices(&before), &slices(&after));
            prop_assert!((found - by_enumeration(&before, &after)).abs() < 1e-9);
        }
    }

    /// How often each test calls a difference of nothing more than chance, at 5 %. Neighbouring slices are alike by `alike`.
    fn false_alarms(alike: f64) -> [f64; 3] {
        let mut seed = 1u64;
        let mut normal = || {
            let mut unit = || {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 11) as f64 + 1.0) / (1u64 << 53) as f64
            };
            (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
        };
        let mut alarms = [0.0; 3];
        const TRIALS: usize = 4_000;
        for _ in 0..TRIALS {
            let mut period = || {
                let mut last = normal();
                let mut next = || {
                    last = alike * last + (1.0 - alike * alike).sqrt() * normal();
                    last
                };
                slices(&(0..SLICES_MAX).map(|_| next()).collect::<Vec<_>>())
            };
            let (before, after) = (period(), period());
            let p_values = [
                difference((&before, 1_000), (&after, 1_000)).0,
                rank_difference(&before, &after),
                farthest_difference(&before, &after),
            ];
            for (alarms, p_value) in alarms.iter_mut().zip(p_values) {
                *alarms += f64::from(u8::from(p_value <= 0.05)) / TRIALS as f64;
            }
        }
        alarms
    }

    #[test]
    fn nothing_is_more_than_chance_as_often_as_is_said() {
        let [by_means, by_ranks, by_farthest] = false_alarms(0.0);
        assert!(
            by_means <= 0.06 && by_ranks <= 0.06 && by_farthest <= 0.07,
            "{by_means} {by_ranks} {by_farthest}"
        );
        // What is alike for a while is taken for less than it seems.
        let [by_means, ..] = false_alarms(0.3);
        assert!(by_means <= 0.12, "{by_means}");
    }

    #[test]
    fn a_change_of_a_part_of_a_period_is_found() {
        let before: Vec<f64> = (0..12).map(|at| f64::from(at % 3)).collect();
        let mut after = before.clone();
        (after[10], after[11]) = (100.0, 120.0);
        let (before, after) = (slices(&before), slices(&after));
        assert!(farthest_difference(&before, &after) < 1e-6);
        assert!(rank_difference(&before, &after) > 0.1);
        assert_eq!(farthest_difference(&before, &before.clone()), 1.0);
    }
}
