//! Requests of root operations over time: their number, their failures, and their durations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::flow::ERROR;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_store::tables::AttributeKeys;

use super::notes::Notes;
use super::paths::has_failed;
use super::query_error::QueryError;
use super::step::{band_of, quantile_ns};
use super::study::{Question, StudyInput};
use super::time_columns::{Limit, OfColumn, TimeColumns};

/// Maximum number of root operations with a series. Those with callers are chosen before others,
/// and those with more total latency before those with less.
const ROOTS_MAX: usize = 8;
/// Maximum number of columns, which all series share, including empty ones.
const COLUMNS_MAX: i64 = 40;

/// Requests of one root operation over time. All root operations share the same columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RootSeries {
    pub root: String,
    /// Start of the first column, in ns since the Unix epoch. `until_ns` is the end of the last
    /// one.
    pub from_ns: i64,
    pub until_ns: i64,
    pub column_ns: i64,
    /// Columns with requests, in order of time; empty columns are absent.
    pub columns: Vec<RootColumn>,
}

/// Requests of one root operation that began in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RootColumn {
    pub from_ns: i64,
    /// Number of requests; an estimate if requests have sampling weights.
    pub requests: u64,
    pub failed: u64,
    /// 50th percentile of the latency in ns, accurate to about one in 256, like the other
    /// percentiles.
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
}

impl RootSeries {
    /// Returns the index of the column that contains an instant. For the end of the series, this is
    /// the number of columns, including empty ones.
    #[must_use]
    pub fn place(&self, at_ns: i64) -> i64 {
        at_ns.saturating_sub(self.from_ns) / self.column_ns.max(1)
    }
}

/// Asks for the requests of the main root operations over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct RootSeriesQuestion;

impl Question for RootSeriesQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = RootSeriesPass;
    type Answer = Vec<RootSeries>;

    fn what(&self) -> &'static str {
        "looking at root operations over time"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn path_keys(&self, (): &()) -> AttributeKeys {
        AttributeKeys::of([ERROR])
    }

    fn paths<'a>(&'a self, studied: StudyInput<'a>, (): &'a ()) -> RootSeriesPass {
        let ranked = studied.inference.roots.ranked().into_iter();
        RootSeriesPass::of(ranked.take(ROOTS_MAX).map(|(root, _)| root))
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: RootSeriesPass,
        _: Notes,
    ) -> Result<Vec<RootSeries>, QueryError> {
        Ok(paths.series())
    }
}

impl OfColumn for WeightedCount {
    fn take_in(&mut self, other: Self) {
        *self += other;
    }
}

/// Counts of the requests of a root operation that began in a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ColumnCounts {
    failed: WeightedCount,
    /// Number of requests by band of latency.
    bands: BTreeMap<u32, WeightedCount>,
}

impl OfColumn for ColumnCounts {
    fn take_in(&mut self, other: Self) {
        self.failed += other.failed;
        self.bands.take_in(other.bands);
    }
}

impl ColumnCounts {
    fn column(&self, from_ns: i64) -> RootColumn {
        let requests: WeightedCount = self.bands.values().copied().sum();
        let [p50_ns, p95_ns, p99_ns] =
            [0.5, 0.95, 0.99].map(|quantile| quantile_ns(&self.bands, quantile));
        RootColumn {
            from_ns,
            requests: requests.rounded(),
            failed: self.failed.rounded(),
            p50_ns,
            p95_ns,
            p99_ns,
        }
    }
}

/// Pass that collects the series of root operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSeriesPass {
    roots: Vec<String>,
    /// Counts of requests by column of time, then by index of the root operation in `roots`.
    seen: TimeColumns<BTreeMap<usize, ColumnCounts>>,
}

impl RootSeriesPass {
    fn of<'a>(roots: impl Iterator<Item = &'a str>) -> Self {
        Self {
            roots: roots.map(str::to_owned).collect(),
            seen: TimeColumns::within(Limit::Span(COLUMNS_MAX)),
        }
    }

    fn see(
        &mut self,
        place: usize,
        start_ns: i64,
        latency_ns: u64,
        has_failed: bool,
        weight: Weight,
    ) {
        let seen = self.seen.at(start_ns).entry(place).or_default();
        let band = seen.bands.entry(band_of(latency_ns));
        band.or_default().count(weight);
        if has_failed {
            seen.failed.count(weight);
        }
    }

    fn series(self) -> Vec<RootSeries> {
        let Some((first, last)) = self.seen.ends() else {
            return Vec::new();
        };
        let shift = self.seen.shift;
        let columns = &self.seen.columns;
        let of_root = |(place, root): (usize, String)| RootSeries {
            root,
            from_ns: first << shift,
            until_ns: last.saturating_add(1) << shift,
            column_ns: 1 << shift,
            columns: columns
                .iter()
                .filter_map(|(number, roots)| Some(roots.get(&place)?.column(number << shift)))
                .collect(),
        };
        let series = self.roots.into_iter().enumerate().map(of_root);
        series.filter(|series| !series.columns.is_empty()).collect()
    }
}

