//! Evidence that the time of a place changed, from the requests in which it runs.
//!
//! Latencies have heavy tails, neighbouring requests are alike, and a rare operation runs only a
//! few times. Three rank statistics are therefore tested, each within strata of requests that
//! behave alike at the place. One is the sum of ranks. The others detect a change in a part of the
//! requests: they count observations among the slowest tenth and among the slowest fiftieth. Their
//! permutation distributions are exact for few requests ([`crate::statistics::stratified`]).
//!
//! Requests are not an independent sample of a period. Each statistic's variance is therefore
//! inflated by a ratio: its variation between slices of one period, relative to that of independent
//! requests. One place alone allows no good estimate of this ratio. [`Variability`] combines it
//! with the estimate from all places, as empirical Bayes estimates of variances do (Smyth, Linear
//! models and empirical Bayes methods, 2004).

mod aligned;
mod joined;
mod section;
mod variability;

use aligned::{
    AlignedObservation, aligned, ascending, centred, doubled_ranks, exact_rank_deviations,
    exact_share_deviations, least_p_value, slowest, strata,
};
pub(in crate::compare) use joined::GroupEvidence;
pub(in crate::compare) use section::SectionEvidence;
pub(in crate::compare) use variability::Variability;

use super::rows::Period;
use super::slices::{REQUESTS_PER_SLICE, slice_count, slice_of};
use crate::record::TraceId;
use crate::statistics::stratified::{ShareStratum, share_mid_two_sided, shares_two_sided};
use crate::statistics::{
    Share, fisher_two_sided, is_testable, normal_deviation, normal_two_sided, student_two_sided,
};

/// Time at one place in one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// Number of the stratum. Only requests of one stratum are compared.
    pub(super) stratum: u32,
    pub(super) period: Period,
    /// Start of the request, in nanoseconds since the Unix epoch.
    pub(super) start_ns: i64,
    /// Id of the request. It orders requests of one instant, as coarse clocks show them.
    pub(super) id: TraceId,
    pub(super) time_ns: f32,
}

/// Minimum number of slices of a period for an estimate of the variation between them, and for
/// [`without_one`] to leave one out.
const SLICES_KNOWN_MIN: usize = 5;
/// Fractions of all observations that count as the slowest.
const SLOWEST: [f64; 2] = [0.1, 0.02];
/// Minimum number of slow observations that allows a test.
const SLOW_MIN: usize = 4;
/// Shares of the permitted error rate if all statistics can be computed: one half for ranks, a
/// quarter for each fraction of the slowest.
const SHARES: [f64; 3] = [0.5, 0.25, 0.25];
/// Minimum number of standard deviations that a change must keep without its most extreme slice.
const WITHOUT_ONE_MIN: f64 = 2.0;

/// Rank statistics of the observations of one place, or of the frequency of a property.
#[derive(Clone, Debug)]
pub(super) struct RankEvidence {
    /// Number of observations of each period, in strata with observations of both periods.
    pub(super) rows: [usize; 2],
    /// Smallest p-value that the numbers of observations allow.
    pub(super) least_p_value: f64,
    slices: [usize; 2],
    /// Statistics of ranks, of the slowest tenth and of the slowest fiftieth, as far as they can be
    /// computed. Evidence of shares has a single statistic.
    statistics: Vec<Statistic>,
    /// For each period, the squared difference of mean ranks (or shares) between its halves, in
    /// units of their variance, and its expectation under independence. `None` if the period has
    /// too few observations, if these do not vary, or if the evidence of several groups was joined.
    halves: [Option<[f64; 2]>; 2],
}

/// A statistic and its variation.
#[derive(Clone, Copy, Debug)]
struct Statistic {
    share: f64,
    /// Sum of the later period's centred scores, and its variance under independence.
    sum: f64,
    variance: f64,
    /// Standard deviations from the mean of its permutation distribution; positive if the later
    /// period is slower, or has the property more often.
    deviations: f64,
    /// Standard deviations that remain without the slice that contributes most.
    without_one: f64,
    /// For each period, the inflation of the variance; `None` if it cannot be estimated.
    inflation: [Option<Inflation>; 2],
}

/// Ratio of the variation within one period to that of independent requests.
#[derive(Clone, Copy, Debug)]
struct Inflation {
    ratio: f64,
    /// Degrees of freedom of the estimate.
    freedom: f64,
}

