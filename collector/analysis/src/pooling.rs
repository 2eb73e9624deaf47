//! Predicts the resource use of a larger process from the use of current ones (Ardelean et al.,
//! NSDI 2018, §3.2.1 and §3.2.2): CPU or memory of a process that serves the users of several, as a
//! sum of normal distributions.
//!
//! The prediction is valid under two conditions, and both are checked. First, the bulk of one
//! process's use must be close to normal: then the sum's median and 95th percentile are, too,
//! within 2 %. Second, the processes must be independent: if one works while the other waits for
//! it, or both follow the same load, their sum is not that of independent ones. A heavier tail than
//! normal is no reason to refuse: its effect on the 99th percentile is predicted, by the sum of the
//! measured distributions instead of normal ones.
//!
//! The result also includes observations: sums of the use of several processes at the same time.

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
    /// Samples as nanoseconds since the Unix epoch, with the use in any unit. Intervals are equal;
    /// the order is arbitrary.
    pub samples: Vec<(i64, f64)>,
}

/// A percentile of one process's use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsePercentile {
    /// The percentile as a fraction: 0.5 is the median.
    pub part: f64,
    /// Measured value.
    pub found: f64,
    /// Value of a normal distribution of the same mean and variance.
    pub normal: f64,
}

/// A percentile of the larger process's use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PooledPercentile {
    /// The percentile as a fraction: 0.5 is the median.
    pub part: f64,
    /// Value of the sum of normal distributions.
    pub normal: f64,
    /// Value of the sum of the measured distributions, independent of each other.
    pub independent: f64,
    /// Value of the sums of simultaneous use; `None` if there are too few.
    pub together: Option<f64>,
}

impl PooledPercentile {
    /// Returns the predicted excess over the normal value, as a fraction of it.
    pub fn foretold_error(&self) -> f64 {
        self.independent / self.normal - 1.0
    }
}

/// Reason why a sum of normal distributions does not describe the larger process.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolRefusal {
    /// The bulk of one process's use is not normal.
    NotNormal {
        /// The percentile of the sum that shows it, as a fraction.
        part: f64,
        /// Excess of the measured value over the normal one, as a fraction of the latter.
        error: f64,
    },
    /// Processes depend on each other.
    Dependent(Dependence),
    /// The data do not show if processes depend on each other.
    Untold {
        /// Number of times at which two of them were measured.
        steps: usize,
        /// Number of times needed if their use keeps varying as it did; `None` without a basis for
        /// an estimate.
        needed: Option<usize>,
    },
    /// There are too few samples to know the use of one process.
    FewSamples {
        /// Samples of all processes of the group with fewest.
        samples: usize,
        /// Number of samples needed.
        needed: usize,
    },
}

/// Predicted use of the larger process.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledDemand {
    /// Number of samples of all processes.
    pub samples: usize,
    /// Interval between two samples of a process, in ns.
    pub step_ns: i64,
    /// Number of samples missing between others.
    pub gaps: u64,
    /// Percentiles of one process of the first group: its bulk and its tail.
    pub one: Vec<UsePercentile>,
    /// Percentiles of the larger process: 50, 95 and 99 %.
    pub percentiles: Vec<PooledPercentile>,
    /// Number of sums of simultaneous use.
    pub together: usize,
    /// Number of pairs of processes examined.
    pub pairs: usize,
    /// The pair with the strongest dependence, if there is any.
    pub strongest: Option<Dependence>,
    /// Reasons to distrust the normal percentiles; empty if there are none.
    pub refused: Vec<PoolRefusal>,
}

/// Maximum error of the normal percentiles, as in the paper.
pub const POOL_TOLERANCE: f64 = 0.02;
/// Minimum number of samples; fewer do not show what a process uses.
pub const POOL_SAMPLES_MIN: usize = 100;
/// Minimum relevant dependence. A weaker one changes the deviation of a sum of two by less than 5
/// %.
pub const DEPENDENCE_MIN: f64 = 0.1;
/// Maximum number of examined pools of processes that were measured at the same time.
const POOLS_MAX: usize = 256;

const PARTS: [f64; 3] = [0.5, 0.95, 0.99];
const PARTS_OF_ONE: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999];

/// Predicts the use of a process that replaces one process of each group. List a group twice for a
/// process that serves twice its users. Groups contain indices into `uses`.
///
/// Returns `None` if a group has no samples.
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
        // At least ten of the sums must exceed the percentile.
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
    // The tail does not count here, as it is predicted separately.
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

/// Returns sets of different processes, one from each group: neighbours first, then more distant
/// ones.
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

/// Returns every pair of processes that share a pool.
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

/// Mean and variance.
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

/// Returns a percentile of ascending values, at least one.
fn percentile_of(sorted: &[f64], part: f64) -> f64 {
    percentile(sorted, part).unwrap_or_default()
}

/// Returns the value that a standard normal one stays below with this probability, by bisection.
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

/// Returns the probability that a standard normal value is below `z`.
fn below(z: f64) -> f64 {
    let beyond = student_two_sided(z.abs(), AS_NORMAL) / 2.0;
    if z > 0.0 { 1.0 - beyond } else { beyond }
}
