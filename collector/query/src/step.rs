//! Latency step: the instant after which requests take longer or shorter than before.
//!
//! The pass keeps the latencies of the main root operations in narrow columns of time. Requests
//! count by their sampling weights, because thinning keeps all slow requests. The limit on
//! columns counts only those with requests, so that an idle hour does not blur the minutes around
//! it. The columns of a root operation are cut into blocks at pauses. The first search is for
//! [a change](stroboscope_analysis::statistics::last_change) of the latencies' ranks from block to
//! block. If there is none, the second search is for a change in the share of requests
//! that take at least the 95th percentile of all requests: a slowdown of a tenth of the requests
//! hardly changes the median. The third search is for a doubtful change of the ranks.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_analysis::statistics::{Block, ChangePoint, Scores, clearest_change, last_change};

use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, StudyInput};
use super::time_blocks::blocks;
use super::time_columns::{Limit, TimeColumns};

/// Maximum number of root operations that are searched.
const ROOTS_SEARCHED: usize = 3;
/// Maximum probability of a false alarm over all root operations together, except doubtful steps.
const FALSE_ALARMS_MAX: f64 = 0.03;
/// Maximum number of columns that contain requests.
const COLUMNS_MAX: usize = 512;
/// Minimum factor by which the median must change in the first search. Latencies drift by a tenth
/// in either direction without a cause.
const RATIO_MIN: f64 = 1.2;
/// Quantile that the second search examines, and that every step reports. In the second search, it
/// must change by a factor of at least [`TAIL_RATIO_MIN`].
const TAIL: f64 = 0.95;
const TAIL_RATIO_MIN: f64 = 1.5;
/// Minimum result of [`apart`] in the first search. If two kinds of requests share a root
/// operation, a small change of their mix may move the median from one kind to the other.
const APART_MIN: f64 = 0.6;
/// Minimum factor of the median and minimum result of [`apart`] for a doubtful step, which is
/// reported although it may be due to chance.
const DOUBTFUL: [f64; 2] = [1.5, 0.75];
/// Maximum p-value of a doubtful step.
const DOUBTFUL_P_MAX: f64 = 0.1;
/// Approximate size, in standard errors, from which a step is no false alarm, although the search
/// tries many instants.
const CLEAR_ERRORS: f64 = 4.0;
/// Bits of precision of a latency band. Latencies below 256 ns are exact. The width of other bands
/// is at most 1 / 2^7 of the latency, which is under 1 %.
const BAND_BITS: u32 = 7;

/// Instant, root operation and size of a latency change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LatencyStep {
    /// Root operation whose requests changed.
    pub root: String,
    /// Start of the time before the change: the start of the column with the first request, or the
    /// preceding change, in ns since the Unix epoch.
    pub before_from_ns: i64,
    /// Start of the first block of requests after the change, in ns since the Unix epoch.
    pub at_ns: i64,
    /// End of the column with the last request, in ns since the Unix epoch.
    pub until_ns: i64,
    /// Medians before and after, in ns.
    pub medians_ns: [u64; 2],
    /// 95th percentiles before and after, in ns.
    pub p95_ns: [u64; 2],
    /// Numbers of requests before and after.
    pub requests: [u64; 2],
    /// Probability of finding so clear a change if latency is constant.
    pub p_value: f64,
    /// Approximate number of requests, before and after together, that would show the step beyond
    /// chance; `None` if the recorded ones do.
    pub requests_needed: Option<u64>,
}

/// Asks for a step of latency of the main root operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepQuestion;

impl Question for StepQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = StepPass;
    type Answer = Option<LatencyStep>;

    fn what(&self) -> &'static str {
        "looking for a change of latency"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, studied: StudyInput<'a>, (): &'a ()) -> StepPass {
        let ranked = studied.inference.roots.ranked().into_iter();
        StepPass::of(ranked.take(ROOTS_SEARCHED).map(|(root, _)| root))
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: StepPass,
        _: Notes,
    ) -> Result<Option<LatencyStep>, QueryError> {
        Ok(paths.step())
    }
}

/// Number of requests by band of latency; an estimate if they have sampling weights.
type Bands = BTreeMap<u32, WeightedCount>;

/// Pass that collects the latencies of some root operations over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPass {
    roots: Vec<String>,
    /// Latencies by column of time, then by index of the root operation in `roots`.
    seen: TimeColumns<BTreeMap<usize, Bands>>,
}

