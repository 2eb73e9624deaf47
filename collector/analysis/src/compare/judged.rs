//! Judges which places changed by more than chance, and lists those with too few requests for a
//! decision.

use super::evidence::{RankEvidence, Variability};
use super::place::Place;
use super::response::PlaceChange;
use super::{CompareSettings, OfRoot};
use crate::statistics::benjamini_hochberg;
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
        let evidence: Vec<&RankEvidence> =
            all.filter_map(|change| change.evidence.as_ref()).collect();
        let variability = Variability::of(&evidence);
        let mut by_place: BTreeMap<usize, Vec<&PlaceChange>> = BTreeMap::new();
        for root in roots {
            for (place, change) in &root.places {
                by_place.entry(*place).or_default().push(change);
            }
        }
        let joined = |(place, of): (usize, Vec<&PlaceChange>)| {
            let observations = of
                .iter()
                .flat_map(|change| change.observations.iter().copied());
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
    /// Contribution to the change of the mean latency of its root operation's requests, in
    /// nanoseconds.
    pub contribution_ns: f64,
    /// Number of requests of each period that would suffice if all of one period took longer than
    /// all of the other; at most 64.
    pub needed: usize,
}

/// Result of judging all places.
#[derive(Debug, Default)]
pub(super) struct ChangedPlaces {
    /// Q-values of the places that changed significantly, keyed by (root operation, place).
    pub(super) changed: BTreeMap<(usize, usize), f64>,
    pub(super) too_few: Vec<TooFew>,
}

/// Minimum factor by which an undecided place must have changed to be listed as [`TooFew`].
const PLAIN_FACTOR: f64 = 2.0;

/// Judges the places of all root operations.
///
/// A place is tested in the requests of each root operation and in those of all root operations
/// together. A small change in every root operation shows only in all of them together.
pub(super) fn changed_places(
    roots: &[OfRoot<'_>],
    places: &[Place],
    settings: &CompareSettings,
) -> ChangedPlaces {
    let judged = PlaceEvidence::of(roots);
    let mut tested = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        let mean_ns = root.before.mean_ns();
        for (place, change) in &root.places {
            if !change.is_material(settings.effect_min, mean_ns) {
                continue;
            }
            let of_root = change.evidence.as_ref();
            let all = of_root.into_iter().chain(judged.over_roots.get(place));
            let is_slower = change.contribution_ns() > 0.0;
            let p_values = all
                .map(|evidence| evidence.verdict(&judged.variability))
                .filter(|verdict| verdict.is_slower == is_slower)
                .map(|verdict| verdict.p_value);
            // A place of several root operations is tested twice.
            let tests = if judged.over_roots.contains_key(place) {
                2.0
            } else {
                1.0
            };
            let p_value = p_values.fold(1.0, f64::min) * tests;
            tested.push(((number, *place), p_value.min(1.0)));
        }
    }
    let p_values: Vec<f64> = tested.iter().map(|(_, p_value)| *p_value).collect();
    // Maximum p-value at which a single change among all tested ones is significant.
    let level = settings.false_discoveries / tested.len().max(1) as f64;
    let mut found = ChangedPlaces::default();
    for ((key, _), q_value) in tested.iter().zip(benjamini_hochberg(&p_values)) {
        let change = &roots[key.0].places[&key.1];
        if q_value <= settings.false_discoveries {
            found.changed.insert(*key, q_value);
        } else if let Some(requests) = change.evidence.as_ref().map(|evidence| evidence.rows)
            && change.is_by_factor(PLAIN_FACTOR)
            && RankEvidence::least_p_value(requests) > level
        {
            found.too_few.push(TooFew {
                place: places[key.1].clone(),
                requests,
                contribution_ns: change.contribution_ns(),
                needed: (1..NEEDED_MAX)
                    .find(|each| RankEvidence::least_p_value([*each; 2]) <= level)
                    .unwrap_or(NEEDED_MAX),
            });
        }
    }
    let size = |one: &TooFew| one.contribution_ns.abs();
    found.too_few.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
}

/// Maximum of [`TooFew::needed`].
const NEEDED_MAX: usize = 64;
