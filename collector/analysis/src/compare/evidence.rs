//! Evidence that a place takes another time than before, from the requests in which it runs.
//!
//! Latencies have heavy tails, neighbouring requests are alike, and a rare operation runs a few times only. So three
//! statistics of ranks are tested, each within strata of requests that do the same: the sum of ranks, and the numbers of
//! times among the slowest tenth and the slowest fiftieth, for a change of a part of the requests. Their permutation
//! distributions are exact for few requests ([`crate::statistics::stratified`]). Requests are no independent sample of a
//! period, so each deviation is divided by how much more the statistic varies between slices of one period than
//! independence predicts. A single place shows that badly; [`Variability`] shares it among all places, as empirical Bayes
//! estimates of variances do (Smyth, Linear models and empirical Bayes methods, 2004).

use super::rows::Period;
use crate::statistics::stratified::{
    RankStratum, ShareStratum, rank_sum_two_sided, shares_two_sided,
};
use crate::statistics::{
    Share, fisher_two_sided, is_testable, normal_deviation, normal_two_sided, student_two_sided,
};

/// Time at a place in one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// Requests that do the same there; only these are compared.
    pub(super) stratum: u32,
    pub(super) period: Period,
    /// When the request began.
    pub(super) start_ns: i64,
    pub(super) time_ns: f32,
}

/// A period's observations are cut into at most so many slices of time.
const SLICES_MAX: usize = 12;
/// A slice has at least about so many observations.
const SLICE_ROWS_MIN: usize = 6;
/// Variability between slices is not known from fewer.
const SLICES_KNOWN_MIN: usize = 5;
/// Parts of all observations that count as the slowest.
const SLOWEST: [f64; 2] = [0.1, 0.02];
/// Fewer slow observations are not tested.
const SLOW_MIN: usize = 4;
/// Shares of the permitted error rate, of which ranks get a half and each part of the slowest a quarter.
const SHARES: [f64; 3] = [0.5, 0.25, 0.25];
/// Without its most extreme slice, a change must still lie so many deviations from chance.
const WITHOUT_ONE_MIN: f64 = 2.0;

/// What the observations of one place show.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// Observations of either period in strata that both have.
    pub(super) rows: [usize; 2],
    slices: [usize; 2],
    /// Of ranks, of the slowest tenth and of the slowest fiftieth.
    statistics: Vec<Statistic>,
    /// By period: the squared difference of mean ranks between its halves, in units of the variance of ranks, and what
    /// independence predicts for it.
    halves: [Option<[f64; 2]>; 2],
}

/// A statistic and how it varies.
#[derive(Clone, Copy, Debug)]
struct Statistic {
    share: f64,
    /// Standard deviations from the mean of its permutation distribution; positive where the later period is slower.
    deviations: f64,
    /// The same without the slice that adds most.
    without_one: f64,
    /// By period: how many times as much it varies between slices as independence predicts.
    inflation: [Option<f64>; 2],
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) p_value: f64,
    /// Whether the later period is slower, by the statistic that shows most.
    pub(super) is_slower: bool,
}

impl Evidence {
    /// Evidence from these observations; `None` where no stratum has observations of both periods.
    pub(super) fn of(observations: &[Observation]) -> Option<Evidence> {
        let mut rows = aligned(observations);
        if rows.is_empty() {
            return None;
        }
        rows.sort_by_key(|row| (row.period, row.start_ns));
        let counts = [Period::Before, Period::After]
            .map(|period| rows.iter().filter(|row| row.period == period).count());
        let slices = counts.map(|count| (count / SLICE_ROWS_MIN).clamp(2, SLICES_MAX));
        for (at, row) in rows.iter_mut().enumerate() {
            let period = row.period as usize;
            let place = at - if period == 0 { 0 } else { counts[0] };
            row.slice = place * slices[period] / counts[period];
        }
        let doubled = doubled_ranks(&rows);
        let scores: Vec<f64> = doubled.iter().map(|rank| f64::from(*rank)).collect();
        let centred = centred(&rows, &scores);
        let exact = exact_rank_deviations(&rows, &doubled);
        let mut statistics: Vec<Statistic> =
            Statistic::of(&rows, &centred, slices, exact, SHARES[0])
                .into_iter()
                .collect();
        let halves = halves(&rows, &centred, counts);
        for (part, share) in SLOWEST.into_iter().zip(&SHARES[1..]) {
            let Some(slow) = slowest(&rows, part) else {
                continue;
            };
            let scores: Vec<f64> = slow.iter().map(|slow| f64::from(u8::from(*slow))).collect();
            let centred = self::centred(&rows, &scores);
            let exact = exact_share_deviations(&rows, &slow);
            statistics.extend(Statistic::of(&rows, &centred, slices, exact, *share));
        }
        Some(Evidence {
            rows: counts,
            slices,
            statistics,
            halves,
        })
    }

