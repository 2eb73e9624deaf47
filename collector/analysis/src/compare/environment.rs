//! Estimates changes of the environment, such as the machines or other work on them.
//!
//! Two periods may differ by more than the variation within each: in clock rates of processors,
//! other workloads on the machines, placement in memory, or longer queues everywhere. Places of all
//! services then become slower or faster, by different amounts. Medians over places with precise
//! times estimate the usual change of a place and its spread. A change by a factor between 1/e and
//! e that is close to the usual change is not reported as a cause. As in a meta-analysis with
//! random effects, this spread adds to the sampling error of each place.

use super::OfRoot;
use super::place::Place;
use crate::statistics::median;
use std::collections::{BTreeMap, BTreeSet};

/// Usual change of the places of all services.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Environment {
    /// Number of places that the estimate uses.
    pub places: usize,
    /// Factor by which the time of a place usually changed.
    pub factor: f64,
    /// Standard deviation of the factor's logarithm, estimated from the median absolute deviation;
    /// at least 0.01.
    pub spread: f64,
    /// Number of significant changes that are not reported because they are usual, one for each
    /// root operation and place.
    pub within: usize,
}

/// Minimum numbers of places and services for an estimate of the usual change.
const PLACES_MIN: usize = 8;
const SERVICES_MIN: usize = 3;
/// Maximum error of a place's change, as a fraction of its earlier time, for the estimate.
const ERROR_MAX: f64 = 0.5;
/// Minimum share of a place in the earlier mean latency. Smaller places are too imprecise.
const PART_MIN: f64 = 1e-4;
/// Distance from the usual change, in standard deviations, below which a change counts as usual.
const USUAL_MAX: f64 = 2.5;
/// Minimum spread, as two periods differ even if nothing changed.
const SPREAD_MIN: f64 = 0.01;
/// Absolute logarithm of the factor from which a change is never usual: a factor of e or 1/e.
const LARGE: f64 = 1.0;
/// Factor from the median absolute deviation to the standard deviation of a normal distribution.
const MAD: f64 = 1.4826;