impl Pass<TraceView<'_>> for RootSeriesPass {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let root = seen.records.root_name();
        if let Some(place) = self.roots.iter().position(|known| *known == *root) {
            let (start_ns, latency_ns) = (seen.trace.start_ns, seen.path.latency_ns);
            let (has_failed, weight) = (has_failed(seen.records), seen.weight());
            self.see(place, start_ns, latency_ns, has_failed, weight);
        }
    }

    fn merge(&mut self, other: Self) {
        self.seen.merge(other.seen);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::step::ns_of;
    use crate::time_columns::SHIFT_MIN;

    const ROOTS: [&str; 3] = ["a", "b", "c"];

    /// Index of the root, start, latency, failure, and binary logarithm of the weight.
    type Request = (usize, i64, u64, bool, u32);

    fn pass(requests: &[Request]) -> RootSeriesPass {
        let mut pass = RootSeriesPass::of(ROOTS.into_iter());
        for (place, start_ns, latency_ns, has_failed, bits) in requests {
            let weight = Weight::of_threshold((1 << 56) - (1 << (56 - bits)));
            pass.see(*place, *start_ns, *latency_ns, *has_failed, weight);
        }
        pass
    }

    /// Computes the series from all requests at once, each repeated by its weight.
    fn obvious(requests: &[Request]) -> Vec<RootSeries> {
        let starts = || requests.iter().map(|request| request.1);
        let (Some(first), Some(last)) = (starts().min(), starts().max()) else {
            return Vec::new();
        };
        let shift = (SHIFT_MIN..63).find(|shift| (last >> shift) - (first >> shift) < COLUMNS_MAX);
        let shift = shift.unwrap();
        let column = |root: usize, from_ns: i64| {
            let inside: Vec<&Request> = requests
                .iter()
                .filter(|request| request.0 == root && (request.1 >> shift) << shift == from_ns)
                .collect();
            let number = |of: &[&Request]| of.iter().map(|of| 1 << of.4).sum::<u64>();
            let mut latencies: Vec<u64> = inside
                .iter()
                .flat_map(|of| std::iter::repeat_n(of.2, 1 << of.4))
                .collect();
            latencies.sort_unstable();
            let [p50_ns, p95_ns, p99_ns] = [50, 95, 99].map(|percent| {
                let rank = (latencies.len() * percent).div_ceil(100);
                latencies.get(rank.max(1) - 1).copied().unwrap_or_default()
            });
            let failed: Vec<&Request> = inside.iter().copied().filter(|of| of.3).collect();
            (!inside.is_empty()).then(|| RootColumn {
                from_ns,
                requests: number(&inside),
                failed: number(&failed),
                p50_ns,
                p95_ns,
                p99_ns,
            })
        };
        let series = ROOTS.iter().enumerate().map(|(place, root)| RootSeries {
            root: (*root).to_owned(),
            from_ns: (first >> shift) << shift,
            until_ns: ((last >> shift) + 1) << shift,
            column_ns: 1 << shift,
            columns: ((first >> shift)..=(last >> shift))
                .filter_map(|number| column(place, number << shift))
                .collect(),
        });
        series.filter(|of| !of.columns.is_empty()).collect()
    }

    /// Rounds latencies as bands do.
    fn banded(mut series: Vec<RootSeries>) -> Vec<RootSeries> {
        for column in series.iter_mut().flat_map(|of| &mut of.columns) {
            for ns in [&mut column.p50_ns, &mut column.p95_ns, &mut column.p99_ns] {
                let banded = ns_of(band_of(*ns));
                assert!(banded.abs_diff(*ns) <= *ns / 256, "{banded} for {ns}");
                *ns = banded;
            }
        }
        series
    }

    #[test]
    fn one_request_is_one_column_and_none_are_no_series() {
        assert_eq!(pass(&[]).series(), []);
        let one = pass(&[(1, 5 << SHIFT_MIN, 1000, true, 0)]).series();
        let [series] = &one[..] else {
            panic!("{one:?}");
        };
        assert_eq!((&*series.root, series.place(series.until_ns)), ("b", 1));
        let column = series.columns[0];
        assert_eq!((column.requests, column.failed), (1, 1));
        assert_eq!(column.p50_ns, column.p99_ns);
    }

    proptest! {
        #[test]
        fn in_any_order_and_in_parts_it_is_the_obvious_one(
            requests in prop::collection::vec(
                (0usize..3, prop_oneof![0i64..1 << 26, -(1i64 << 40)..1 << 40, 0i64..1 << 60], 0u64..1 << 30, any::<bool>(), 0u32..4),
                0..60,
            ),
            cut in 0usize..60,
        ) {
            let (some, others) = requests.split_at(cut.min(requests.len()));
            let mut merged = pass(others);
            merged.merge(pass(some));
            prop_assert_eq!(&merged, &pass(&requests));
            prop_assert_eq!(merged.series(), banded(obvious(&requests)));
        }
    }
}
