//! Heatmap of latency over time: the number of requests by start and duration.

use std::collections::BTreeMap;

use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::{Weight, WeightedCount};

use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, StudyInput};
use super::time_columns::{OfColumn, TimeColumns};

const BANDS_PER_DECADE: u32 = 8;
/// Number of decades, from a nanosecond to some 300 years.
const DECADES: u32 = 19;

/// Number of requests by start and latency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heatmap {
    /// Start of the first column, in ns since the Unix epoch.
    pub from_ns: i64,
    /// Width of a column, in ns.
    pub column_ns: i64,
    /// Number of columns, up to the last one with a request in it.
    pub columns: usize,
    /// Cells in order of column and band, without empty ones.
    pub cells: Vec<HeatmapCell>,
}

impl Heatmap {
    /// Returns the start of a column, in ns since the Unix epoch.
    #[must_use]
    pub fn column_from_ns(&self, column: usize) -> i64 {
        let columns = i64::try_from(column).unwrap_or(i64::MAX);
        self.from_ns
            .saturating_add(columns.saturating_mul(self.column_ns))
    }
}

/// Requests that began in one column and whose latency is in one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatmapCell {
    pub column: usize,
    /// Index of the latency band, which reaches from the edge of [`band_edges_ns`] at this index to
    /// the next edge, exclusive. The first band also holds latencies of 0, and the last one has no
    /// upper limit.
    pub band: usize,
    pub requests: WeightedCount,
    /// Request with the lowest id in the cell.
    pub example: TraceId,
}

/// Returns the edges of the latency bands in ns, in ascending order. There are eight bands per
/// decade, but fewer below 10 ns.
#[must_use]
pub fn band_edges_ns() -> Vec<u64> {
    let edge = |at: u32| {
        10f64
            .powf(f64::from(at) / f64::from(BANDS_PER_DECADE))
            .round() as u64
    };
    let mut edges: Vec<u64> = (0..=BANDS_PER_DECADE * DECADES).map(edge).collect();
    // The lowest edges are less than a nanosecond apart.
    edges.dedup();
    edges
}

/// Asks for the starts and durations of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeatmapQuestion;

impl Question for HeatmapQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = HeatmapPass;
    type Answer = Heatmap;

    fn what(&self) -> &'static str {
        "looking at latency"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> HeatmapPass {
        HeatmapPass::default()
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: HeatmapPass,
        _: Notes,
    ) -> Result<Heatmap, QueryError> {
        Ok(paths.into_heatmap())
    }
}

/// Number of requests, with the lowest trace id as an example. The result does not depend on the
/// order of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cell {
    requests: WeightedCount,
    example: Option<TraceId>,
}

impl OfColumn for Cell {
    fn take_in(&mut self, other: Self) {
        self.requests += other.requests;
        self.example = self.example.into_iter().chain(other.example).min();
    }
}

/// Pass that counts requests by start and latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatmapPass {
    edges_ns: Vec<u64>,
    /// Cells by column of time, then by index of the band.
    seen: TimeColumns<BTreeMap<usize, Cell>>,
}

impl Default for HeatmapPass {
    fn default() -> Self {
        Self {
            edges_ns: band_edges_ns(),
            seen: TimeColumns::default(),
        }
    }
}

impl HeatmapPass {
    fn see(&mut self, start_ns: i64, latency_ns: u64, id: TraceId, weight: Weight) {
        let band = self.edges_ns.partition_point(|edge| *edge <= latency_ns);
        let mut cell = Cell {
            requests: WeightedCount::default(),
            example: Some(id),
        };
        cell.requests.count(weight);
        let known = self.seen.at(start_ns).entry(band.saturating_sub(1));
        known.or_default().take_in(cell);
    }

    fn into_heatmap(self) -> Heatmap {
        let Some((first, last)) = self.seen.ends() else {
            return Heatmap::default();
        };
        let shift = self.seen.shift;
        let place = |column: i64| usize::try_from(column - first).unwrap_or_default();
        let columns = self.seen.columns.into_iter();
        let cells = columns.flat_map(|(column, bands)| {
            bands.into_iter().filter_map(move |(band, cell)| {
                Some(HeatmapCell {
                    column: place(column),
                    band,
                    requests: cell.requests,
                    example: cell.example?,
                })
            })
        });
        Heatmap {
            from_ns: first << shift,
            column_ns: 1 << shift,
            columns: place(last) + 1,
            cells: cells.collect(),
        }
    }
}

impl Pass<TraceView<'_>> for HeatmapPass {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (start_ns, latency_ns) = (seen.trace.start_ns, seen.path.latency_ns);
        self.see(start_ns, latency_ns, seen.trace.id, seen.weight());
    }

    fn merge(&mut self, other: Self) {
        self.seen.merge(other.seen);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time_columns::{COLUMNS_MAX, SHIFT_MIN};

    fn recorded(requests: usize) -> WeightedCount {
        let mut count = WeightedCount::default();
        (0..requests).for_each(|_| count.count(Weight::ONE));
        count
    }

    /// Reference implementation that counts all requests at once.
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
                    requests: recorded(inside.len()),
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
                some.iter().for_each(|(start, latency, id)| pass.see(*start, *latency, TraceId(*id), Weight::ONE));
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
