//! Uncertainty of a predicted change. It includes chance, because other requests may come, and the
//! facts that the recorded requests do not show.

use crate::distribution::Distribution;
use crate::record::TraceId;
use crate::sampling::Weight;
use std::collections::BTreeMap;

/// Maximum number of requests in the estimate of chance. Of more requests, those with the lowest
/// hashes of trace ids are kept.
const REQUESTS_MAX: usize = 1 << 14;
/// Maximum number of blocks that are resampled. A block has requests that are consecutive in time
/// (the first follow the last), because requests of one moment resemble each other.
const BLOCKS: usize = 128;
const REPLICATES: usize = 300;
/// Fraction of replicates beyond each end of a range.
const TAIL: f64 = 0.025;
/// Quantile of the normal distribution for the tail [`TAIL`].
const NORMAL: f64 = 1.96;
/// Relative rounding error of stored latencies: three significant digits.
const ROUNDED: f64 = 1e-3;

/// Statistics of latency for which ranges are computed: the mean (`None`), and quantiles.
pub const STATISTICS: [Option<f64>; 4] = [None, Some(0.50), Some(0.95), Some(0.99)];

/// Expected ranges (95 %) of one statistic of the latency and of its change, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedChange {
    /// Minimum and maximum difference that the change makes; negative if the latency falls.
    pub change_ns: (f64, f64),
    /// Minimum and maximum value of the statistic after the change, for as many new requests as the
    /// [`ReplaySample`] keeps in full.
    pub after_ns: (f64, f64),
}

/// Start and weight of one request, and its recorded and replayed latency.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RequestLatencies {
    start_ns: i64,
    weight: Weight,
    before_ns: u64,
    after_ns: u64,
}

/// Replayed requests, with a bounded sample kept in full. Merging is commutative and associative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplaySample {
    kept: BTreeMap<(u64, TraceId), RequestLatencies>,
    /// Least latency that the model allows for each request; `most` has the greatest.
    least: Distribution,
    most: Distribution,
    /// True if the model allows at least one request to become faster. The next field covers slower
    /// requests.
    may_be_faster: bool,
    may_be_slower: bool,
}

impl ReplaySample {
    /// Adds a request, given by its id, start, weight, recorded latency and replayed latency.
    pub fn observe(
        &mut self,
        (id, start_ns, weight): (TraceId, i64, Weight),
        before_ns: u64,
        replayed: super::ReplayedLatency,
    ) {
        self.least.record_weighted(replayed.least_ns, weight);
        self.most.record_weighted(replayed.most_ns, weight);
        self.may_be_faster |= replayed.least_ns < before_ns;
        self.may_be_slower |= replayed.most_ns > before_ns;
        let observed = RequestLatencies {
            start_ns,
            weight,
            before_ns,
            after_ns: replayed.latency_ns,
        };
        let key = (mix(id.0 as u64 ^ (id.0 >> 64) as u64), id);
        self.kept.insert(key, observed);
        self.trim();
    }

    /// Adds the requests of another sample.
    pub fn merge(&mut self, other: ReplaySample) {
        self.least.merge(&other.least);
        self.most.merge(&other.most);
        self.may_be_faster |= other.may_be_faster;
        self.may_be_slower |= other.may_be_slower;
        self.kept.extend(other.kept);
        self.trim();
    }

    fn trim(&mut self) {
        while self.kept.len() > REQUESTS_MAX {
            self.kept.pop_last();
        }
    }

