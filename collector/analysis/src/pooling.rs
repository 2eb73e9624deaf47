//! Predicts the resource use of a larger process from the use of current ones (Ardelean et al.,
//! NSDI 2018, §3.2.1 and §3.2.2). The resource is CPU or memory, and the larger process serves the
//! users of several current ones. Its use is predicted as a sum of normal distributions.
//!
//! The prediction is valid under two conditions, and both are checked. First, the bulk of each
//! process's use must be close to normal: the median and the 95th percentile of the sum must be
//! within 2 % of those of a normal sum. Second, the processes must be independent. They are not if
//! one works while the other waits for it, or if both follow the same load. A heavier tail than
//! normal is no reason to refuse the prediction. The sum of the measured distributions, instead of
//! normal ones, predicts the tail's effect on the 99th percentile.
//!
//! The result also includes observed sums: the use of several processes at the same time, added up.

mod dependence;
mod grid;
mod sum;

#[cfg(test)]
mod tests;

use crate::statistics::{percentile, student_two_sided};
pub use dependence::Dependence;
use dependence::strongest;
use grid::Grid;
pub use grid::STEPS_SHIFTED_MAX;
use sum::SumOf;

/// Resource use of one process over time.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUse {
    /// Name of the process, for display.
    pub process: String,
    /// Samples: time in nanoseconds since the Unix epoch, and use in any unit. Their times should
    /// be about equally spaced except for gaps; their order in the list is arbitrary.
    pub samples: Vec<(i64, f64)>,
}

/// A percentile of one process's use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsePercentile {
    /// The percentile as a fraction: 0.5 is the median.
    pub part: f64,
    /// Percentile of the samples.
    pub found: f64,
    /// Percentile of the normal distribution with the mean and variance of the samples.
    pub normal: f64,
}

/// A percentile of the larger process's use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PooledPercentile {
    /// The percentile as a fraction: 0.5 is the median.
    pub part: f64,
    /// Percentile of the sum of normal distributions.
    pub normal: f64,
    /// Percentile of the sum of the measured distributions, if they are independent of each other.
    pub independent: f64,
    /// Percentile of the observed sums of simultaneous use; `None` if they are too few for ten to
    /// exceed it.
    pub together: Option<f64>,
}

impl PooledPercentile {
    /// Returns the excess of the independent value over the normal value, as a fraction of the
    /// normal value.
    pub fn foretold_error(&self) -> f64 {
        self.independent / self.normal - 1.0
    }
}

/// Reason why a sum of normal distributions may not describe the larger process.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolRefusal {
    /// The bulk of the processes' use is not close to normal.
    NotNormal {
        /// Percentile of the sum with the largest error, as a fraction.
        part: f64,
        /// Excess of the sum of measured distributions over the sum of normal ones, as a fraction
        /// of the latter.
        error: f64,
    },
    /// Processes depend on each other.
    Dependent(Dependence),
    /// The samples do not suffice to show whether processes depend on each other, or no two
    /// processes can be compared.
    Untold {
        /// Number of evaluated times at which both processes of a pair were measured, for the pair
        /// with the fewest.
        steps: usize,
        /// Estimated number of such times needed; `None` if `steps` is 0. The estimate assumes that
        /// the use keeps varying as it did.
        needed: Option<usize>,
    },
    /// There are too few samples to know the use of a group's processes.
    FewSamples {
        /// Number of samples of the group with the fewest samples.
        samples: usize,
        /// Number of samples needed.
        needed: usize,
    },
}

/// Predicted use of the larger process.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledDemand {
    /// Total number of samples of all processes.
    pub samples: usize,
    /// Median interval between consecutive samples of a process, in ns; 1 if there is none.
    pub step_ns: i64,
    /// Number of samples that are missing between others, over all processes.
    pub gaps: u64,
    /// Percentiles of the use of one process of the first group, from 5 to 99.9 %.
    pub one: Vec<UsePercentile>,
    /// Percentiles of the use of the larger process: 50, 95 and 99 %.
    pub percentiles: Vec<PooledPercentile>,
    /// Number of observed sums of simultaneous use.
    pub together: usize,
    /// Number of pairs of processes examined.
    pub pairs: usize,
    /// The pair with the most significant dependence; `None` if no pair has a significant one of at
    /// least [`DEPENDENCE_MIN`].
    pub strongest: Option<Dependence>,
    /// Reasons to distrust the normal percentiles; empty if there are none.
    pub refused: Vec<PoolRefusal>,
}

/// Maximum error of the normal median and 95th percentile, as a fraction; the value is the paper's.
pub const POOL_TOLERANCE: f64 = 0.02;
/// Minimum number of samples of a group; fewer do not show what a process uses.
pub const POOL_SAMPLES_MIN: usize = 100;
/// Minimum magnitude of the rank correlation of a relevant dependence. A weaker linear correlation
/// changes the standard deviation of a sum of two processes by about 5 % at most.
pub const DEPENDENCE_MIN: f64 = 0.1;
/// Maximum number of examined pools, each with one process of every group. It also bounds the
/// number of examined pairs.
const POOLS_MAX: usize = 256;

const PARTS: [f64; 3] = [0.5, 0.95, 0.99];
const PARTS_OF_ONE: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999];

