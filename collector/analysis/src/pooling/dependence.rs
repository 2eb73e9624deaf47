//! Dependence between processes: the correlation of their use of a resource, with and without a
//! time shift.

use super::grid::{Grid, STEPS_SHIFTED_MAX};
use super::{AS_NORMAL, DEPENDENCE_MIN, PoolRefusal, ProcessUse};
use crate::statistics::student_two_sided;

/// Maximum lag, in steps, of the autocorrelation of a process's use.
const STEPS_ALIKE_MAX: usize = 512;
/// Maximum probability of finding a dependence if there is none, over all pairs and shifts.
const ALPHA: f64 = 0.01;
/// Correlation that the test must be able to detect. Otherwise, finding no dependence is no
/// evidence of independence.
const SEEN_AT_LEAST: f64 = 0.5;

/// Dependence between the resource use of two processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependence {
    /// Name of the first process.
    pub first: String,
    /// Name of the second process.
    pub second: String,
    /// Delay in nanoseconds after which the second process follows the first; negative if the first
    /// follows the second.
    pub shift_ns: i64,
    /// Rank correlation of their use at `shift_ns`: 1 if both rise and fall together, −1 if one
    /// rises when the other falls.
    pub correlation: f64,
    /// Rank correlation of their use at the same time, without a shift.
    pub at_once: f64,
}

/// Result of the search for dependence.
#[derive(Debug)]
pub(super) struct FoundDependence {
    pub(super) strongest: Option<Dependence>,
    untold: Option<PoolRefusal>,
}

impl FoundDependence {
    pub(super) fn refusal(&self) -> Option<PoolRefusal> {
        let dependent = self.strongest.clone().map(PoolRefusal::Dependent);
        dependent.or_else(|| self.untold.clone())
    }
}

/// Finds the pair whose correlation is least likely to be chance, if it is significant over all
/// pairs and shifts, and at least [`DEPENDENCE_MIN`] in magnitude. The result also states whether
/// the samples suffice to detect a dependence.
pub(super) fn strongest(
    grid: &Grid,
    uses: &[ProcessUse],
    pairs: &[(usize, usize)],
) -> FoundDependence {
    let ranks: Vec<Ranks> = (0..uses.len())
        .map(|process| Ranks::of(grid.values(process)))
        .collect();
    let steps = pairs.iter().map(|(a, b)| ranks[*a].steps_with(&ranks[*b]));
    let steps = steps.min().unwrap_or(0);
    let shifts = STEPS_SHIFTED_MAX.min(steps / 8) as i64;
    let looks = pairs.len() as f64 * (2 * shifts + 1) as f64;
    let certain = certain(ALPHA / looks.max(1.0));
    let mut best: Option<(f64, Dependence)> = None;
    let mut seen_from: f64 = 0.0;
    for (a, b) in pairs {
        let (one, other) = (&ranks[*a], &ranks[*b]);
        let alike = one.alike(other);
        let (at_once, _) = one.correlation(other, 0);
        seen_from = seen_from.max((certain / freedom(steps, alike).sqrt()).tanh());
        for shift in -shifts..=shifts {
            let (correlation, count) = one.correlation(other, shift);
            let away = correlation.clamp(-0.999_999, 0.999_999).atanh().abs()
                * freedom(count, alike).sqrt();
            let is_seen = away > certain && correlation.abs() >= DEPENDENCE_MIN;
            if is_seen && best.as_ref().is_none_or(|(known, _)| away > *known) {
                let found = Dependence {
                    first: uses[*a].process.clone(),
                    second: uses[*b].process.clone(),
                    shift_ns: grid.step_ns().saturating_mul(shift),
                    correlation,
                    at_once,
                };
                best = Some((away, found));
            }
        }
    }
    let is_told = !pairs.is_empty() && seen_from <= SEEN_AT_LEAST;
    let needed = || {
        let needed = (certain / SEEN_AT_LEAST.atanh()).powi(2);
        let alike = pairs.iter().map(|(a, b)| ranks[*a].alike(&ranks[*b]));
        let alike = alike.fold(1.0, f64::max);
        (needed * alike + 3.0 * alike).ceil() as usize
    };
    FoundDependence {
        strongest: best.map(|(_, found)| found),
        untold: (!is_told).then(|| PoolRefusal::Untold {
            steps,
            needed: (steps > 0).then(needed),
        }),
    }
}

