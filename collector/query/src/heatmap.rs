//! Latency over time: how many requests began when, and took how long.

use std::collections::BTreeMap;

use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceId;

use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, Studied};

/// Columns at most: of twice as many, two are one.
pub(super) const COLUMNS_MAX: i64 = 128;
/// The narrowest column takes 2 to this power ns, about a millisecond.
pub(super) const SHIFT_MIN: u32 = 20;
/// Bands of latency in ten times as long.
const BANDS_PER_DECADE: u32 = 8;
/// Decades from a nanosecond on: to some 300 years.
const DECADES: u32 = 19;

/// Requests by when they began and how long they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heatmap {
    /// Where the first column begins, ns since the Unix epoch.
    pub from_ns: i64,
    /// How long each takes.
    pub column_ns: i64,
    /// How many there are, up to the last with a request in it.
    pub columns: usize,
    /// In order of column and band; what has no request is none.
    pub cells: Vec<HeatmapCell>,
}

/// Requests that began in one column, and took as long as one band says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatmapCell {
    pub column: usize,
    /// From [`band_edges_ns`] at this place to the next.
    pub band: usize,
    pub requests: u64,
    /// One of them.
    pub example: TraceId,
}

/// Where bands of latency begin, in ns: eight in each decade.
#[must_use]
pub fn band_edges_ns() -> Vec<u64> {
    let edge = |at: u32| {
        10f64
            .powf(f64::from(at) / f64::from(BANDS_PER_DECADE))
            .round() as u64
    };
    let mut edges: Vec<u64> = (0..=BANDS_PER_DECADE * DECADES).map(edge).collect();
    // The shortest are less than a nanosecond apart.
    edges.dedup();
    edges
}

/// When did requests begin, and how long did they take?
#[derive(Clone, Copy, Debug, Default)]
pub struct HeatmapQuestion;

impl Question for HeatmapQuestion {
    type Records = ();
    type Prepared = ();
    type Paths<'a> = HeatmapPass;
    type Answer = Heatmap;

    fn what(&self) -> &'static str {
        "looking at latency"
    }

    fn records(&self) {}

    fn prepare(&self, _: Studied<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, _: Studied<'a>, (): &'a ()) -> HeatmapPass {
        HeatmapPass::default()
    }

    fn answer(
        &self,
        _: Studied<'_>,
        (): &(),
        paths: HeatmapPass,
        _: Notes,
    ) -> Result<Heatmap, QueryError> {
        Ok(paths.into_heatmap())
    }
}

/// What requests have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatmapPass {
    edges_ns: Vec<u64>,
    /// Columns are so many bits of time.
    shift: u32,
    /// By column, counted from the Unix epoch, and band.
    cells: BTreeMap<(i64, usize), (u64, TraceId)>,
}

impl Default for HeatmapPass {
    fn default() -> Self {
        Self {
            edges_ns: band_edges_ns(),
            shift: SHIFT_MIN,
            cells: BTreeMap::new(),
        }
    }
}

impl HeatmapPass {
    fn see(&mut self, start_ns: i64, latency_ns: u64, id: TraceId) {
        let band = self.edges_ns.partition_point(|edge| *edge <= latency_ns);
        self.add(start_ns >> self.shift, band.saturating_sub(1), 1, id);
        self.fit();
    }

    fn add(&mut self, column: i64, band: usize, requests: u64, id: TraceId) {
        let cell = self.cells.entry((column, band)).or_insert((0, id));
        cell.0 += requests;
        // The least, so that the order of requests does not matter.
        cell.1 = cell.1.min(id);
    }

    /// Makes columns wider until they are few enough: no wider than all requests seen need, whatever their order.
    fn fit(&mut self) {
        while let (Some(((first, _), _)), Some(((last, _), _))) =
            (self.cells.first_key_value(), self.cells.last_key_value())
        {
            if last - first < COLUMNS_MAX {
                return;
            }
            self.widen_to(self.shift + 1);
        }
    }

    fn widen_to(&mut self, shift: u32) {
        let by = shift - self.shift;
        self.shift = shift;
        if by == 0 {
            return;
        }
        for ((column, band), (requests, id)) in std::mem::take(&mut self.cells) {
            self.add(column >> by, band, requests, id);
        }
    }