impl StepPass {
    fn of<'a>(roots: impl Iterator<Item = &'a str>) -> Self {
        Self {
            roots: roots.map(str::to_owned).collect(),
            seen: TimeColumns::within(Limit::Occupied(COLUMNS_MAX)),
        }
    }

    fn see(&mut self, root: &str, start_ns: i64, latency_ns: u64, weight: Weight) {
        if let Some(place) = self.roots.iter().position(|known| known == root) {
            let bands = self.seen.at(start_ns).entry(place).or_default();
            bands.entry(band_of(latency_ns)).or_default().count(weight);
        }
    }

    /// Returns the step with the largest factor. A certain step precedes all doubtful ones. Returns
    /// `None` if no root operation has a step.
    fn step(self) -> Option<LatencyStep> {
        let shift = self.seen.shift;
        let mut of_roots = vec![Vec::new(); self.roots.len()];
        for (column, roots) in self.seen.columns {
            for (place, bands) in roots {
                of_roots[place].push((column, bands));
            }
        }
        let seen = of_roots.iter().filter(|columns| !columns.is_empty());
        // Each root operation is searched twice for a certain step.
        let p_max = FALSE_ALARMS_MAX / 2.0 / seen.count().max(1) as f64;
        let roots = self.roots.into_iter().zip(of_roots);
        let steps =
            roots.filter_map(|(root, columns)| Series::of(columns)?.step(root, shift, p_max));
        steps.max_by(|a, b| {
            let is_sure = |step: &LatencyStep| step.requests_needed.is_none();
            let by_size = a.size().total_cmp(&b.size());
            is_sure(a).cmp(&is_sure(b)).then(by_size)
        })
    }
}

impl LatencyStep {
    /// Returns the larger of the factors by which the median and the 95th percentile changed.
    fn size(&self) -> f64 {
        ratio(self.medians_ns).max(ratio(self.p95_ns))
    }

    /// Reports whether the 95th percentile changed by more than twice the factor of the median.
    #[must_use]
    pub fn is_of_tail(&self) -> bool {
        self.size() > 2.0 * ratio(self.medians_ns)
    }
}

impl Pass<TraceView<'_>> for StepPass {
    fn observe(&mut self, seen: &TraceView<'_>) {
        if !self.roots.is_empty() {
            self.see(
                &seen.records.root_name(),
                seen.trace.start_ns,
                seen.path.latency_ns,
                seen.weight(),
            );
        }
    }

    fn merge(&mut self, other: Self) {
        self.seen.merge(other.seen);
    }
}

/// Returns the band of a latency: its eight highest bits, and their position.
pub(super) fn band_of(ns: u64) -> u32 {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BAND_BITS + 1);
    (shift << (BAND_BITS + 1)) | (ns >> shift) as u32
}

/// Returns the middle of a band, in ns.
pub(super) fn ns_of(band: u32) -> u64 {
    let shift = band >> (BAND_BITS + 1);
    let lowest = u64::from(band & ((1 << (BAND_BITS + 1)) - 1)) << shift;
    lowest + ((1u64 << shift) >> 1)
}

fn count(bands: &Bands) -> WeightedCount {
    bands.values().copied().sum()
}

/// Returns the band of a quantile, above 0 and below 1. Returns 0 if there are no requests.
fn quantile_band(bands: &Bands, quantile: f64) -> u32 {
    let reached = count(bands).estimate() * quantile;
    let mut passed = 0.0;
    let band = bands.iter().find(|(_, requests)| {
        passed += requests.estimate();
        passed >= reached
    });
    band.map_or(0, |(band, _)| *band)
}

/// Returns the latency at a quantile in ns, as [`quantile_band`] does.
pub(super) fn quantile_ns(bands: &Bands, quantile: f64) -> u64 {
    ns_of(quantile_band(bands, quantile))
}

/// Returns the larger of two numbers divided by the smaller one; 0 counts as 1.
fn ratio([before, after]: [u64; 2]) -> f64 {
    let [before, after] = [before, after].map(|ns| ns.max(1) as f64);
    (after / before).max(before / after)
}

/// Returns the probability that a random later request takes longer than a random earlier one, or
/// the probability of the opposite, whichever is larger. Latencies in the same band count half for
/// either.
fn apart(before: &Bands, after: &Bands) -> f64 {
    let mut below = before.iter().peekable();
    let (mut passed, mut longer) = (0.0, 0.0);
    for (band, requests) in after {
        while let Some((_, less)) = below.next_if(|(other, _)| *other < band) {
            passed += less.estimate();
        }
        let equal = before.get(band).copied().unwrap_or_default().estimate();
        longer += requests.estimate() * (passed + equal / 2.0);
    }
    let longer = longer / (count(before).estimate() * count(after).estimate());
    longer.max(1.0 - longer)
}

/// Latencies of one root operation's requests, in order of time.
struct Series {
    /// Number of each column with requests, counted from the Unix epoch, and its latencies.
    columns: Vec<(i64, Bands)>,
    /// Range of columns of each block.
    blocks: Vec<Range<usize>>,
}

impl Series {
    /// Cuts columns into blocks. Returns `None` if there are no columns.
    fn of(columns: Vec<(i64, Bands)>) -> Option<Self> {
        let recorded = |bands: &Bands| count(bands).recorded();
        let counts: Vec<(i64, u64)> = columns.iter().map(|of| (of.0, recorded(&of.1))).collect();
        let blocks = blocks(&counts);
        (!columns.is_empty()).then_some(Self { columns, blocks })
    }