    /// Evidence that more or fewer requests have a property, from whether sampled ones have it, in order of time; `with`
    /// and `of` are the numbers of all requests. `None` where all or none have it.
    pub(super) fn of_shares(
        has: &[(Period, bool)],
        with: [u64; 2],
        of: [u64; 2],
    ) -> Option<Evidence> {
        let share = |period: usize| Share {
            part: with[period],
            of: of[period],
        };
        if !is_testable(share(0), share(1)) {
            return None;
        }
        let earlier = has.partition_point(|(period, _)| *period == Period::Before);
        let counts = [earlier, has.len() - earlier];
        let slices = counts.map(|count| (count / SLICE_ROWS_MIN).clamp(2, SLICES_MAX));
        let rows: Vec<Aligned> = has
            .iter()
            .enumerate()
            .map(|(at, (period, has))| {
                let period_number = *period as usize;
                let place = at
                    - if *period == Period::Before {
                        0
                    } else {
                        earlier
                    };
                Aligned {
                    stratum: 0,
                    period: *period,
                    start_ns: at as i64,
                    slice: place * slices[period_number] / counts[period_number],
                    value: f64::from(u8::from(*has)),
                }
            })
            .collect();
        let scores: Vec<f64> = rows.iter().map(|row| row.value).collect();
        let centred = centred(&rows, &scores);
        let exact = normal_deviation(fisher_two_sided(share(0), share(1)));
        let statistic = Statistic::of(&rows, &centred, slices, Some(exact), 1.0)?;
        Some(Evidence {
            rows: counts,
            slices,
            statistics: vec![statistic],
            halves: halves(&rows, &centred, counts),
        })
    }

    /// Observations per slice.
    fn rows_per_slice(&self) -> f64 {
        (self.rows[0] + self.rows[1]) as f64 / (self.slices[0] + self.slices[1]) as f64
    }

    /// How probable such a difference is where nothing has changed, if places vary like this.
    pub(super) fn verdict(&self, variability: &Variability) -> Verdict {
        let of = |statistic: &Statistic| {
            let (inflation, freedom) = variability.inflation(self, statistic);
            let deviations = statistic.deviations / inflation.sqrt();
            let p_value = freedom.map_or_else(
                || normal_two_sided(deviations),
                |freedom| student_two_sided(deviations, freedom),
            );
            let is_spread = statistic.without_one / inflation.sqrt() >= WITHOUT_ONE_MIN;
            Verdict {
                p_value: if is_spread {
                    (p_value / statistic.share).min(1.0)
                } else {
                    1.0
                },
                is_slower: statistic.deviations > 0.0,
            }
        };
        let nothing = Verdict {
            p_value: 1.0,
            is_slower: false,
        };
        self.statistics.iter().map(of).fold(nothing, |best, one| {
            if one.p_value < best.p_value {
                one
            } else {
                best
            }
        })
    }
}

/// An observation in units of what is usual in its stratum.
#[derive(Clone, Copy, Debug)]
struct Aligned {
    stratum: usize,
    period: Period,
    start_ns: i64,
    slice: usize,
    value: f64,
}