/// Result of a test for a change between the periods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankTest {
    pub(super) p_value: f64,
    /// True if the later period is slower, or has the property more often, by the most significant
    /// statistic. False if no statistic has a p-value below 1.
    pub(super) is_slower: bool,
}

impl RankEvidence {
    /// Computes evidence from these observations; `None` if no stratum has observations of both
    /// periods.
    pub(super) fn of(observations: &[Observation]) -> Option<RankEvidence> {
        let mut rows = aligned(observations);
        if rows.is_empty() {
            return None;
        }
        rows.sort_by_key(|row| (row.period, row.start_ns, row.id));
        let counts = [Period::Before, Period::After]
            .map(|period| rows.iter().filter(|row| row.period == period).count());
        let slices = counts.map(slice_count);
        for (at, row) in rows.iter_mut().enumerate() {
            row.slice = slice_of(at, row.period as usize, counts, slices);
        }
        let values = ascending(&rows);
        let doubled = doubled_ranks(&values);
        let scores: Vec<f64> = doubled.iter().map(|rank| f64::from(*rank)).collect();
        let centred = centred(&rows, &scores);
        let exact = exact_rank_deviations(&rows, &doubled);
        let of_ranks = Statistic::of(&rows, &centred, slices, exact, SHARES[0]);
        let mut statistics: Vec<Statistic> = of_ranks.into_iter().collect();
        let halves = halves(&rows, &centred, counts);
        for (part, share) in SLOWEST.into_iter().zip(&SHARES[1..]) {
            let Some(slow) = slowest(&rows, &values, part) else {
                continue;
            };
            let scores: Vec<f64> = slow.iter().map(|slow| f64::from(u8::from(*slow))).collect();
            let centred = self::centred(&rows, &scores);
            let exact = exact_share_deviations(&rows, &slow);
            statistics.extend(Statistic::of(&rows, &centred, slices, exact, *share));
        }
        let shares: f64 = statistics.iter().map(|statistic| statistic.share).sum();
        for statistic in &mut statistics {
            statistic.share /= shares;
        }
        Some(RankEvidence {
            rows: counts,
            least_p_value: least_p_value(&rows),
            slices,
            statistics,
            halves,
        })
    }

    /// Returns the smallest p-value that this many observations of each period can reach: that of
    /// all observations of one period slower than all of the other. Returns 0 if they are too many
    /// to count.
    pub(super) fn least_p_value_of([before, after]: [usize; 2]) -> f64 {
        let stratum = ShareStratum {
            with: after as u64,
            of: (before + after) as u64,
            later: after as u64,
        };
        shares_two_sided(&[stratum], after as u64).unwrap_or(0.0)
    }

    /// Computes evidence that more or fewer requests have a property. `has` lists the sampled
    /// requests in order of period and time, each with true if it has the property. For each
    /// period, `with` is the number of requests that have it, and `of` the number of all requests.
    /// Returns `None` if a period has no requests, or if all or none of the requests of both
    /// periods have the property. Also returns `None` if that holds for the sampled requests.
    pub(super) fn of_shares(
        has: &[(Period, bool)],
        with: [u64; 2],
        of: [u64; 2],
    ) -> Option<RankEvidence> {
        let share = |period: usize| Share {
            part: with[period],
            of: of[period],
        };
        if !is_testable(share(0), share(1)) {
            return None;
        }
        let earlier = has.partition_point(|(period, _)| *period == Period::Before);
        let counts = [earlier, has.len() - earlier];
        let slices = counts.map(slice_count);
        let row = |(at, (period, has)): (usize, &(Period, bool))| AlignedObservation {
            stratum: 0,
            period: *period,
            start_ns: at as i64,
            id: TraceId(0),
            slice: slice_of(at, *period as usize, counts, slices),
            value: f64::from(u8::from(*has)),
        };
        let rows: Vec<AlignedObservation> = has.iter().enumerate().map(row).collect();
        let scores: Vec<f64> = rows.iter().map(|row| row.value).collect();
        let centred = centred(&rows, &scores);
        let exact = normal_deviation(fisher_two_sided(share(0), share(1)));
        let mut statistic = Statistic::of(&rows, &centred, slices, Some(exact), 1.0)?;
        let own = [&has[..earlier], &has[earlier..]];
        for (inflation, own) in statistic.inflation.iter_mut().zip(own) {
            *inflation = inflation.or_else(|| of_runs(own));
        }
        Some(RankEvidence {
            rows: counts,
            least_p_value: least_p_value_of_shares(&[ShareStratum {
                with: with[0] + with[1],
                of: of[0] + of[1],
                later: of[1],
            }]),
            slices,
            statistics: vec![statistic],
            halves: own.map(halves_of_share),
        })
    }

