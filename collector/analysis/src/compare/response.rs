//! Computes changes of the response time, place by place.
//!
//! The mean latency of a root operation's requests is a sum over categories and places: the share
//! of requests times the mean time on the critical path. A place's time is compared only between
//! requests that behave alike at the place: within a *stratum*. A stratum holds the requests of one
//! category. If categories have too few requests, [`strata`] combines those that are alike at the
//! place. A mix of many structures therefore rarely hides a change or looks like one.

use super::OfRoot;
use super::evidence::{Observation, RankEvidence};
use super::matched::Alike;
use super::place::Places;
use super::production::local_structure;
use super::rows::{Period, Row};
use super::slices::{Slice, error, slice_count, slice_of};
use super::strata::{SmallTime, StructureKey, strata};
use crate::flow::CategoryId;
use std::collections::BTreeMap;

/// Change of a place's time in the requests of one root operation.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceChange {
    /// Contribution to the change of the mean latency of the root operation's requests, by
    /// category. The key `None` combines all categories with too few requests.
    pub(super) contributions_ns: BTreeMap<Option<CategoryId>, f64>,
    /// Contribution of the place to the mean latency of the root operation's earlier requests, as
    /// far as they are in strata.
    pub(super) before_ns: f64,
    /// Standard error of [`contribution_ns`](Self::contribution_ns), from time slices; `None` if
    /// there are too few slices.
    pub(super) error_ns: Option<f64>,
    /// Total latency of the earlier requests in the place's strata, divided by the number of all
    /// earlier requests of the root operation.
    pub(super) latency_ns: f64,
    /// Fraction of the root operation's later requests that are in the place's strata.
    pub(super) runs: f64,
    /// Fraction (0 to 1) of the mean's change that remains if the few slowest requests of each
    /// period are clipped.
    pub(super) robust: f64,
    /// Estimated fraction of the requests in the place's strata in which the place's time changed.
    pub(super) affected: f64,
    /// Total deviation of the requests' times from the median of their stratum in both periods
    /// together, in nanoseconds. The few largest deviations are clipped.
    pub(super) spread_ns: f64,
    /// Times of single requests at the place, for the test.
    pub(super) observations: Vec<Observation>,
    /// Evidence from the observations; `None` if no requests can be compared.
    pub(super) evidence: Option<RankEvidence>,
}

impl PlaceChange {
    pub(super) fn contribution_ns(&self) -> f64 {
        self.contributions_ns.values().sum()
    }

    /// Returns the contribution without the part that a few slow requests make up.
    pub(super) fn robust_ns(&self) -> f64 {
        self.robust * self.contribution_ns()
    }

    /// Returns the number of sampled requests of each period, in strata with requests of both.
    pub(super) fn requests(&self) -> [usize; 2] {
        self.evidence.as_ref().map_or([0; 2], |of| of.rows)
    }

    /// Reports whether a change of the place is worth a mention without evidence. Its time must
    /// have grown or shrunk by [`PLAIN_FACTOR`] or more, without the part that a few slow requests
    /// make up. Each period must have at least [`PLAIN_REQUESTS_MIN`] requests.
    pub(super) fn is_plain(&self) -> bool {
        let after_ns = self.before_ns + self.robust_ns();
        let is_by_factor =
            after_ns >= PLAIN_FACTOR * self.before_ns || after_ns * PLAIN_FACTOR <= self.before_ns;
        let mut requests = self.requests().into_iter();
        is_by_factor && requests.all(|count| count >= PLAIN_REQUESTS_MIN)
    }

    /// Reports whether the change, without the part that a few slow requests make up, is large
    /// enough to matter. It must be at least `effect_min` of `latency_ns`. A tenth of that suffices
    /// if the place's own time changed by at least 30 %. In any case, the change must be at least a
    /// tenth of `effect_min` of `mean_ns`, the mean latency of the root operation's earlier
    /// requests.
    pub(super) fn is_material(&self, effect_min: f64, mean_ns: f64) -> bool {
        let change_ns = self.robust_ns().abs();
        if change_ns < SMALL_PART * effect_min * mean_ns {
            return false;
        }
        let is_much_of_itself = change_ns >= OF_ITSELF_MIN * self.before_ns;
        let least_ns = effect_min * self.latency_ns;
        change_ns >= least_ns || (is_much_of_itself && change_ns >= SMALL_PART * least_ns)
    }
}

