//! What a larger process would use, from what processes use now (Modeling the performance of a large system, 004 §3.2.1 and
//! §3.2.2): CPU or memory of one that serves the users of several, as a sum of normal distributions.
//!
//! That is allowed if two things hold, and both are looked at. The bulk of what one process uses is near enough to normal: then
//! the sum's median and 95th percentile are, too, within 2 %. And the processes do not depend on each other: where one works
//! while the other waits for it, or both follow the same load, their sum is not that of independent ones. A tail that is heavier
//! than normal is no reason to refuse: by how much it makes the 99th percentile larger is foretold, by the sum of what was found
//! instead of what is normal.
//!
//! Beside it stands what was observed: sums of what several processes used at the same time.

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

/// What one process used, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUse {
    /// Its name, for people.
    pub process: String,
    /// When, ns since the Unix epoch, and how much, in any unit. Of equal intervals, in any order.
    pub samples: Vec<(i64, f64)>,
}

/// A percentile of what one process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsePercentile {
    /// 0.5 is the median.
    pub part: f64,
    /// As was found.
    pub found: f64,
    /// Of a normal distribution of the same mean and variance.
    pub normal: f64,
}

/// A percentile of what the larger process would use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PooledPercentile {
    /// 0.5 is the median.
    pub part: f64,
    /// As a sum of normal distributions.
    pub normal: f64,
    /// As a sum of the distributions that were found, independent of each other.
    pub independent: f64,
    /// Of sums of what was used at the same time; none, if there are too few.
    pub together: Option<f64>,
}

impl PooledPercentile {
    /// By how much the normal one will be exceeded, as part of it.
    pub fn foretold_error(&self) -> f64 {
        self.independent / self.normal - 1.0
    }
}

/// Why a sum of normal distributions says nothing of the larger process.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolRefusal {
    /// What one process uses is not normal in its bulk.
    NotNormal {
        /// The percentile of the sum that shows it.
        part: f64,
        /// By how much the found one exceeds the normal one, as part of it.
        error: f64,
    },
    /// Processes depend on each other.
    Dependent(Dependence),
    /// Whether they do cannot be told.
    Untold {
        /// Times at which two of them were measured.
        steps: usize,
        /// As many as are needed, where what they use goes on varying as it did; none, where there is nothing to go by.
        needed: Option<usize>,
    },
    /// There are too few samples to know what one process uses.
    FewSamples {
        /// Of all processes of the group with fewest.
        samples: usize,
        /// As many as are needed.
        needed: usize,
    },
}

/// What the larger process would use.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    /// Samples of all processes.
    pub samples: usize,
    /// Time between two samples of a process.
    pub step_ns: i64,
    /// Samples that are missing between others.
    pub gaps: u64,
    /// What one process of the first group uses: its bulk and its tail.
    pub one: Vec<UsePercentile>,
    /// Of the larger process: 50, 95 and 99 %.
    pub percentiles: Vec<PooledPercentile>,
    /// Sums of what was used at the same time.
    pub together: usize,
    /// Pairs of processes that were looked at.
    pub pairs: usize,
    /// The pair that depends on each other most, if there is any.
    pub strongest: Option<Dependence>,
    /// Why the normal percentiles are not to be believed; empty, if they are.
    pub refused: Vec<PoolRefusal>,
}

/// The normal percentiles may be off by so much, as the paper's were.
pub const POOL_TOLERANCE: f64 = 0.02;
/// Fewer samples do not show what a process uses.
pub const POOL_SAMPLES_MIN: usize = 100;
/// A weaker dependence changes the deviation of a sum of two by less than 5 %.
pub const DEPENDENCE_MIN: f64 = 0.1;
/// Pools of processes that were measured at the same time, of which more are not looked at.
const POOLS_MAX: usize = 256;

const PARTS: [f64; 3] = [0.5, 0.95, 0.99];
const PARTS_OF_ONE: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999];

/// What a process would use that takes the place of one process of each group: of the same group twice, if it is to serve
/// twice the users. Groups are places in `uses`.
///
/// None, if a group has no samples.
pub fn pool(uses: &[ProcessUse], groups: &[Vec<usize>]) -> Option<Pooled> {
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
        // Ten of them are to be above it.
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
    // The tail, which is foretold, is another matter.
    let bulk = percentiles.iter().filter(|of| of.part < 0.99);
    let not_normal = bulk
        .map(|of| (of.part, of.foretold_error()))
        .filter(|(_, error)| error.is_nan() || error.abs() > POOL_TOLERANCE)
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    refused.extend(not_normal.map(|(part, error)| PoolRefusal::NotNormal { part, error }));
    refused.extend(found.refusal());
    Some(Pooled {
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

/// All that the processes of a group used, ascending.
fn sorted(uses: &[ProcessUse], group: &[usize]) -> Vec<f64> {
    let of = |process: &usize| uses[*process].samples.iter().map(|(_, value)| *value);
    let mut values: Vec<f64> = group.iter().flat_map(of).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Different processes, one of each group: neighbours first, then those that are farther apart.
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

/// Every two processes that are in a pool.
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

/// Of ascending values, of which there is one.
fn percentile_of(sorted: &[f64], part: f64) -> f64 {
    percentile(sorted, part).unwrap_or_default()
}

/// What a standard normal value is below with this probability, by halving.
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

/// Student's t of so many degrees of freedom is normal to six digits.
const AS_NORMAL: f64 = 1e7;

/// The probability that a standard normal value is below this.
fn below(z: f64) -> f64 {
    let beyond = student_two_sided(z.abs(), AS_NORMAL) / 2.0;
    if z > 0.0 { 1.0 - beyond } else { beyond }
}