    /// Returns the latencies of all requests in a range of blocks.
    fn bands(&self, blocks: Range<usize>) -> Bands {
        let mut all = Bands::new();
        for block in &self.blocks[blocks] {
            for (_, bands) in &self.columns[block.clone()] {
                bands
                    .iter()
                    .for_each(|(band, requests)| *all.entry(*band).or_default() += *requests);
            }
        }
        all
    }

    /// Returns each block with the sum of its requests' ranks, times two. Ranks are among the
    /// requests of all blocks.
    fn ranked(&self) -> Vec<Block> {
        let mut passed = 0.0;
        let bands = self.bands(0..self.blocks.len()).into_iter();
        let of_band = bands.map(|(band, requests)| {
            let rank = 2.0 * passed + requests.estimate() + 1.0;
            passed += requests.estimate();
            (band, rank)
        });
        let ranks: BTreeMap<u32, f64> = of_band.collect();
        let ranked = |at: usize| {
            let bands = self.bands(at..at + 1);
            let scores = bands.iter();
            let scores = scores.map(|(band, requests)| requests.estimate() * ranks[band]);
            Block {
                values: count(&bands).estimate(),
                scores: scores.sum(),
            }
        };
        (0..self.blocks.len()).map(ranked).collect()
    }

    fn differ(
        &self,
        before: Range<usize>,
        after: Range<usize>,
        [ratio_min, apart_min]: [f64; 2],
    ) -> bool {
        let sides = [before, after].map(|side| self.bands(side));
        let medians_ns = sides.each_ref().map(|side| quantile_ns(side, 0.5));
        ratio(medians_ns) >= ratio_min && apart(&sides[0], &sides[1]) >= apart_min
    }

    fn step(&self, root: String, shift: u32, p_max: f64) -> Option<LatencyStep> {
        let ranked = self.ranked();
        let matters = |before, after| self.differ(before, after, [RATIO_MIN, APART_MIN]);
        if let Some(change) = last_change(&ranked, Scores::Ranks, p_max, matters) {
            return Some(self.step_at(root, shift, change));
        }
        if let Some(change) = self.change_of_tail(p_max) {
            return Some(self.step_at(root, shift, change));
        }
        let change = clearest_change(&ranked, Scores::Ranks, DOUBTFUL_P_MAX)?;
        if !self.differ(0..change.at, change.at..ranked.len(), DOUBTFUL) {
            return None;
        }
        let mut step = self.step_at(root, shift, change);
        // Errors shrink with the square root of the number of requests, so the square of the step
        // in standard errors grows in proportion to that number.
        let all = count(&self.bands(0..ranked.len()));
        let (requests, effective) = (all.estimate(), all.effective());
        let errors_square = 3.0 * change.square * effective / (requests * requests - 1.0);
        let times = CLEAR_ERRORS * CLEAR_ERRORS / errors_square;
        step.requests_needed = Some((requests * times.max(1.0)).ceil() as u64);
        Some(step)
    }

    /// Finds a change of the share of requests that take at least the 95th percentile of all
    /// requests.
    fn change_of_tail(&self, p_max: f64) -> Option<ChangePoint> {
        let limit = quantile_band(&self.bands(0..self.blocks.len()), TAIL);
        let outcomes = |at: usize| {
            let bands = self.bands(at..at + 1);
            let slow = bands
                .range(limit..)
                .map(|(_, requests)| requests.estimate());
            Block {
                values: count(&bands).estimate(),
                scores: slow.sum(),
            }
        };
        let outcomes: Vec<Block> = (0..self.blocks.len()).map(outcomes).collect();
        last_change(&outcomes, Scores::Outcomes, p_max, |before, after| {
            let sides = [before, after].map(|side| quantile_ns(&self.bands(side), TAIL));
            ratio(sides) >= TAIL_RATIO_MIN
        })
    }

    fn step_at(&self, root: String, shift: u32, change: ChangePoint) -> LatencyStep {
        let begin_ns = |block: usize| self.columns[self.blocks[block].start].0 << shift;
        let sides =
            [change.from..change.at, change.at..self.blocks.len()].map(|side| self.bands(side));
        let last = self.columns.last().map_or(0, |(column, _)| *column);
        LatencyStep {
            root,
            before_from_ns: begin_ns(change.from),
            at_ns: begin_ns(change.at),
            until_ns: last.saturating_add(1) << shift,
            medians_ns: sides.each_ref().map(|side| quantile_ns(side, 0.5)),
            p95_ns: sides.each_ref().map(|side| quantile_ns(side, TAIL)),
            requests: sides.each_ref().map(|side| count(side).rounded()),
            p_value: change.p_value,
            requests_needed: None,
        }
    }
}

#[cfg(test)]
mod tests;