/// Minimum factor of a [plain](PlaceChange::is_plain) change, and minimum number of requests that
/// it needs in each period.
const PLAIN_FACTOR: f64 = 2.0;
const PLAIN_REQUESTS_MIN: usize = 3;
/// Relative change of a place's own time from which [`SMALL_PART`] of the contribution suffices.
const OF_ITSELF_MIN: f64 = 0.3;
/// Factor by which [`PlaceChange::is_material`] reduces `effect_min`: for a place whose own time
/// changed a lot, and for the minimum relative to `mean_ns`.
const SMALL_PART: f64 = 0.1;

/// Computes the change of each place for each root operation, keyed by place number. `alike` are
/// the root operations' matched requests.
pub(super) fn place_changes(
    roots: &[OfRoot<'_>],
    alike: &[Alike<'_>],
    places: &Places,
) -> Vec<BTreeMap<usize, PlaceChange>> {
    let mut found: Vec<BTreeMap<usize, PlaceSums>> = Vec::new();
    let mut small: BTreeMap<usize, Vec<SmallTime<'_>>> = BTreeMap::new();
    let mut numbers = 0..;
    for (number, (root, alike)) in (0..).zip(roots.iter().zip(alike)) {
        let all_before = root.before.count().estimate().max(1.0);
        let mut of_root: BTreeMap<usize, PlaceSums> = BTreeMap::new();
        let matched = alike.matched.iter().filter(|alike| alike.id.is_some());
        for (alike, stratum) in matched.zip(&mut numbers) {
            for (place, times_ns) in times_by_place(&alike.rows, places) {
                let rows = alike.rows.iter().zip(times_ns);
                let of_place = of_root.entry(place).or_default();
                rows.for_each(|(row, time_ns)| of_place.add(stratum, row, time_ns));
            }
            for edge in alike.edges() {
                let of_place = of_root.entry(places.number(edge)).or_default();
                *of_place.exact_ns.entry(alike.id).or_default() +=
                    alike.share_before(all_before) * alike.edge_change_ns(edge);
                of_place.exact_before_ns += alike.share_before(all_before) * alike.edge_ns(0, edge);
            }
        }
        found.push(of_root);
        for (id, rows) in &alike.small {
            let structure = root.shape(*id).map(|shape| local_structure(&shape));
            let structure = structure.unwrap_or_default();
            for (place, times_ns) in times_by_place(rows, places) {
                let key = StructureKey::of(&places.all[place], &structure);
                let timed = rows.iter().zip(times_ns);
                let timed = timed.filter(|(_, time_ns)| *time_ns > 0.0);
                let times = timed.map(|(row, time_ns)| SmallTime {
                    root: number,
                    key,
                    row,
                    time_ns: time_ns as f32,
                });
                small.entry(place).or_default().extend(times);
            }
        }
    }
    for (place, times) in small {
        for (times, stratum) in strata(times).into_iter().zip(&mut numbers) {
            let mut sums = [Sums::default(); 2];
            for one in &times {
                let of_place = found[one.root as usize].entry(place).or_default();
                let time_ns = f64::from(one.time_ns);
                of_place.add(stratum, one.row, time_ns);
                sums[one.row.period as usize].add(one.row, time_ns);
            }
            let means_ns = sums.map(|sums| sums.time_ns / sums.weight);
            for one in &times {
                let of_place = found[one.root as usize].entry(place).or_default();
                of_place.means_ns.insert(stratum, means_ns);
            }
        }
    }
    let changes = |(root, found): (&OfRoot<'_>, BTreeMap<usize, PlaceSums>)| {
        let all = [root.before, root.after].map(|flows| flows.count().estimate().max(1.0));
        let change =
            |(place, sums): (usize, PlaceSums)| (place, sums.change(all, root.before.requests()));
        found.into_iter().map(change).collect()
    };
    roots.iter().zip(found).map(changes).collect()
}

/// Sums over the requests of one stratum and period.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    time_ns: f64,
    latency_ns: f64,
}

impl Sums {
    fn add(&mut self, row: &Row<'_>, time_ns: f64) {
        self.weight += row.weight;
        self.time_ns += row.weight * time_ns;
        self.latency_ns += row.weight * row.request.latency_ns as f64;
    }
}

/// Observations and sums of a place in the requests of one root operation.
#[derive(Debug, Default)]
struct PlaceSums {
    /// Times of the requests that are [even](Row::is_even).
    observations: Vec<Observation>,
    /// Number of earlier requests, even or not.
    before: usize,
    strata: BTreeMap<u32, [Sums; 2]>,
    /// Contributions in matched categories, from the sums over all their requests.
    exact_ns: BTreeMap<Option<CategoryId>, f64>,
    exact_before_ns: f64,
    /// Mean times of the other strata in each period. Requests of one stratum may have different
    /// root operations.
    means_ns: BTreeMap<u32, [f64; 2]>,
}

impl PlaceSums {
    fn add(&mut self, stratum: u32, row: &Row<'_>, time_ns: f64) {
        if row.is_even {
            self.observations.push(Observation {
                stratum,
                period: row.period,
                start_ns: row.request.start_ns,
                id: row.request.id,
                time_ns: time_ns as f32,
            });
        }
        self.before += usize::from(row.period == Period::Before);
        self.strata.entry(stratum).or_default()[row.period as usize].add(row, time_ns);
    }

    /// Computes the change. `all_before` and `all_after`, the numbers of the root operation's
    /// requests, are weighted; `recorded_before` is not.
    fn change(self, [all_before, all_after]: [f64; 2], recorded_before: u64) -> PlaceChange {
        let mut change = PlaceChange {
            contributions_ns: self.exact_ns,
            before_ns: self.exact_before_ns,
            ..PlaceChange::default()
        };
        for (stratum, [before, after]) in &self.strata {
            change.latency_ns += before.latency_ns / all_before;
            change.runs += after.weight / all_after;
            if let Some([before_ns, after_ns]) = self.means_ns.get(stratum) {
                let share = before.weight / all_before;
                *change.contributions_ns.entry(None).or_default() += share * (after_ns - before_ns);
                change.before_ns += share * before_ns;
            }
        }
        let part = self.before as f64 / recorded_before.max(1) as f64;
        change.error_ns = error_ns(&self.observations, part);
        let aligned = AlignedTimes::of(&self.observations);
        change.robust = aligned.robust();
        change.affected = aligned.affected();
        change.spread_ns = spread_ns(&self.observations);
        change.evidence = RankEvidence::of(&self.observations);
        change.observations = self.observations;
        change
    }
}

/// Returns the standard error of the difference of mean times, scaled to all earlier requests, of
/// which the observations represent this part. `None` if there are too few slices.
fn error_ns(observations: &[Observation], part: f64) -> Option<f64> {
    let mut counts = [0; 2];
    for one in observations {
        counts[one.period as usize] += 1;
    }
    let mut order: Vec<&Observation> = observations.iter().collect();
    order.sort_by_key(|one| (one.period, one.start_ns, one.id));
    let lengths = counts.map(slice_count);
    let mut slices = lengths.map(|count| vec![Slice::default(); count]);
    for (at, one) in order.into_iter().enumerate() {
        let period = one.period as usize;
        let slice = slice_of(at, period, counts, lengths);
        slices[period][slice].add(f64::from(one.time_ns), 1.0);
    }
    let error_ns = error((&slices[0], counts[0]), (&slices[1], counts[1]))?;
    Some(error_ns * part)
}

/// Returns the sum of the deviations of the times from the median of their stratum, with the
/// largest [`FEW`] clipped to the largest of the others. It does not depend on the periods.
fn spread_ns(observations: &[Observation]) -> f64 {
    let mut strata: BTreeMap<u32, Vec<f32>> = BTreeMap::new();
    for one in observations {
        strata.entry(one.stratum).or_default().push(one.time_ns);
    }
    let mut deviations_ns = Vec::with_capacity(observations.len());
    for times_ns in strata.values_mut() {
        let at = times_ns.len() / 2;
        let median_ns = *times_ns.select_nth_unstable_by(at, f32::total_cmp).1;
        deviations_ns.extend(times_ns.iter().map(|ns| f64::from((ns - median_ns).abs())));
    }
    deviations_ns.sort_unstable_by(f64::total_cmp);
    let clipped = (FEW * deviations_ns.len() as f64).ceil() as usize;
    let most_ns = deviations_ns.iter().rev().nth(clipped).copied();
    let most_ns = most_ns.unwrap_or(0.0);
    deviations_ns.iter().map(|ns| ns.min(most_ns)).sum()
}

/// Times of both periods, each in units of its stratum's mean, sorted.
struct AlignedTimes([Vec<f64>; 2]);

/// Fraction of the requests (at least one, if there are several) that are clipped, so that they
/// alone do not determine the size of a change or of a spread.
const FEW: f64 = 0.01;
/// Number of quantiles that [`AlignedTimes::affected`] compares.
const QUANTILES: usize = 100;

impl AlignedTimes {
    fn of(observations: &[Observation]) -> AlignedTimes {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for one in observations {
            let sum = sums.entry(one.stratum).or_default();
            *sum = (sum.0 + f64::from(one.time_ns), sum.1 + 1.0);
        }
        let mut values = [Vec::new(), Vec::new()];
        for one in observations {
            let (sum, count) = sums[&one.stratum];
            if sum > 0.0 {
                values[one.period as usize].push(f64::from(one.time_ns) * count / sum);
            }
        }
        for values in &mut values {
            values.sort_unstable_by(f64::total_cmp);
        }
        AlignedTimes(values)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }

    fn means(&self, few: f64) -> [f64; 2] {
        [0, 1].map(|period: usize| {
            let values = &self.0[period];
            let clipped = ((few * values.len() as f64).ceil() as usize).min(values.len() - 1);
            let most = values[values.len() - 1 - if few > 0.0 { clipped } else { 0 }];
            values.iter().map(|value| value.min(most)).sum::<f64>() / values.len() as f64
        })
    }

    /// Returns the fraction of the mean's change that remains if the slowest [`FEW`] requests of
    /// each period are clipped to the slowest of the others.
    fn robust(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let [all, without] = [0.0, FEW].map(|few| {
            let [before, after] = self.means(few);
            after - before
        });
        match all == 0.0 {
            true => 0.0,
            false => (without / all).clamp(0.0, 1.0),
        }
    }

    /// Returns the fraction of the requests whose time changed by at least half of the mean's
    /// change, on a logarithmic scale, in its direction. Requests of the two periods are paired by
    /// quantile. Every rise from 0 counts. If the mean's change is infinite, every change counts.
    fn affected(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let [before, after] = self.means(0.0);
        let usual = (after / before).ln();
        let quantile =
            |values: &[f64], at: usize| values[(2 * at + 1) * values.len() / (2 * QUANTILES)];
        let changed = (0..QUANTILES).filter(|at| {
            let [before, after] = [&self.0[0], &self.0[1]].map(|values| quantile(values, *at));
            if usual.is_finite() {
                before > 0.0 && (after / before).ln() * usual.signum() >= usual.abs() / 2.0
                    || before == 0.0 && after > 0.0
            } else {
                before != after
            }
        });
        changed.count() as f64 / QUANTILES as f64
    }
}

/// Returns the time of each request at each place that any of them reaches, in nanoseconds and in
/// the order of `rows`.
pub(super) fn times_by_place(rows: &[Row<'_>], places: &Places) -> BTreeMap<usize, Vec<f64>> {
    let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        for (edge, time_ns) in &row.request.edges_ns {
            let of_place = times
                .entry(places.number(*edge))
                .or_insert_with(|| vec![0.0; rows.len()]);
            of_place[at] += f64::from(*time_ns);
        }
    }
    times
}
