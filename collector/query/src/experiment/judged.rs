//! Statistical judgement of the gathered requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stroboscope_analysis::experiment::{
    Experiment, ExperimentRequest, LeftOutTime, Metric, Noise, TimedRequest, noise, one_offs,
};
use stroboscope_analysis::statistics::benjamini_hochberg;

use super::balance::{LoadBalance, UserBalance, mix};
use super::gathered::{PartRequests, SeenRequest};
use super::{ComparedMetric, ComparedPart, ExperimentReport, ExperimentSettings};
use crate::notes::Notes;

/// Maximum number of root operations that are compared separately. Those with the most requests are
/// chosen.
const OPERATIONS_MAX: usize = 8;
/// Maximum number of equal blocks of time that replace bursts if fewer than two bursts were
/// recorded.
const BLOCKS: i64 = 200;
const HOUR_NS: i64 = 3_600_000_000_000;
/// Hours of a week. The week begins on a Thursday, like the Unix epoch, which does not matter here.
const HOURS_OF_WEEK: i64 = 168;

/// Metrics that are compared, and whose noise is measured.
const METRICS: [Metric; 4] = [
    Metric::Mean,
    Metric::Quantile(0.5),
    Metric::Quantile(0.95),
    Metric::Quantile(0.99),
];
/// Metrics that are compared for each hour.
const METRICS_OF_HOUR: [Metric; 2] = [Metric::Mean, Metric::Quantile(0.5)];

impl PartRequests {
    pub(super) fn judge(
        mut self,
        settings: &ExperimentSettings,
        bursts: &[(i64, i64)],
        notes: Notes,
    ) -> ExperimentReport {
        // `number_bursts` and `covered` take the first and the last request.
        self.seen
            .sort_unstable_by_key(|seen| (seen.at_ns, seen.observed.unit));
        let is_of_bursts = bursts.len() > 1;
        self.number_bursts(if is_of_bursts { bursts } else { &[] });
        let equal = self.take_equal(settings);
        let (covered_ns, hours_of_week) = self.covered();
        let left_out = self.leave_out();
        let all = Experiment::new(self.seen.iter().map(|seen| seen.observed));
        let roots = self.frequent_roots();
        let mut metrics: Vec<ComparedMetric> =
            compared(&all, &ComparedPart::All, &METRICS, settings.alpha).collect();
        if roots.len() > 1 {
            for root in &roots {
                let own = self.seen.iter().filter(|seen| seen.root == *root);
                let own = Experiment::new(own.map(|seen| seen.observed));
                let part = ComparedPart::Root(self.roots[*root as usize].clone());
                metrics.extend(compared(&own, &part, &METRICS, settings.alpha));
            }
        }
        correct(&mut metrics);
        let is_unit_known = settings.unit.is_some();
        let share = settings.share.filter(|_| is_unit_known);
        ExperimentReport {
            requests: all.requests(),
            units: all.units(),
            bursts: all.bursts(),
            is_of_bursts,
            covered_ns,
            hours_of_week,
            metrics,
            hours: self.hours(settings.alpha),
            noise: self.noise(&equal),
            equal: {
                let part = ComparedPart::Equal;
                let equal = Experiment::new(equal.iter().map(|seen| seen.observed));
                let mut found: Vec<_> = match settings.equal.is_some() {
                    true => compared(&equal, &part, &METRICS, settings.alpha).collect(),
                    false => Vec::new(),
                };
                correct(&mut found);
                found
            },
            users: share.map(|share| UserBalance::of(all.units(), share)),
            load: is_unit_known.then(|| LoadBalance::of(&self.seen)).flatten(),
            mix: mix(&self.seen, &self.roots, &roots, all.requests()),
            left_out,
            of_no_side: self.of_no_side,
            of_several: self.of_several,
            without_unit: self.without_unit.iter().sum(),
            notes,
        }
    }

    /// Assigns each request to the last recorded burst that opened by its start; without bursts, to
    /// one of at most [`BLOCKS`] equal blocks of time.
    fn number_bursts(&mut self, bursts: &[(i64, i64)]) {
        let first_ns = self.seen.first().map_or(0, |seen| seen.at_ns);
        let last_ns = self.seen.last().map_or(0, |seen| seen.at_ns);
        let block_ns = (last_ns.saturating_sub(first_ns) / BLOCKS).saturating_add(1);
        for seen in &mut self.seen {
            seen.observed.burst = match bursts.is_empty() {
                false => bursts.partition_point(|(open_ns, _)| *open_ns <= seen.at_ns) as u64,
                true => (seen.at_ns.saturating_sub(first_ns) / block_ns).unsigned_abs(),
            };
        }
    }