    /// Returns the mean number of observations per slice.
    fn rows_per_slice(&self) -> f64 {
        (self.rows[0] + self.rows[1]) as f64 / (self.slices[0] + self.slices[1]) as f64
    }

    /// Tests for a change, given the variability of all places. The most significant statistic
    /// decides, with its p-value corrected for its share of the error rate. A statistic has a
    /// p-value of 1 if, without its most extreme slice, it falls below [`WITHOUT_ONE_MIN`].
    pub(super) fn verdict(&self, variability: &Variability) -> RankTest {
        let of = |statistic: &Statistic| {
            let (inflation, freedom) = variability.inflation(self, statistic);
            let deviations = statistic.deviations / inflation.sqrt();
            let p_value = freedom.map_or_else(
                || normal_two_sided(deviations),
                |freedom| student_two_sided(deviations, freedom),
            );
            let is_spread = statistic.without_one / inflation.sqrt() >= WITHOUT_ONE_MIN;
            RankTest {
                p_value: match is_spread {
                    true => p_value / statistic.share,
                    false => 1.0,
                },
                is_slower: statistic.deviations > 0.0,
            }
        };
        let tests = self.statistics.iter().map(of);
        let below_1 = tests.filter(|test| test.p_value < 1.0);
        let best = below_1.min_by(|a, b| a.p_value.total_cmp(&b.p_value));
        best.unwrap_or(RankTest {
            p_value: 1.0,
            is_slower: false,
        })
    }
}

impl Statistic {
    /// Computes a statistic from the sum of the later period's centred scores. `exact`, if known,
    /// replaces the magnitude of its deviations. Returns `None` if the sum's variance is 0.
    fn of(
        rows: &[AlignedObservation],
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
            sum,
            variance,
            deviations,
            without_one: without_one(rows, scores, slices, sum) / variance.sqrt(),
            inflation,
        })
    }
}

/// Returns the magnitude of the sum without the slice that contributes most to it; negative if the
/// sign of the sum then changes. Ignores periods with fewer than [`SLICES_KNOWN_MIN`] slices.
fn without_one(rows: &[AlignedObservation], scores: &[f64], slices: [usize; 2], sum: f64) -> f64 {
    // The centred scores of both periods add up to zero, so those of the earlier period contribute
    // with the opposite sign.
    let mut most = 0.0f64;
    for period in [Period::Before, Period::After] {
        let count = slices[period as usize];
        if count < SLICES_KNOWN_MIN {
            continue;
        }
        let sign = sum.signum() * if period == Period::After { 1.0 } else { -1.0 };
        let mut sums = vec![0.0; count];
        for (row, score) in of_period(rows, scores, period) {
            sums[row.slice] += score * sign;
        }
        most = sums.into_iter().fold(most, f64::max);
    }
    sum.abs() - most
}

/// Returns the smallest p-value that a property can reach: that of as many or as few later requests
/// with it as possible. Returns 0 if they are too many to count.
fn least_p_value_of_shares(strata: &[ShareStratum]) -> f64 {
    let most = strata.iter().map(|of| of.with.min(of.later)).sum();
    let others = |of: &ShareStratum| of.of - of.later;
    let fewest = strata.iter().map(|of| of.with.saturating_sub(others(of)));
    let fewest = fewest.sum();
    let of = |seen: u64| shares_two_sided(strata, seen).unwrap_or(0.0);
    of(most).min(of(fewest))
}