    /// Returns the expected range of each of [`STATISTICS`]. `before` and `after` have the
    /// latencies of all requests.
    pub fn expected(&self, before: &Distribution, after: &Distribution) -> [ExpectedChange; 4] {
        let of = |distribution: &Distribution, statistic: Option<f64>| match statistic {
            None => distribution.mean_ns(),
            Some(quantile) => distribution.quantile_ns(quantile) as f64,
        };
        let chance = self.chance();
        let mut at = 0..;
        STATISTICS.map(|statistic| {
            let chance = &chance[at.next().unwrap_or(0)];
            let [before_ns, after_ns] = [before, after].map(|all| of(all, statistic));
            // The rounding of latencies must not exclude the prediction from its range.
            let rounded_ns = statistic.map_or(0.0, |_| ROUNDED * (before_ns + after_ns));
            let least_ns = of(&self.least, statistic).min(after_ns);
            let most_ns = of(&self.most, statistic).max(after_ns);
            let (low_ns, high_ns) = chance.change_ns;
            let change_ns = (
                least_ns - before_ns + low_ns.min(0.0) - rounded_ns,
                most_ns - before_ns + high_ns.max(0.0) + rounded_ns,
            );
            let again_ns = NORMAL * std::f64::consts::SQRT_2 * chance.after_error_ns;
            ExpectedChange {
                // If no request can become faster (or slower), new requests cannot either.
                change_ns: (
                    if self.may_be_faster {
                        change_ns.0
                    } else {
                        change_ns.0.max(0.0)
                    },
                    if self.may_be_slower {
                        change_ns.1
                    } else {
                        change_ns.1.min(0.0)
                    },
                ),
                after_ns: (
                    (least_ns - again_ns - rounded_ns).max(0.0),
                    most_ns + again_ns + rounded_ns,
                ),
            }
        })
    }

    /// Estimates the chance errors by a block bootstrap, which resamples blocks of requests that
    /// are neighbours in time. Returns zeros for fewer than two requests.
    fn chance(&self) -> [Chance; 4] {
        let mut requests: Vec<RequestLatencies> = self.kept.values().copied().collect();
        requests.sort_by_key(|request| request.start_ns);
        let count = requests.len();
        if count < 2 {
            return [Chance::default(); 4];
        }
        let block = count.div_ceil(BLOCKS);
        let order = |of: fn(&RequestLatencies) -> u64| {
            let mut order: Vec<(u64, u32)> = requests.iter().map(of).zip(0..).collect();
            order.sort_unstable();
            order
        };
        let (before, after) = (order(|r| r.before_ns), order(|r| r.after_ns));
        let weights: Vec<f64> = requests.iter().map(|of| of.weight.value()).collect();
        let (was, is) = (statistics(&before, &weights), statistics(&after, &weights));
        let mut replicates: [Vec<(f64, f64)>; 4] = Default::default();
        let mut draw = 0u64;
        for _ in 0..REPLICATES {
            let mut again = vec![0.0; count];
            for _ in 0..count.div_ceil(block) {
                draw += 1;
                let from = (mix(draw) % count as u64) as usize;
                let block = (from..from + block).map(|at| at % count);
                block.for_each(|at| again[at] += weights[at]);
            }
            let (was_again, is_again) = (statistics(&before, &again), statistics(&after, &again));
            for (at, replicates) in replicates.iter_mut().enumerate() {
                let change_ns = (is_again[at] - was_again[at]) - (is[at] - was[at]);
                replicates.push((change_ns, is_again[at] - is[at]));
            }
        }
        replicates.map(Chance::of)
    }
}

/// Chance errors of one statistic, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Chance {
    /// Lower and upper end of the error of the statistic's change.
    change_ns: (f64, f64),
    /// Standard error of the statistic's value after the change.
    after_error_ns: f64,
}

impl Chance {
    fn of(replicates: Vec<(f64, f64)>) -> Chance {
        let count = replicates.len() as f64;
        let squares: f64 = replicates.iter().map(|(_, after)| after * after).sum();
        let mut changes: Vec<f64> = replicates.into_iter().map(|(change, _)| change).collect();
        changes.sort_unstable_by(f64::total_cmp);
        let tail = (count * TAIL) as usize;
        Chance {
            change_ns: (changes[tail], changes[changes.len() - 1 - tail]),
            after_error_ns: (squares / count).sqrt(),
        }
    }
}

/// Returns the [`STATISTICS`] of values in ascending order. Each value comes with an index, and
/// counts `weights[index]` times.
fn statistics(ordered: &[(u64, u32)], weights: &[f64]) -> [f64; 4] {
    let total: f64 = weights.iter().sum();
    let mut found = [0.0; 4];
    let (mut sum, mut upto, mut next) = (0.0, 0.0, 1);
    for (ns, index) in ordered {
        let weight = weights[*index as usize];
        sum += *ns as f64 * weight;
        upto += weight;
        while next < 4 && STATISTICS[next].is_some_and(|q| upto >= q * total) {
            found[next] = *ns as f64;
            next += 1;
        }
    }
    found[0] = sum / total.max(1.0);
    found
}

/// Returns output `number` of SplitMix64 with seed 0. Consecutive numbers yield distant outputs.
pub(super) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