/// Observations of strata that both periods have, with these strata numbered anew.
fn aligned(observations: &[Observation]) -> Vec<Aligned> {
    let mut order: Vec<&Observation> = observations.iter().collect();
    order.sort_by(|a, b| {
        (a.stratum, a.time_ns)
            .partial_cmp(&(b.stratum, b.time_ns))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut rows = Vec::with_capacity(order.len());
    let mut number = 0;
    for stratum in order.chunk_by(|a, b| a.stratum == b.stratum) {
        let later = stratum
            .iter()
            .filter(|one| one.period == Period::After)
            .count();
        if later == 0 || later == stratum.len() {
            continue;
        }
        let some = &stratum[stratum.partition_point(|one| one.time_ns <= 0.0)..];
        let usual_ns = some
            .get(some.len() / 2)
            .map_or(1.0, |one| f64::from(one.time_ns));
        rows.extend(stratum.iter().map(|one| Aligned {
            stratum: number,
            period: one.period,
            start_ns: one.start_ns,
            slice: 0,
            value: f64::from(one.time_ns) / usual_ns,
        }));
        number += 1;
    }
    rows
}

/// Twice the rank of each value, ties in the middle of theirs.
fn doubled_ranks(rows: &[Aligned]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by(|a, b| rows[*a].value.total_cmp(&rows[*b].value));
    let mut doubled = vec![0; rows.len()];
    let mut below = 0;
    for alike in order.chunk_by(|a, b| rows[*a].value == rows[*b].value) {
        for at in alike {
            doubled[*at] = (2 * below + alike.len() + 1) as u32;
        }
        below += alike.len();
    }
    doubled
}

/// Which values are among this part of the largest; `None` where these are too few.
fn slowest(rows: &[Aligned], part: f64) -> Option<Vec<bool>> {
    let mut values: Vec<f64> = rows.iter().map(|row| row.value).collect();
    values.sort_unstable_by(f64::total_cmp);
    let bound = values[((1.0 - part) * values.len() as f64) as usize];
    let slow: Vec<bool> = rows.iter().map(|row| row.value >= bound).collect();
    let count = slow.iter().filter(|slow| **slow).count();
    // Where many are equal to the bound, it parts nothing.
    (count >= SLOW_MIN && count as f64 <= 2.0 * part * rows.len() as f64).then_some(slow)
}

fn strata(rows: &[Aligned]) -> usize {
    rows.iter().map(|row| row.stratum + 1).max().unwrap_or(0)
}

/// Scores less the mean of their stratum.
fn centred(rows: &[Aligned], scores: &[f64]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); strata(rows)];
    for (row, score) in rows.iter().zip(scores) {
        sums[row.stratum].0 += score;
        sums[row.stratum].1 += 1.0;
    }
    let centre = |(row, score): (&Aligned, &f64)| score - sums[row.stratum].0 / sums[row.stratum].1;
    rows.iter().zip(scores).map(centre).collect()
}

impl Statistic {
    /// The sum of the later period's centred scores; `exact` is its deviation where that is known better.
    fn of(
        rows: &[Aligned],
        scores: &[f64],
        slices: [usize; 2],
        exact: Option<f64>,
        share: f64,
    ) -> Option<Statistic> {
        let mut strata = vec![[0.0f64; 3]; strata(rows)];
        let mut sum = 0.0;
        for (row, score) in rows.iter().zip(scores) {
            let later = f64::from(u8::from(row.period == Period::After));
            let of = &mut strata[row.stratum];
            of[0] += 1.0;
            of[1] += later;
            of[2] += score * score;
            sum += score * later;
        }
        let variance: f64 = strata
            .iter()
            .map(|[n, later, squares]| later * (n - later) / (n * (n - 1.0)) * squares)
            .sum();
        if variance <= 0.0 {
            return None;
        }
        let by_moments = sum / variance.sqrt();
        let deviations = exact.map_or(by_moments, |exact| exact.copysign(sum));
        let inflation = [Period::Before, Period::After]
            .map(|period| inflation(rows, scores, period, slices[period as usize]));
        Some(Statistic {
            share,
            deviations,
            without_one: without_one(rows, scores, slices, sum) / variance.sqrt(),
            inflation,
        })
    }
}

