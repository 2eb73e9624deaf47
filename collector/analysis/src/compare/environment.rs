//! What changed for everything: the machines, or what else runs on them.
//!
//! One run differs from the next by more than the slices of either know of: clocks of processors, neighbours, where things lie
//! in memory, queues that are longer everywhere. Then places of all services take longer, or less long, some more and some
//! less. So how much places usually changed by, and how different they did so, is learned from all of them (robustly: by
//! medians), and a place that changed no more than that is no cause by itself. As in a meta-analysis with random effects,
//! what differs between studies anyway is not held for sampling error.

use super::OfRoot;
use super::place::Place;
use crate::statistics::median;
use std::collections::{BTreeMap, BTreeSet};

/// How places of all services changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Environment {
    /// How many places this was learned from.
    pub places: usize,
    /// By which factor the time of a place usually changed.
    pub factor: f64,
    /// The standard deviation of the factor's logarithm, as a half of the places shows it.
    pub spread: f64,
    /// Places that changed by more than chance, and no more than others.
    pub within: usize,
}

/// Fewer places, or services, do not show what is usual.
const PLACES_MIN: usize = 8;
const SERVICES_MIN: usize = 3;
/// Places of which less is known: their relative error.
const ERROR_MAX: f64 = 0.5;
/// Places that are so small a part of a request tell little.
const PART_MIN: f64 = 1e-4;
/// So many standard deviations are no more than usual.
const USUAL_MAX: f64 = 2.5;
/// Even where everything is as it was, one run is not the other.
const SPREAD_MIN: f64 = 0.01;
/// What changed by e times is that place's own change, whatever the others did.
const LARGE: f64 = 1.0;
/// The median of absolute deviations, as a standard deviation of normal ones.
const MAD: f64 = 1.4826;

/// Of places that changed, by root operation and place, leaves those that did so by themselves.
pub(super) fn keep_own(
    changed: &mut BTreeMap<(usize, usize), f64>,
    roots: &[OfRoot<'_>],
    places: &[Place],
    mean_before_ns: f64,
) -> Option<Environment> {
    let ratios = ratios(roots);
    let mut environment = Environment::of(&ratios, places, mean_before_ns)?;
    let all = changed.len();
    changed.retain(|(_, place), _| {
        let ratio = ratios.get(place);
        !ratio.is_some_and(|ratio| environment.is_usual(*ratio))
    });
    environment.within = all - changed.len();
    Some(environment)
}

/// The logarithm of the factor by which each place's time changed, and its relative error.
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

/// How the time of a place changed.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    before_ns: f64,
    log: f64,
    error: Option<f64>,
}

impl Environment {
    /// What is usual; `None`, where there is too little to tell.
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
        let services: BTreeSet<_> = used
            .iter()
            .map(|(place, _)| &places[**place].operation().service)
            .collect();
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

    /// Whether a place changed no more than others did, as far as that is known of it.
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
        // As two runs of one system beside each other: everything is slower, by 10 to 100 %.
        let (found, usual) =
            environment(&[0.57, 0.71, 0.11, 0.14, 0.47, 0.64, 0.27, 0.19, 0.31, 0.66]);
        let found = found.expect("enough places");
        assert!((1.3..1.7).contains(&found.factor), "{found:?}");
        assert_eq!(usual, [true; 10]);
        // One of them changed by itself.
        let (found, usual) =
            environment(&[0.02, -0.01, 0.03, 0.0, 0.4, 0.01, -0.02, 0.01, 3.0, -0.5]);
        assert!(found.expect("enough places").spread < 0.05);
        let own: Vec<usize> = (0..10).filter(|at| !usual[*at]).collect();
        assert_eq!(own, [4, 8, 9]);
        // Most of them are of a service that is many times as slow.
        let (_, usual) = environment(&[3.0, 3.1, 2.9, 3.2, 3.0, 2.8, 0.0, 0.1, 0.05]);
        assert_eq!(usual[..6], [false; 6]);
        // Of a few places, each is its own.
        assert_eq!(environment(&[0.1; 5]).1, [false; 5]);
    }
}