/// Removes the usual changes from `changed`, whose keys are (root operation, place). Returns `None`
/// and removes nothing if there is too little data for an estimate.
pub(super) fn keep_own(
    changed: &mut BTreeMap<(usize, usize), f64>,
    roots: &[OfRoot<'_>],
    places: &[Place],
    mean_before_ns: f64,
) -> Option<Environment> {
    let ratios = ratios(roots);
    let mut environment = Environment::of(&ratios, places, mean_before_ns)?;
    let all = changed.len();
    let is_usual =
        |place: &usize| (ratios.get(place)).is_some_and(|ratio| environment.is_usual(*ratio));
    changed.retain(|(_, place), _| !is_usual(place));
    environment.within = all - changed.len();
    Some(environment)
}

/// Computes the logarithm of the factor by which each place's time changed, and its relative error.
/// Leaves out places that take no time in one of the periods.
fn ratios(roots: &[OfRoot<'_>]) -> BTreeMap<usize, Ratio> {
    let mut sums: BTreeMap<usize, (f64, f64, Option<f64>)> = BTreeMap::new();
    for root in roots {
        for (place, change) in &root.places {
            let sum = sums.entry(*place).or_insert((0.0, 0.0, Some(0.0)));
            sum.0 += root.share * change.before_ns;
            sum.1 += root.share * change.contribution_ns();
            let error_ns = change.error_ns.map(|error_ns| root.share * error_ns);
            sum.2 = sum.2.zip(error_ns).map(|(a, b)| a.hypot(b));
        }
    }
    let ratio = |(place, (before_ns, change_ns, error_ns)): (usize, (f64, f64, Option<f64>))| {
        let after_ns = before_ns + change_ns;
        let is_known = before_ns > 0.0 && after_ns > 0.0;
        let ratio = Ratio {
            before_ns,
            log: (after_ns / before_ns).ln(),
            error: error_ns.map(|error_ns| error_ns / before_ns),
        };
        is_known.then_some((place, ratio))
    };
    sums.into_iter().filter_map(ratio).collect()
}

/// Relative change of a place's time, over all root operations.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    before_ns: f64,
    log: f64,
    error: Option<f64>,
}

impl Environment {
    /// Estimates the usual change. Returns `None` if there is too little data.
    fn of(
        ratios: &BTreeMap<usize, Ratio>,
        places: &[Place],
        mean_before_ns: f64,
    ) -> Option<Environment> {
        let known = |(_, ratio): &(&usize, &Ratio)| {
            ratio.before_ns >= PART_MIN * mean_before_ns
                && ratio.error.is_some_and(|error| error <= ERROR_MAX)
        };
        let used: Vec<(&usize, &Ratio)> = ratios.iter().filter(known).collect();
        let of_used = used.iter().map(|(place, _)| places[**place].operation());
        let services: BTreeSet<_> = of_used.map(|operation| &operation.service).collect();
        if used.len() < PLACES_MIN || services.len() < SERVICES_MIN {
            return None;
        }
        let usual = median(used.iter().map(|(_, ratio)| ratio.log).collect()).unwrap_or_default();
        let off = used.iter().map(|(_, ratio)| (ratio.log - usual).abs());
        Some(Environment {
            places: used.len(),
            factor: usual.exp(),
            spread: (MAD * median(off.collect()).unwrap_or_default()).max(SPREAD_MIN),
            within: 0,
        })
    }

    /// Reports whether a place's change is close to the usual one, given the precision of the
    /// change, and below [`LARGE`].
    fn is_usual(&self, ratio: Ratio) -> bool {
        let is_large = ratio.log.abs() >= LARGE;
        let deviation = self.spread.hypot(ratio.error.unwrap_or_default());
        !is_large && (ratio.log - self.factor.ln()).abs() < USUAL_MAX * deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Operation;

    fn environment(logs: &[f64]) -> (Option<Environment>, Vec<bool>) {
        let place = |at: usize| {
            Place::Own(Operation {
                service: format!("s{}", at % 3).into(),
                name: at.to_string().into(),
                host: None,
            })
        };
        let places: Vec<Place> = (0..logs.len()).map(place).collect();
        let ratio = |log: &f64| Ratio {
            before_ns: 1e6,
            log: *log,
            error: Some(0.01),
        };
        let ratios: BTreeMap<usize, Ratio> = logs.iter().map(ratio).enumerate().collect();
        let found = Environment::of(&ratios, &places, 1e7);
        let usual = ratios
            .values()
            .map(|ratio| found.is_some_and(|found| found.is_usual(*ratio)))
            .collect();
        (found, usual)
    }

    #[test]
    fn what_changed_as_all_did_is_usual() {
        // Two runs of one system side by side: everything is slower, by about 10 to 100 %.
        let (found, usual) =
            environment(&[0.57, 0.71, 0.11, 0.14, 0.47, 0.64, 0.27, 0.19, 0.31, 0.66]);
        let found = found.expect("enough places");
        assert!((1.3..1.7).contains(&found.factor), "{found:?}");
        assert_eq!(usual, [true; 10]);
        // Three places changed by themselves.
        let (found, usual) =
            environment(&[0.02, -0.01, 0.03, 0.0, 0.4, 0.01, -0.02, 0.01, 3.0, -0.5]);
        assert!(found.expect("enough places").spread < 0.05);
        let own: Vec<usize> = (0..10).filter(|at| !usual[*at]).collect();
        assert_eq!(own, [4, 8, 9]);
        // Most places are many times slower.
        let (_, usual) = environment(&[3.0, 3.1, 2.9, 3.2, 3.0, 2.8, 0.0, 0.1, 0.05]);
        assert_eq!(usual[..6], [false; 6]);
        // With few places, each change is its own.
        assert_eq!(environment(&[0.1; 5]).1, [false; 5]);
    }
}