    fn into_heatmap(self) -> Heatmap {
        let (Some(((first, _), _)), Some(((last, _), _))) =
            (self.cells.first_key_value(), self.cells.last_key_value())
        else {
            return Heatmap::default();
        };
        let (first, last) = (*first, *last);
        let place = |column: i64| usize::try_from(column - first).unwrap_or_default();
        let cells = self.cells.iter();
        Heatmap {
            from_ns: first << self.shift,
            column_ns: 1 << self.shift,
            columns: place(last) + 1,
            cells: cells
                .map(|(&(column, band), &(requests, example))| HeatmapCell {
                    column: place(column),
                    band,
                    requests,
                    example,
                })
                .collect(),
        }
    }
}

impl Pass<TraceView<'_>> for HeatmapPass {
    fn observe(&mut self, seen: &TraceView<'_>) {
        self.see(seen.trace.start_ns, seen.path.latency_ns, seen.trace.id);
    }

    fn merge(&mut self, mut other: Self) {
        let shift = self.shift.max(other.shift);
        self.widen_to(shift);
        other.widen_to(shift);
        for ((column, band), (requests, id)) in other.cells {
            self.add(column, band, requests, id);
        }
        self.fit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All requests at once, without anything clever.
    fn obvious(requests: &[(i64, u64, u128)]) -> Heatmap {
        let edges = band_edges_ns();
        let starts = || requests.iter().map(|(start, ..)| *start);
        let (Some(first), Some(last)) = (starts().min(), starts().max()) else {
            return Heatmap::default();
        };
        let shift = (SHIFT_MIN..63).find(|shift| (last >> shift) - (first >> shift) < COLUMNS_MAX);
        let shift = shift.unwrap();
        let mut cells: Vec<HeatmapCell> = Vec::new();
        for column in 0..COLUMNS_MAX {
            for band in 0..edges.len() {
                let (from, to) = (edges[band], edges.get(band + 1).copied());
                let inside: Vec<u128> = requests
                    .iter()
                    .filter(|(start, latency, _)| {
                        (start >> shift) - (first >> shift) == column
                            && (*latency >= from || band == 0)
                            && to.is_none_or(|to| *latency < to)
                    })
                    .map(|(.., id)| *id)
                    .collect();
                cells.extend(inside.iter().min().map(|example| HeatmapCell {
                    column: column as usize,
                    band,
                    requests: inside.len() as u64,
                    example: TraceId(*example),
                }));
            }
        }
        Heatmap {
            from_ns: (first >> shift) << shift,
            column_ns: 1 << shift,
            columns: cells.last().unwrap().column + 1,
            cells,
        }
    }

    #[test]
    fn bands_are_eight_in_a_decade() {
        let edges = band_edges_ns();
        assert!(edges.is_sorted_by(|a, b| a < b));
        for decade in [1, 10, 1_000_000, 10_000_000_000] {
            assert!(edges.contains(&decade), "{decade}");
        }
        let between = |edge: &&u64| (1_000_000..10_000_000).contains(*edge);
        assert_eq!(edges.iter().filter(between).count(), 8);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn in_any_order_and_in_parts_it_is_the_obvious_one(
            requests in proptest::collection::vec(
                (prop_oneof![0i64..1 << 30, -(1i64 << 40)..1 << 40, 0i64..1 << 60], prop_oneof![0u64..9, 1u64..1 << 40], 0u128..99),
                0..40,
            ),
            cut in 0usize..40,
        ) {
            let pass = |some: &[(i64, u64, u128)]| {
                let mut pass = HeatmapPass::default();
                some.iter().for_each(|(start, latency, id)| pass.see(*start, *latency, TraceId(*id)));
                pass
            };
            let (before, after) = requests.split_at(cut.min(requests.len()));
            let mut merged = pass(after);
            merged.merge(pass(before));
            prop_assert_eq!(&merged, &pass(&requests));
            prop_assert_eq!(merged.into_heatmap(), obvious(&requests));
        }
    }
}