/// Predicts the use of a process that replaces one process of each group. A group that is listed
/// twice counts for two processes. Groups contain indices into `uses`; an index out of range
/// panics.
///
/// Returns `None` if there are no groups, or a group has no samples.
pub fn pool(uses: &[ProcessUse], groups: &[Vec<usize>]) -> Option<PooledDemand> {
    let values: Vec<Vec<f64>> = groups.iter().map(|group| sorted(uses, group)).collect();
    let fewest = values.iter().map(Vec::len).min().filter(|n| *n > 0)?;
    let moments: Vec<Moments> = values.iter().map(|values| Moments::of(values)).collect();
    let larger = Moments {
        mean: moments.iter().map(|of| of.mean).sum(),
        variance: moments.iter().map(|of| of.variance).sum(),
    };
    let independent = SumOf::independent(&values);

    let pools = pools(groups);
    let grid = Grid::of(uses, &pools);
    let mut together = grid.sums(&pools);
    together.sort_unstable_by(f64::total_cmp);
    let pairs = pairs(&pools);
    let found = strongest(&grid, uses, &pairs);

    let percentiles = PARTS.map(|part| PooledPercentile {
        part,
        normal: larger.percentile(part),
        independent: independent.percentile(part),
        // At least ten of the observed sums must exceed the percentile.
        together: (together.len() as f64 * (1.0 - part) >= 10.0)
            .then(|| percentile_of(&together, part)),
    });
    let mut refused = Vec::new();
    if fewest < POOL_SAMPLES_MIN {
        refused.push(PoolRefusal::FewSamples {
            samples: fewest,
            needed: POOL_SAMPLES_MIN,
        });
    }
    // The 99th percentile does not count here, because the measured distributions predict it.
    let bulk = percentiles.iter().filter(|of| of.part < 0.99);
    let not_normal = bulk
        .map(|of| (of.part, of.foretold_error()))
        .filter(|(_, error)| error.is_nan() || error.abs() > POOL_TOLERANCE)
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    refused.extend(not_normal.map(|(part, error)| PoolRefusal::NotNormal { part, error }));
    refused.extend(found.refusal());
    Some(PooledDemand {
        samples: uses.iter().map(|one| one.samples.len()).sum(),
        step_ns: grid.step_ns(),
        gaps: grid.gaps(),
        one: PARTS_OF_ONE
            .map(|part| UsePercentile {
                part,
                found: percentile_of(&values[0], part),
                normal: moments[0].percentile(part),
            })
            .to_vec(),
        percentiles: percentiles.to_vec(),
        together: together.len(),
        pairs: pairs.len(),
        strongest: found.strongest,
        refused,
    })
}

/// Returns all samples of the processes of a group, ascending.
fn sorted(uses: &[ProcessUse], group: &[usize]) -> Vec<f64> {
    let of = |process: &usize| uses[*process].samples.iter().map(|(_, value)| *value);
    let mut values: Vec<f64> = group.iter().flat_map(of).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Returns at most `POOLS_MAX` pools. A pool has one process of every group, and no process twice.
/// Pools of processes with the same place in their groups (modulo the groups' lengths) come first.
fn pools(groups: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
    let mut known = std::collections::HashSet::new();
    let mut found = Vec::new();
    for apart in 0..longest {
        for first in 0..longest {
            let one = groups
                .iter()
                .enumerate()
                .map(|(place, group)| group[(first + place * apart) % group.len()]);
            let one: Vec<usize> = one.collect();
            let mut key = one.clone();
            key.sort_unstable();
            let is_apart = key.windows(2).all(|two| two[0] != two[1]);
            if is_apart && known.insert(key) {
                found.push(one);
                if found.len() == POOLS_MAX {
                    return found;
                }
            }
        }
    }
    found
}

/// Returns the pairs of processes that share a pool, at most [`POOLS_MAX`] of them.
fn pairs(pools: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let of = |one: &Vec<usize>| {
        let one = one.clone();
        (0..one.len()).flat_map(move |i| {
            let rest = one[i + 1..].to_vec();
            let first = one[i];
            rest.into_iter()
                .map(move |second| (first.min(second), first.max(second)))
        })
    };
    let mut pairs: Vec<(usize, usize)> = pools.iter().flat_map(of).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.truncate(POOLS_MAX);
    pairs
}

/// Mean and variance of a process's use.
#[derive(Clone, Copy, Debug)]
struct Moments {
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Moments {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Moments {
            mean,
            variance: squares / (count - 1.0).max(1.0),
        }
    }

    fn percentile(self, part: f64) -> f64 {
        self.mean + normal_quantile(part) * self.variance.sqrt()
    }
}

/// Returns a percentile of ascending values; 0 if there are none.
fn percentile_of(sorted: &[f64], part: f64) -> f64 {
    percentile(sorted, part).unwrap_or_default()
}

/// Returns the quantile `part` of the standard normal distribution, by bisection.
fn normal_quantile(part: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..80 {
        let middle: f64 = (low + high) / 2.0;
        match below(middle) < part {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// Degrees of freedom at which Student's t is normal to six digits.
const AS_NORMAL: f64 = 1e7;

fn below(z: f64) -> f64 {
    let beyond = student_two_sided(z.abs(), AS_NORMAL) / 2.0;
    if z > 0.0 { 1.0 - beyond } else { beyond }
}