/// Returns the degrees of freedom of a correlation of `count` pairs of values, where `alike`
/// neighbouring pairs count as one.
fn freedom(count: usize, alike: f64) -> f64 {
    (count as f64 / alike - 3.0).max(0.01)
}

/// Returns the two-sided quantile of the normal distribution: a value is at least this number of
/// standard deviations from the mean with probability `alpha`.
fn certain(alpha: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..80 {
        let middle: f64 = (low + high) / 2.0;
        match student_two_sided(middle, AS_NORMAL) > alpha {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Ranks of a process's use, one per step, with a mean of 0 and, unless the use is constant, a
/// variance of 1. The rank of a step without a sample is 0. Ranks limit the influence of a heavy
/// tail.
struct Ranks {
    ranks: Vec<f64>,
    is_known: Vec<bool>,
    /// Autocorrelation, by lag; the first entry is for a lag of one step.
    own: Vec<f64>,
}

impl Ranks {
    fn of(values: &[f64]) -> Ranks {
        let mut order: Vec<usize> = (0..values.len())
            .filter(|place| !values[*place].is_nan())
            .collect();
        order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut ranks = vec![0.0; values.len()];
        let mut first = 0;
        while first < order.len() {
            let is_equal = |place: &&usize| values[**place] == values[order[first]];
            let last = first + order[first..].iter().take_while(is_equal).count();
            // Equal values share the mean of their ranks.
            let rank = (first + last) as f64 / 2.0 - order.len() as f64 / 2.0;
            order[first..last]
                .iter()
                .for_each(|place| ranks[*place] = rank);
            first = last;
        }
        let squares: f64 = ranks.iter().map(|rank| rank * rank).sum();
        let deviation = (squares / order.len().max(1) as f64).sqrt();
        if deviation > 0.0 {
            ranks.iter_mut().for_each(|rank| *rank /= deviation);
        }
        let is_known = values.iter().map(|value| !value.is_nan()).collect();
        let mut found = Ranks {
            ranks,
            is_known,
            own: Vec::new(),
        };
        let chance = 2.0 / (order.len().max(1) as f64).sqrt();
        let steps = STEPS_ALIKE_MAX.min(order.len() / 4) as i64;
        // An autocorrelation that may be chance counts as noise, and so do those of larger lags.
        found.own = (1..=steps)
            .map(|shift| found.correlation(&found, shift).0)
            .take_while(|own| *own > chance)
            .collect();
        found
    }

    /// Returns the correlation with the other process `shift` steps later, and the number of pairs
    /// of values that it is based on.
    fn correlation(&self, other: &Ranks, shift: i64) -> (f64, usize) {
        let (own, later) = match shift < 0 {
            true => (shift.unsigned_abs() as usize, 0),
            false => (0, shift as usize),
        };
        if own.max(later) >= self.ranks.len().min(other.ranks.len()) {
            return (0.0, 0);
        }
        let products = self.ranks[own..].iter().zip(&other.ranks[later..]);
        let sum: f64 = products.map(|(a, b)| a * b).sum();
        let known = self.is_known[own..].iter().zip(&other.is_known[later..]);
        let count = known.filter(|(a, b)| **a && **b).count();
        (sum / count.max(1) as f64, count)
    }

    fn steps_with(&self, other: &Ranks) -> usize {
        let both = self.is_known.iter().zip(&other.is_known);
        both.filter(|(a, b)| **a && **b).count()
    }

    /// Returns the number of neighbouring values that count as one in a correlation with the other
    /// process (Bartlett, 1935).
    fn alike(&self, other: &Ranks) -> f64 {
        let products = self.own.iter().zip(&other.own).map(|(a, b)| a * b);
        1.0 + 2.0 * products.sum::<f64>()
    }
}
