//! A step in time: since when requests take longer than before, or less long.
//!
//! Of the root operations with the most time, latencies are kept by the columns of time that the heatmap has; the medians
//! of these are the series in which [a change](stroboscope_analysis::statistics::last_change) is looked for.

use std::collections::BTreeMap;

use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::statistics::last_change;

use super::notes::Notes;
use super::query_error::QueryError;
use super::study::{Question, Studied};
use super::time_columns::{OfColumn as _, TimeColumns};

/// So many root operations are looked at.
const ROOTS_LOOKED_AT: usize = 3;
/// The probability of a false alarm, of all of them together.
const FALSE_ALARMS_MAX: f64 = 0.005;
/// Windows have so many requests at least: columns are put together until they do.
const WINDOW_REQUESTS_MIN: u64 = 8;
/// A median that is less than a tenth off is nothing to talk about, whatever the test says,
const RATIO_MIN: f64 = 1.1;
/// nor is one where a later window is often as an earlier one.
const APART_MIN: f64 = 0.75;
/// Latencies are told apart to one in 2 to this power, under a percent.
const BAND_BITS: u32 = 7;

/// Since when, of what, and how much.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyStep {
    /// The root operation whose requests changed.
    pub root: String,
    /// When what it is compared with began: the first request, or the change before this one; ns since the Unix epoch.
    pub before_from_ns: i64,
    /// When it changed, to a column of the heatmap or a few.
    pub at_ns: i64,
    /// After the last request.
    pub until_ns: i64,
    /// The medians before and after, ns.
    pub medians_ns: [u64; 2],
    /// Requests before and after.
    pub requests: [u64; 2],
    /// How likely a change as clear is anywhere where there is none.
    pub p_value: f64,
}

/// Since when do requests take as long as they do?
#[derive(Clone, Copy, Debug, Default)]
pub struct StepQuestion;

impl Question for StepQuestion {
    type Records = ();
    type Prepared = ();
    type Paths<'a> = StepPass;
    type Answer = Option<LatencyStep>;

    fn what(&self) -> &'static str {
        "looking for a change of latency"
    }

    fn records(&self) {}

    fn prepare(&self, _: Studied<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, studied: Studied<'a>, (): &'a ()) -> StepPass {
        let ranked = studied.inference.roots.ranked().into_iter();
        StepPass::of(ranked.take(ROOTS_LOOKED_AT).map(|(root, _)| root))
    }

    fn answer(
        &self,
        _: Studied<'_>,
        (): &(),
        paths: StepPass,
        _: Notes,
    ) -> Result<Option<LatencyStep>, QueryError> {
        Ok(paths.step())
    }
}

/// Requests by how long they took.
type Bands = BTreeMap<u32, u64>;

/// What requests have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPass {
    roots: Vec<String>,
    /// By the root's place; columns are those of the heatmap.
    seen: TimeColumns<BTreeMap<usize, Bands>>,
}

impl StepPass {
    fn of<'a>(roots: impl Iterator<Item = &'a str>) -> Self {
        Self {
            roots: roots.map(str::to_owned).collect(),
            seen: TimeColumns::default(),
        }
    }

    fn see(&mut self, root: &str, start_ns: i64, latency_ns: u64) {
        if let Some(place) = self.roots.iter().position(|known| known == root) {
            let bands = self.seen.at(start_ns).entry(place).or_default();
            *bands.entry(band_of(latency_ns)).or_default() += 1;
        }
    }

    /// The step that is the largest for its operation; `None` where none is sure.
    fn step(self) -> Option<LatencyStep> {
        let shift = self.seen.shift;
        let mut of_roots = vec![BTreeMap::new(); self.roots.len()];
        for (column, roots) in self.seen.columns {
            for (place, bands) in roots {
                of_roots[place].insert(column, bands);
            }
        }
        let seen = of_roots.iter().filter(|columns| !columns.is_empty());
        let p_max = FALSE_ALARMS_MAX / seen.count().max(1) as f64;
        let roots = self.roots.into_iter().zip(of_roots);
        let steps = roots.filter_map(|(root, columns)| step_of(root, columns, shift, p_max));
        steps.max_by(|a, b| a.size().total_cmp(&b.size()))
    }
}