/// Returns the variance inflation of the share of requests with a property, from the neighbouring
/// requests of one period that differ in it. If neighbours have correlation r, the share in a
/// two-state Markov chain varies (1 + r) / (1 - r) times as much as among independent requests.
/// Counts the last and the first request as neighbours. Returns `None` if all or none have the
/// property.
fn of_runs(has: &[(Period, bool)]) -> Option<Inflation> {
    let (n, with) = (has.len(), has.iter().filter(|(_, has)| *has).count());
    if with == 0 || with == n {
        return None;
    }
    let next = has.iter().cycle().skip(1);
    let changes = has.iter().zip(next).filter(|(a, b)| a.1 != b.1).count();
    let of_independent = 2.0 * (with * (n - with)) as f64 / (n - 1) as f64;
    let unlike = (changes as f64 / of_independent).min(1.0);
    Some(Inflation {
        ratio: (2.0 - unlike) / unlike,
        freedom: (n - 1) as f64,
    })
}

/// Returns the variance inflation: the variance of a period's scores between its slices, divided by
/// that of independent scores. Takes correlated neighbouring slices into account (Newey and West,
/// 1987, with one lag). Returns `None` if there are too few slices, or if the scores do not vary.
fn inflation(
    rows: &[AlignedObservation],
    scores: &[f64],
    period: Period,
    count: usize,
) -> Option<Inflation> {
    if count < SLICES_KNOWN_MIN {
        return None;
    }
    let own = || of_period(rows, scores, period);
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
    Some(Inflation {
        ratio: slices / (slices - 1.0) * (between + alike.max(0.0)) / squares,
        freedom: slices - 1.0,
    })
}

/// Iterates over the rows of a period, with their scores.
fn of_period<'a>(
    rows: &'a [AlignedObservation],
    scores: &'a [f64],
    period: Period,
) -> impl Iterator<Item = (&'a AlignedObservation, &'a f64)> {
    let scored = rows.iter().zip(scores);
    scored.filter(move |(row, _)| row.period == period)
}

/// Returns, for each period, the squared difference of mean ranks between its halves, and its
/// expectation under independence. Both are in units of the variance of ranks. `None` if a period
/// has too few observations, or if their ranks do not vary.
fn halves(
    rows: &[AlignedObservation],
    scores: &[f64],
    counts: [usize; 2],
) -> [Option<[f64; 2]>; 2] {
    [Period::Before, Period::After].map(|period| {
        let count = counts[period as usize];
        if count < 2 * REQUESTS_PER_SLICE {
            return None;
        }
        let own = of_period(rows, scores, period).map(|(_, score)| *score);
        let own: Vec<f64> = own.collect();
        let mean = own.iter().sum::<f64>() / count as f64;
        let variance = own.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / count as f64;
        let (first, second) = own.split_at(count / 2);
        let of = |half: &[f64]| half.iter().sum::<f64>() / half.len() as f64;
        let expected = 1.0 / first.len() as f64 + 1.0 / second.len() as f64;
        (variance > 0.0).then(|| [(of(second) - of(first)).powi(2) / variance, expected])
    })
}

/// Minimum number of requests with the property, and of those without it, for which the difference
/// of two shares counts as normal.
const NORMAL_MIN: usize = 30;

/// Returns the squared difference of the shares of requests with a property between the halves of a
/// period, as [`halves`] does. If few requests have the property, or few lack it, the difference
/// takes few values, and its median does not show the variance. The ratio of the result to its
/// expectation is then the square of the normal value with that difference's mid-p-value.
fn halves_of_share(has: &[(Period, bool)]) -> Option<[f64; 2]> {
    let (n, half) = (has.len(), has.len() / 2);
    let with = has.iter().filter(|(_, has)| *has).count();
    if n < 2 * REQUESTS_PER_SLICE || with == 0 || with == n {
        return None;
    }
    let later = n - half;
    let seen = has[half..].iter().filter(|(_, has)| *has).count();
    let expected = 1.0 / half as f64 + 1.0 / later as f64;
    if with.min(n - with) >= NORMAL_MIN {
        let share = with as f64 / n as f64;
        let difference = seen as f64 / later as f64 - (with - seen) as f64 / half as f64;
        return Some([difference * difference / (share * (1.0 - share)), expected]);
    }
    let stratum = ShareStratum {
        with: with as u64,
        of: n as u64,
        later: later as u64,
    };
    let deviations = normal_deviation(share_mid_two_sided(stratum, seen as u64));
    Some([deviations * deviations * expected, expected])
}

#[cfg(test)]
mod tests;
