//! Judges which places changed by more than chance, and lists those that changed a lot in too few
//! requests for a decision.

use super::budget::{WeightedTest, decisions};
use super::evidence::{RankEvidence, Variability};
use super::place::Place;
use super::response::PlaceChange;
use super::{CompareSettings, OfRoot};
use crate::statistics::normal_deviation;
use std::collections::BTreeMap;

/// Variability of all places, and the evidence of places over several root operations.
struct PlaceEvidence {
    variability: Variability,
    /// Evidence of places that occur in requests of more than one root operation.
    over_roots: BTreeMap<usize, RankEvidence>,
}

impl PlaceEvidence {
    fn of(roots: &[OfRoot<'_>]) -> PlaceEvidence {
        let all = roots.iter().flat_map(|root| root.places.values());
        let evidence: Vec<&RankEvidence> = all.flat_map(|change| &change.evidence).collect();
        let variability = Variability::of(&evidence);
        let mut by_place: BTreeMap<usize, Vec<&PlaceChange>> = BTreeMap::new();
        for root in roots {
            for (place, change) in &root.places {
                by_place.entry(*place).or_default().push(change);
            }
        }
        let joined = |(place, of): (usize, Vec<&PlaceChange>)| {
            let observations = of.iter().flat_map(|change| &change.observations).copied();
            Some((place, RankEvidence::of(&observations.collect::<Vec<_>>())?))
        };
        let several = by_place.into_iter().filter(|(_, of)| of.len() > 1);
        PlaceEvidence {
            variability,
            over_roots: several.filter_map(joined).collect(),
        }
    }
}

/// A place whose time changed a lot, in too few requests to exclude chance.
#[derive(Clone, Debug, PartialEq)]
pub struct TooFew {
    /// The place.
    pub place: Place,
    /// Number of requests of each period whose times at the place were compared.
    pub requests: [usize; 2],
    /// Contribution to the change of one root operation's mean latency, in nanoseconds.
    pub contribution_ns: f64,
    /// Number of requests of each period that would suffice if they differed as the compared ones
    /// do. If those are too few for any result, the number that would suffice if all requests of
    /// one period took longer than all of the other.
    pub needed: usize,
}

/// Result of judging all places.
#[derive(Debug, Default)]
pub(super) struct ChangedPlaces {
    /// Q-values of the places that changed significantly, keyed by (root operation, place).
    pub(super) changed: BTreeMap<(usize, usize), f64>,
    pub(super) too_few: Vec<TooFew>,
}

/// Judges the places of all root operations.
///
/// A place is tested in the requests of each root operation and in those of all root operations
/// together. A small change in every root operation may show only in all of them together.
pub(super) fn changed_places(
    roots: &[OfRoot<'_>],
    places: &[Place],
    settings: &CompareSettings,
) -> ChangedPlaces {
    let judged = PlaceEvidence::of(roots);
    let (mut keys, mut tested) = (Vec::new(), Vec::new());
    for (number, root) in roots.iter().enumerate() {
        let mean_ns = root.before.mean_ns();
        for (place, change) in &root.places {
            if !change.is_material(settings.effect_min, mean_ns) {
                continue;
            }
            let (of_root, over_roots) = (&change.evidence, judged.over_roots.get(place));
            let all = of_root.iter().chain(over_roots);
            let verdicts = all.map(|evidence| evidence.verdict(&judged.variability));
            let is_slower = change.contribution_ns() > 0.0;
            let p_values = verdicts
                .filter(|verdict| verdict.is_slower == is_slower)
                .map(|verdict| verdict.p_value);
            // A place of several root operations is tested twice.
            let tests = if over_roots.is_some() { 2.0 } else { 1.0 };
            let widest = over_roots.or(of_root.as_ref());
            let least = widest.map_or(1.0, |evidence| evidence.least_p_value);
            keys.push((number, *place));
            tested.push(WeightedTest {
                p_value: (p_values.fold(1.0, f64::min) * tests).min(1.0),
                least_p_value: least * tests,
                spread_ns: change.spread_ns,
            });
        }
    }
    let mut found = ChangedPlaces::default();
    let decisions = decisions(&tested, settings.false_discoveries);
    for ((key, test), decision) in keys.into_iter().zip(&tested).zip(decisions) {
        let change = &roots[key.0].places[&key.1];
        match decision.q_value {
            Some(q_value) if q_value <= settings.false_discoveries => {
                found.changed.insert(key, q_value);
            }
            q_value if change.is_plain() => {
                let requests = change.requests();
                let needed = match q_value {
                    None => Some(needed_if_apart(decision.level)),
                    Some(_) => needed_if_alike(requests, test.p_value, decision.level),
                };
                found.too_few.extend(needed.map(|needed| TooFew {
                    place: places[key.1].clone(),
                    requests,
                    contribution_ns: change.contribution_ns(),
                    needed,
                }));
            }
            _ => {}
        }
    }
    let size = |one: &TooFew| one.contribution_ns.abs();
    found.too_few.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
}

/// Returns the number of requests of each period that would suffice at this level if all of one
/// period took longer than all of the other; at most [`APART_MAX`].
fn needed_if_apart(level: f64) -> usize {
    (1..APART_MAX)
        .find(|each| RankEvidence::least_p_value_of([*each; 2]) <= level)
        .unwrap_or(APART_MAX)
}

/// Returns the number of requests of each period that would suffice at this level if more requests
/// differed as these do. The z-score grows with the square root of the number of requests. Returns
/// `None` if the result exceeds [`ALIKE_MAX`] times the number of requests in the smaller period.
fn needed_if_alike(requests: [usize; 2], p_value: f64, level: f64) -> Option<usize> {
    let missing = normal_deviation(level) / normal_deviation(p_value).max(f64::MIN_POSITIVE);
    let times = missing * missing;
    let each = requests[0].min(requests[1]) as f64;
    (times <= ALIKE_MAX).then(|| (each * times).ceil() as usize)
}

/// Maximum result of [`needed_if_apart`]. With so many requests, the p-value is below 1e-36.
const APART_MAX: usize = 64;
/// Maximum ratio of the requests needed to those compared for a place to count as undecided.
const ALIKE_MAX: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_requests_grow_with_the_missing_deviations() {
        // 1.96 deviations have this p-value, and 3.92 need four times as many requests.
        let (p_value, level) = (0.05, 8.86e-5);
        assert_eq!(needed_if_alike([10, 25], p_value, level), Some(40));
        assert_eq!(needed_if_alike([10, 25], level, level), Some(10));
        assert_eq!(needed_if_alike([10, 25], 0.5, level), None);
        assert_eq!(needed_if_alike([10, 25], 1.0, level), None);
    }

    #[test]
    fn requests_that_are_apart_suffice_as_soon_as_their_p_value_does() {
        // One of 20 divisions of six requests is as extreme, in either direction.
        assert_eq!(needed_if_apart(0.1), 3);
        assert_eq!(needed_if_apart(0.099), 4);
        assert_eq!(needed_if_apart(1e-300), APART_MAX);
    }
}