impl LatencyStep {
    /// How many times as long, or as short.
    fn size(&self) -> f64 {
        let [before, after] = self.medians_ns.map(|ns| ns.max(1) as f64);
        (after / before).max(before / after)
    }
}

impl Pass<TraceView<'_>> for StepPass {
    fn observe(&mut self, seen: &TraceView<'_>) {
        if !self.roots.is_empty() {
            self.see(
                &seen.records.root_name(),
                seen.trace.start_ns,
                seen.path.latency_ns,
            );
        }
    }

    fn merge(&mut self, other: Self) {
        self.seen.merge(other.seen);
    }
}

/// The highest bits of a number, and where they stand.
fn band_of(ns: u64) -> u32 {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BAND_BITS + 1);
    (shift << (BAND_BITS + 1)) | (ns >> shift) as u32
}

/// The middle of what is in a band.
fn ns_of(band: u32) -> u64 {
    let shift = band >> (BAND_BITS + 1);
    let lowest = u64::from(band & ((1 << (BAND_BITS + 1)) - 1)) << shift;
    lowest + ((1u64 << shift) >> 1)
}

fn count(bands: &Bands) -> u64 {
    bands.values().sum()
}

fn median_ns(bands: &Bands) -> u64 {
    let half = count(bands).div_ceil(2);
    let mut passed = 0;
    let band = bands.iter().find(|(_, requests)| {
        passed += **requests;
        passed >= half
    });
    band.map_or(0, |(band, _)| ns_of(*band))
}

/// Columns that were put together, by where they begin.
fn windows(columns: BTreeMap<i64, Bands>) -> Vec<(i64, Bands)> {
    let mut windows: Vec<(i64, Bands)> = Vec::new();
    for (column, bands) in columns {
        match windows.last_mut() {
            Some((_, open)) if count(open) < WINDOW_REQUESTS_MIN => open.take_in(bands),
            _ => windows.push((column, bands)),
        }
    }
    // What remains is too little for one of its own.
    if let Some((_, rest)) = windows.pop_if(|(_, last)| count(last) < WINDOW_REQUESTS_MIN)
        && let Some((_, last)) = windows.last_mut()
    {
        last.take_in(rest);
    }
    windows
}