    /// Removes and returns the requests that began while both sides were treated alike.
    fn take_equal(&mut self, settings: &ExperimentSettings) -> Vec<SeenRequest> {
        let Some(range) = settings.equal else {
            return Vec::new();
        };
        let (equal, rest) = std::mem::take(&mut self.seen)
            .into_iter()
            .partition(|seen| range.contains(seen.at_ns));
        self.seen = rest;
        equal
    }

    /// Returns the time from the first request's start to the last one's in ns, and the number of
    /// hours of the week in which requests of both sides began.
    fn covered(&self) -> (u64, usize) {
        let first_ns = self.seen.first().map_or(0, |seen| seen.at_ns);
        let last_ns = self.seen.last().map_or(0, |seen| seen.at_ns);
        let of = |is_test: bool| -> BTreeSet<i64> {
            let own = |seen: &&SeenRequest| seen.observed.is_test == is_test;
            let hour =
                |seen: &SeenRequest| seen.at_ns.div_euclid(HOUR_NS).rem_euclid(HOURS_OF_WEEK);
            self.seen.iter().filter(own).map(hour).collect()
        };
        let both = of(true).intersection(&of(false)).count();
        (last_ns.saturating_sub(first_ns).unsigned_abs(), both)
    }

    fn leave_out(&mut self) -> Vec<LeftOutTime> {
        let timed = self.seen.iter().map(|seen| TimedRequest {
            at_ns: seen.at_ns,
            operation: seen.root,
            observed: seen.observed,
        });
        let left_out = one_offs(&timed.collect::<Vec<_>>());
        let is_in = |at_ns: i64| {
            let of = |time: &LeftOutTime| time.from_ns <= at_ns && at_ns < time.to_ns;
            left_out.iter().any(of)
        };
        self.seen.retain(|seen| !is_in(seen.at_ns));
        left_out
    }

    fn frequent_roots(&self) -> Vec<u32> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for seen in &self.seen {
            *counts.entry(seen.root).or_default() += 1;
        }
        let mut roots: Vec<(usize, u32)> = counts.into_iter().map(|(root, n)| (n, root)).collect();
        roots.sort_unstable_by(|a, b| b.cmp(a));
        roots.truncate(OPERATIONS_MAX);
        roots.into_iter().map(|(_, root)| root).collect()
    }

    /// Returns the metrics by hour of the day; empty if all requests are of one hour. A change may
    /// add latency only in the hours with high load.
    fn hours(&self, alpha: f64) -> Vec<ComparedMetric> {
        let mut by_hour: BTreeMap<u8, Vec<ExperimentRequest>> = BTreeMap::new();
        for seen in &self.seen {
            let hour = seen.at_ns.div_euclid(HOUR_NS).rem_euclid(24);
            by_hour.entry(hour as u8).or_default().push(seen.observed);
        }
        if by_hour.len() < 2 {
            return Vec::new();
        }
        let mut hours = Vec::new();
        for (hour, requests) in by_hour {
            let own = Experiment::new(requests);
            let part = ComparedPart::Hour(hour);
            hours.extend(compared(&own, &part, &METRICS_OF_HOUR, alpha));
        }
        correct(&mut hours);
        hours
    }

    /// Returns the noise measured while both sides were treated alike. Without such requests,
    /// returns the noise within the control.
    fn noise(&self, equal: &[SeenRequest]) -> Vec<Noise> {
        let found = match equal.is_empty() {
            false => noise(equal.iter().map(|seen| seen.observed), &METRICS),
            true => {
                let control = self.seen.iter().filter(|seen| !seen.observed.is_test);
                noise(control.map(|seen| seen.observed), &METRICS)
            }
        };
        found.into_iter().flatten().collect()
    }
}

fn compared(
    requests: &Experiment,
    of: &ComparedPart,
    metrics: &'static [Metric],
    alpha: f64,
) -> impl Iterator<Item = ComparedMetric> {
    metrics.iter().map(move |metric| ComparedMetric {
        of: of.clone(),
        metric: *metric,
        effect: requests.effect(*metric, alpha),
        q_value: None,
    })
}

/// Corrects the p-values for the number of metrics (Benjamini and Hochberg), because each
/// comparison is a further chance of a false positive.
fn correct(metrics: &mut [ComparedMetric]) {
    let effects = metrics.iter().filter_map(|of| of.effect.as_ref().ok());
    let p_values: Vec<f64> = effects.map(|effect| effect.p_value).collect();
    let answered = metrics.iter_mut().filter(|of| of.effect.is_ok());
    for (of, q_value) in answered.zip(benjamini_hochberg(&p_values)) {
        of.q_value = Some(q_value);
    }
}
