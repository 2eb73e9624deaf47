//! How the time of requests changed, place by place.
//!
//! The mean latency of a root operation's requests is the sum, over categories and places, of shares of requests times mean
//! time on the critical path. What of its change is due to a place in requests of unchanged structure is known exactly; what
//! is asked here is which of that is more than chance.

use super::matched::Matched;
use super::place::Places;
use super::rows::{Period, Row};
use super::slices::{
    SLICES_KNOWN_MIN, Slice, difference, error, farthest_difference, rank_difference,
};
use crate::flow::CategoryId;
use std::collections::BTreeMap;

/// A place in the requests of one root operation.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceChange {
    /// What it adds to the mean latency of the root operation's requests, by category; `None`: in what is left of them.
    pub(super) contributions_ns: BTreeMap<Option<CategoryId>, f64>,
    /// The place's time in the mean latency of these requests before.
    pub(super) before_ns: f64,
    /// The probability of a difference such as this where nothing has changed.
    pub(super) p_value: f64,
    /// The standard error of what it adds, by slices of time; `None`, where there are too few.
    pub(super) error_ns: Option<f64>,
}

impl PlaceChange {
    pub(super) fn contribution_ns(&self) -> f64 {
        self.contributions_ns.values().sum()
    }
}

/// What each place adds, by its number; of so many requests of the root operation in the earlier period, and by so many
/// slices of each.
pub(super) fn place_changes(
    matched: &[Matched<'_>],
    requests_before: u64,
    slices: [usize; 2],
    places: &Places,
) -> BTreeMap<usize, PlaceChange> {
    let mut changes: BTreeMap<usize, PlaceChange> = BTreeMap::new();
    for alike in matched {
        let share = alike.requests[0] as f64 / requests_before.max(1) as f64;
        for edge in alike.edges() {
            let change = changes.entry(places.number(edge)).or_default();
            *change.contributions_ns.entry(alike.id).or_default() +=
                share * alike.edge_change_ns(edge);
            change.before_ns += share * alike.edge_ns(0, edge);
        }
    }
    let tests = tests(matched, slices, places);
    for (place, change) in &mut changes {
        change.p_value = tests.get(place).map_or(1.0, PlaceTest::p_value);
        change.error_ns = tests.get(place).and_then(PlaceTest::error_ns);
    }
    changes
}

/// What slices show of a place.
#[derive(Clone, Debug, Default)]
struct PlaceSlices {
    /// By period: of ranks among the requests of a category, which a few slow ones do not move.
    ranks: [Vec<Slice>; 2],
    /// By period: of logarithms, which they move a little.
    logarithms: [Vec<Slice>; 2],
    /// By period: of times, less the mean of their category.
    times: [Vec<Slice>; 2],
    rows: [usize; 2],
}

/// A request in a place: its rank, logarithm and time.
type Seen = [f64; 3];

impl PlaceSlices {
    fn new(slices: [usize; 2]) -> PlaceSlices {
        let empty = || slices.map(|count| vec![Slice::default(); count]);
        PlaceSlices {
            ranks: empty(),
            logarithms: empty(),
            times: empty(),
            rows: [0; 2],
        }
    }

    fn add(&mut self, period: usize, slice: usize, weight: f64, [rank, logarithm, time_ns]: Seen) {
        self.rows[period] += 1;
        self.ranks[period][slice].add(rank, weight);
        self.logarithms[period][slice].add(logarithm, weight);
        self.times[period][slice].add(time_ns, weight);
    }

    /// By whichever of four tests shows most: as four are tried, four times the least probability.
    fn p_value(&self) -> f64 {
        let by_farthest = farthest_difference(&self.logarithms[0], &self.logarithms[1]);
        (4.0 * self.least_of_three().min(by_farthest)).min(1.0)
    }

    /// The least probability by means, by means of ranks, and by which slices have the higher ranks.
    fn least_of_three(&self) -> f64 {
        let (times, ranks) = (&self.times, &self.ranks);
        let by_means = difference((&times[0], self.rows[0]), (&times[1], self.rows[1])).0;
        let by_ranks = difference((&ranks[0], self.rows[0]), (&ranks[1], self.rows[1])).0;
        by_means
            .min(by_ranks)
            .min(rank_difference(&ranks[0], &ranks[1]))
    }

    /// How sure the difference of the mean times is.
    fn error_ns(&self) -> Option<f64> {
        let times = &self.times;
        error((&times[0], self.rows[0]), (&times[1], self.rows[1]))
    }

    /// Whether there are requests in too few slices to compare these.
    fn is_sparse(&self) -> bool {
        let used = |slices: &Vec<Slice>| slices.iter().filter(|slice| slice.weight > 0.0).count();
        self.ranks
            .iter()
            .any(|slices| used(slices) < SLICES_KNOWN_MIN)
    }
}

/// A place, and as long as they are few, its requests one by one.
#[derive(Debug)]
struct PlaceTest {
    slices: PlaceSlices,
    rows: Option<Vec<(usize, f64, Seen)>>,
}

/// So few requests are compared one by one, where they lie in too few slices.
const ROWS_ALONE_MAX: usize = 48;

impl PlaceTest {
    fn error_ns(&self) -> Option<f64> {
        self.slices.error_ns()
    }

    fn p_value(&self) -> f64 {
        match &self.rows {
            Some(rows) if self.slices.is_sparse() => {
                let mut count = [0; 2];
                let mut alone = PlaceSlices::new([rows.len(); 2]);
                for (period, weight, seen) in rows {
                    alone.add(*period, count[*period], *weight, *seen);
                    count[*period] += 1;
                }
                // A single request may lie anywhere.
                (3.0 * alone.least_of_three()).min(1.0)
            }
            _ => self.slices.p_value(),
        }
    }
}

fn tests(
    matched: &[Matched<'_>],
    slices: [usize; 2],
    places: &Places,
) -> BTreeMap<usize, PlaceTest> {
    let mut found: BTreeMap<usize, PlaceTest> = BTreeMap::new();
    let empty = || PlaceTest {
        slices: PlaceSlices::new(slices),
        rows: Some(Vec::new()),
    };
    for Matched { rows, .. } in matched {
        let has = |period| rows.iter().any(|row| row.period == period);
        if !has(Period::Before) || !has(Period::After) {
            continue;
        }
        for (place, times_ns) in times_by_place(rows, places) {
            let of_place = found.entry(place).or_insert_with(empty);
            let weights: f64 = rows.iter().map(|row| row.weight).sum();
            let weighted = rows
                .iter()
                .zip(&times_ns)
                .map(|(row, time_ns)| row.weight * time_ns);
            let mean_ns = weighted.sum::<f64>() / weights;
            let ranks = ranks(rows, &times_ns);
            let usual_ns = usual_ns(&times_ns);
            for (row, (rank, time_ns)) in rows.iter().zip(ranks.iter().zip(&times_ns)) {
                let period = row.period as usize;
                let seen = [*rank, (time_ns / usual_ns).ln_1p(), time_ns - mean_ns];
                of_place.slices.add(period, row.slice, row.weight, seen);
                if let Some(rows) = &mut of_place.rows {
                    rows.push((period, row.weight, seen));
                }
                of_place.rows.take_if(|rows| rows.len() > ROWS_ALONE_MAX);
            }
        }
    }
    found
}

/// The median of those that are not nothing.
fn usual_ns(times_ns: &[f64]) -> f64 {
    let mut some: Vec<f64> = times_ns
        .iter()
        .copied()
        .filter(|time_ns| *time_ns > 0.0)
        .collect();
    some.sort_unstable_by(f64::total_cmp);
    some.get(some.len() / 2).copied().unwrap_or(1.0)
}

/// The time of each request in each place where any of them spends some.
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

/// Where each value lies among all, from -½ to ½; equal ones in the middle of theirs.
fn ranks(rows: &[Row<'_>], values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let all: f64 = rows.iter().map(|row| row.weight).sum();
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0.0;
    for alike in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let weight: f64 = alike.iter().map(|at| rows[*at].weight).sum();
        for at in alike {
            ranks[*at] = (below + weight / 2.0) / all - 0.5;
        }
        below += weight;
    }
    ranks
}
