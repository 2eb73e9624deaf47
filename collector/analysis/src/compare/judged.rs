//! Judges which places changed by more than chance, and lists those with too few requests for a
//! decision.

use super::budget::{Decision, WeightedTest, decisions};
use super::evidence::{RankEvidence, Variability};
use super::place::Place;
use super::response::PlaceChange;
use super::{CompareSettings, OfRoot};
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
    let (mut keys, mut tested) = (Vec::new(), Vec::new());
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
            let over_roots = judged.over_roots.get(place);
            let tests = if over_roots.is_some() { 2.0 } else { 1.0 };
            let least = over_roots
                .or(of_root)
                .map_or(1.0, |evidence| evidence.least_p_value);
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
    for (key, decision) in keys.into_iter().zip(decisions) {
        let change = &roots[key.0].places[&key.1];
        match decision {
            Decision::Testable(q_value) if q_value <= settings.false_discoveries => {
                found.changed.insert(key, q_value);
            }
            Decision::Untestable(level) if change.is_plain() => {
                found.too_few.push(TooFew {
                    place: places[key.1].clone(),
                    requests: change.requests(),
                    contribution_ns: change.contribution_ns(),
                    needed: (1..NEEDED_MAX)
                        .find(|each| RankEvidence::least_p_value_of([*each; 2]) <= level)
                        .unwrap_or(NEEDED_MAX),
                });
            }
            _ => {}
        }
    }
    let size = |one: &TooFew| one.contribution_ns.abs();
    found.too_few.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
}

/// Maximum of [`TooFew::needed`].
const NEEDED_MAX: usize = 64;