fn step_of(
    root: String,
    columns: BTreeMap<i64, Bands>,
    shift: u32,
    p_max: f64,
) -> Option<LatencyStep> {
    let until_ns = (*columns.last_key_value()?.0).saturating_add(1) << shift;
    let windows = windows(columns);
    let medians: Vec<f64> = windows
        .iter()
        .map(|(_, bands)| median_ns(bands) as f64)
        .collect();
    let change = last_change(&medians, p_max)?;
    let sum = |windows: &[(i64, Bands)]| {
        let mut all = Bands::new();
        windows
            .iter()
            .for_each(|(_, bands)| all.take_in(bands.clone()));
        all
    };
    let sides = [&windows[change.from..change.at], &windows[change.at..]].map(sum);
    let step = LatencyStep {
        root,
        before_from_ns: windows[change.from].0 << shift,
        at_ns: windows[change.at].0 << shift,
        until_ns,
        medians_ns: [median_ns(&sides[0]), median_ns(&sides[1])],
        requests: [count(&sides[0]), count(&sides[1])],
        p_value: change.p_value,
    };
    let is_apart = change.larger.max(1.0 - change.larger) >= APART_MIN;
    (is_apart && step.size() >= RATIO_MIN).then_some(step)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        /// Of latencies as they are: most about the same, some much longer.
        fn latency_ns(&mut self, median_ms: f64) -> u64 {
            let (a, b) = (self.uniform(), self.uniform());
            let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
            (median_ms * 1e6 * (normal * 0.5).exp()) as u64
        }
    }

    /// Ten minutes of requests, a few each second, whose median is what `median_ms` says at that second.
    fn requests(noise: &mut Noise, median_ms: impl Fn(i64) -> f64) -> StepPass {
        let mut pass = StepPass::of(["web:home"].into_iter());
        for second in 0..600 {
            for _ in 0..(noise.uniform() * 4.0) as u32 {
                let at_ns = second * SECOND + (noise.uniform() * 1e9) as i64;
                pass.see("web:home", at_ns, noise.latency_ns(median_ms(second)));
                pass.see("other:job", at_ns, 7);
            }
        }
        pass
    }

    #[test]
    fn bands_are_less_than_a_percent_wide() {
        for ns in [0, 1, 255, 256, 1_000, 68_123_456, 150_000_000, u64::MAX] {
            let back = ns_of(band_of(ns));
            assert!(back.abs_diff(ns) <= ns / 256, "{ns} {back}");
        }
        assert!((1..10_000u64).is_sorted_by_key(band_of_each));
    }

    fn band_of_each(ns: u64) -> u32 {
        band_of(ns)
    }

    #[test]
    fn a_step_is_said_with_its_time_and_both_medians() {
        let mut noise = Noise(99);
        let pass = requests(&mut noise, |second| if second < 430 { 68.0 } else { 150.0 });
        let step = pass.step().unwrap();
        assert_eq!(step.root, "web:home");
        assert!((step.at_ns - 430 * SECOND).abs() < 12 * SECOND, "{step:?}");
        let [before, after] = step.medians_ns.map(|ns| ns as f64 / 1e6);
        assert!(
            (before - 68.0).abs() < 5.0 && (after - 150.0).abs() < 15.0,
            "{step:?}"
        );
        assert!(step.before_from_ns <= 0 && step.until_ns >= 599 * SECOND);
        assert!(step.requests.iter().all(|requests| *requests > 100));
        // After an hour of trouble that is over, it is said that it is over, beside the trouble.
        let pass = requests(&mut noise, |second| {
            if (200..400).contains(&second) {
                150.0
            } else {
                68.0
            }
        });
        let step = pass.step().unwrap();
        assert!((step.at_ns - 400 * SECOND).abs() < 12 * SECOND, "{step:?}");
        assert!(
            (step.before_from_ns - 200 * SECOND).abs() < 12 * SECOND,
            "{step:?}"
        );
        assert!(step.medians_ns[0] > step.medians_ns[1]);
    }

    #[test]
    fn where_nothing_changed_nothing_is_said() {
        let mut noise = Noise(4_321);
        let said = (0..100)
            .filter(|_| requests(&mut noise, |_| 68.0).step().is_some())
            .count();
        assert!(said <= 1, "{said}");
        assert_eq!(StepPass::of(["a"].into_iter()).step(), None);
        // A twentieth more is found by the test, and is not worth a headline.
        let more = requests(&mut noise, |second| if second < 300 { 68.0 } else { 70.0 });
        assert_eq!(more.step(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn in_any_order_and_in_parts_it_is_the_same(
            requests in proptest::collection::vec((0usize..3, prop_oneof![0i64..1 << 30, 0i64..1 << 50], 0u64..1 << 40), 0..60),
            cut in 0usize..60,
        ) {
            let pass = |some: &[(usize, i64, u64)]| {
                let mut pass = StepPass::of(["a", "b"].into_iter());
                some.iter().for_each(|(root, start, latency)| pass.see(["a", "b", "c"][*root], *start, *latency));
                pass
            };
            let (before, after) = requests.split_at(cut.min(requests.len()));
            let mut merged = pass(after);
            merged.merge(pass(before));
            prop_assert_eq!(&merged, &pass(&requests));
            let known: u64 = merged.seen.columns.values().flat_map(BTreeMap::values).map(count).sum();
            prop_assert_eq!(known, requests.iter().filter(|(root, ..)| *root < 2).count() as u64);
        }
    }
}