/// How much of the sum is left without the slice that adds most to it, where the rest could decide anything.
fn without_one(rows: &[Aligned], scores: &[f64], slices: [usize; 2], sum: f64) -> f64 {
    // The earlier period's scores add to the difference with the opposite sign; all of them together cancel the later's.
    let mut most = 0.0f64;
    for period in [Period::Before, Period::After] {
        let count = slices[period as usize];
        if count < SLICES_KNOWN_MIN {
            continue;
        }
        let mut sums = vec![0.0; count];
        for (row, score) in rows
            .iter()
            .zip(scores)
            .filter(|(row, _)| row.period == period)
        {
            sums[row.slice] += if period == Period::After {
                *score
            } else {
                -score
            };
        }
        let of_most = sums
            .iter()
            .map(|own| own * sum.signum())
            .fold(0.0, f64::max);
        most = most.max(of_most);
    }
    sum.abs() - most
}

/// How many times as much the sum of a period's scores varies between its slices as independence predicts, with regard to
/// neighbours that are alike (Newey and West, 1987, with one lag); `None` where slices are too few.
fn inflation(rows: &[Aligned], scores: &[f64], period: Period, count: usize) -> Option<f64> {
    if count < SLICES_KNOWN_MIN {
        return None;
    }
    let own = || {
        rows.iter()
            .zip(scores)
            .filter(|(row, _)| row.period == period)
    };
    let (n, sum) = own().fold((0.0, 0.0), |(n, sum), (_, score)| (n + 1.0, sum + score));
    let mean = sum / n;
    let mut sums = vec![0.0; count];
    let mut squares = 0.0;
    for (row, score) in own() {
        sums[row.slice] += score - mean;
        squares += (score - mean).powi(2);
    }
    if squares <= 0.0 {
        return None;
    }
    let between: f64 = sums.iter().map(|sum| sum * sum).sum();
    let alike: f64 = sums.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let slices = count as f64;
    Some(slices / (slices - 1.0) * (between + alike.max(0.0)) / squares)
}

/// The squared difference of mean ranks between the halves of each period, and its expectation under independence, both in
/// units of the variance of ranks.
fn halves(rows: &[Aligned], scores: &[f64], counts: [usize; 2]) -> [Option<[f64; 2]>; 2] {
    [Period::Before, Period::After].map(|period| {
        let count = counts[period as usize];
        if count < 2 * SLICE_ROWS_MIN {
            return None;
        }
        let own: Vec<f64> = rows
            .iter()
            .zip(scores)
            .filter(|(row, _)| row.period == period)
            .map(|(_, score)| *score)
            .collect();
        let mean = own.iter().sum::<f64>() / count as f64;
        let variance = own.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / count as f64;
        let (first, second) = own.split_at(count / 2);
        let of = |half: &[f64]| half.iter().sum::<f64>() / half.len() as f64;
        let expected = 1.0 / first.len() as f64 + 1.0 / second.len() as f64;
        (variance > 0.0).then(|| [(of(second) - of(first)).powi(2) / variance, expected])
    })
}

/// Deviations of a normal value that is as improbable as the exact probability of the rank sum.
fn exact_rank_deviations(rows: &[Aligned], doubled: &[u32]) -> Option<f64> {
    let mut strata = vec![RankStratum::default(); strata(rows)];
    // The fewer are chosen, the fewer choices there are.
    let later = rows
        .iter()
        .filter(|row| row.period == Period::After)
        .count();
    let chosen = if 2 * later <= rows.len() {
        Period::After
    } else {
        Period::Before
    };
    let mut sum = 0;
    for (row, rank) in rows.iter().zip(doubled) {
        strata[row.stratum].doubled_ranks.push(*rank);
        if row.period == chosen {
            strata[row.stratum].later += 1;
            sum += u64::from(*rank);
        }
    }
    rank_sum_two_sided(&strata, sum).map(normal_deviation)
}

/// The same of the number of slow observations.
fn exact_share_deviations(rows: &[Aligned], slow: &[bool]) -> Option<f64> {
    let mut strata = vec![ShareStratum::default(); strata(rows)];
    let mut seen = 0;
    for (row, slow) in rows.iter().zip(slow) {
        let (of, later) = (&mut strata[row.stratum], row.period == Period::After);
        of.of += 1;
        of.with += u64::from(*slow);
        of.later += u64::from(later);
        seen += u64::from(later && *slow);
    }
    shares_two_sided(&strata, seen).map(normal_deviation)
}

/// How much places vary within a period, beyond what independent requests would.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variability {
    /// The correlation of observations in one slice.
    within_slices: f64,
    /// The variance between windows of time, in units of the variance of ranks.
    between_windows: f64,
    /// How many degrees of freedom the places together are worth to each of them.
    weight: f64,
    /// How many places this is known from.
    places: f64,
}

/// What all places show together counts as much as so many slices of one: places differ.
const WEIGHT: f64 = 10.0;
/// Fewer places show nothing together.
const PLACES_MIN: usize = 6;
/// The median of a chi-squared value of one degree of freedom.
const CHI_SQUARED_MEDIAN: f64 = 0.4549;

impl Variability {
    /// Of all places that are compared. Each component is the quieter period's, as a change in the midst of a period makes
    /// that one vary; it is a median, as some places change.
    pub(super) fn of(evidence: &[&Evidence]) -> Variability {
        let quieter = |of: &dyn Fn(usize) -> Option<f64>| {
            [0, 1]
                .into_iter()
                .filter_map(of)
                .fold(f64::INFINITY, f64::min)
        };
        let within = |period: usize| {
            let one = |evidence: &&Evidence| {
                let inflation = evidence.statistics.first()?.inflation[period]?;
                let rows = evidence.rows[period] as f64 / evidence.slices[period] as f64;
                Some((inflation - 1.0) / (rows - 1.0).max(1.0))
            };
            median(evidence.iter().filter_map(one).collect())
        };
        let between = |period: usize| {
            let halves: Vec<[f64; 2]> = evidence
                .iter()
                .filter_map(|one| one.halves[period])
                .collect();
            (halves.len() >= PLACES_MIN).then(|| between_windows(&halves))
        };
        let (within, between) = (quieter(&within), quieter(&between));
        let known = |value: f64| {
            if value.is_finite() {
                value.max(0.0)
            } else {
                0.0
            }
        };
        Variability {
            within_slices: known(within),
            between_windows: known(between),
            weight: if within.is_finite() { WEIGHT } else { 0.0 },
            places: evidence.len() as f64,
        }
    }

    /// By how much a statistic's variance exceeds that of independent observations, and the degrees of freedom of that
    /// estimate; `None` where it does not exceed it.
    fn inflation(&self, evidence: &Evidence, statistic: &Statistic) -> (f64, Option<f64>) {
        let rows_per_slice = evidence.rows_per_slice();
        let usual = 1.0 + (rows_per_slice - 1.0).max(0.0) * self.within_slices;
        let own = statistic.inflation.into_iter().flatten().reduce(f64::min);
        let slices = evidence.slices[0].min(evidence.slices[1]) as f64;
        let of_slices = match own {
            Some(own) => {
                (self.weight * usual + (slices - 1.0) * own) / (self.weight + slices - 1.0)
            }
            None => usual,
        };
        let [before, after] = evidence.rows.map(|rows| rows as f64);
        let of_windows = 1.0 + self.between_windows * before * after / (before + after);
        let inflation = of_slices.max(of_windows).max(1.0);
        let freedom = self.places + own.map_or(0.0, |_| slices - 1.0);
        (
            inflation,
            (inflation > 1.0 && freedom > 0.0).then_some(freedom),
        )
    }
}

/// The variance between halves that makes the median of their squared differences what it is expected to be.
fn between_windows(halves: &[[f64; 2]]) -> f64 {
    let ratio = |variance: f64| {
        median(
            halves
                .iter()
                .map(|[squared, expected]| squared / (expected + variance))
                .collect(),
        )
        .unwrap_or_default()
    };
    if ratio(0.0) <= CHI_SQUARED_MEDIAN {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 12.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if ratio(middle) > CHI_SQUARED_MEDIAN {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}
