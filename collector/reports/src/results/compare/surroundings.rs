//! Changes that are no cause in a service: the mix and rate of requests, and their variation.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::compare::{Comparison, Environment, Variation, VariationChange};
use stroboscope_analysis::flow::{PeriodFlows, RootFlows};

use super::{PeriodSummary, REQUESTS_MIN, interval_text};
use crate::regression::Rise;
use stroboscope_render::humanise::{counted, duration, percent};

/// A root operation, its share of the requests, and the effect of the causes on it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct MixRow {
    pub(super) root: String,
    pub(super) before: f64,
    pub(super) after: f64,
    /// Mean latency of the earlier requests, in ns; null if there are none.
    pub(super) mean_before_ns: Option<f64>,
    /// Change of the mean latency of these requests by causes, in ns. Leaves out causes whose
    /// structure begins or ends within a period. If times changed, leaves out the part that a few
    /// slow requests make up.
    pub(super) caused_ns: f64,
    /// q-value of the cause that adds most to `caused_ns`; null if no cause adds to it.
    pub(super) q_value: Option<f64>,
    /// Lower end of the 95 % confidence interval of the change of the mean latency, in ns, as if
    /// requests were independent; null with fewer than 20 recorded requests in a period, or if
    /// their weights are so unequal that they count as fewer than two.
    pub(super) change_low_ns: Option<f64>,
    /// Upper end of that interval.
    pub(super) change_high_ns: Option<f64>,
    /// Numbers of recorded requests, before and after.
    #[serde(skip)]
    pub(super) recorded: [u64; 2],
}

impl MixRow {
    pub(super) fn all(of: &Comparison, flows: [&PeriodFlows; 2]) -> Vec<Self> {
        let row = |(root, [before, after]): &(String, [f64; 2])| {
            // A structure that begins or ends within a period is no proof of a rise.
            let causes = of.causes.iter();
            let steady = causes.filter(|cause| cause.changed_within.is_none());
            let effects = steady.filter_map(|cause| {
                let effect_ns = cause.by_root_ns.get(root)?;
                Some((*effect_ns, cause.q_value))
            });
            let effects: Vec<(f64, f64)> = effects.collect();
            let rises = effects.iter().filter(|(effect_ns, _)| *effect_ns > 0.0);
            let largest = rises.max_by(|a, b| a.0.total_cmp(&b.0));
            let flows = flows.map(|period| period.roots.get(root));
            let recorded = flows.map(|flows| flows.map_or(0, RootFlows::requests));
            let is_enough = recorded.iter().all(|requests| *requests >= REQUESTS_MIN);
            let both = flows[0].zip(flows[1]).filter(|_| is_enough);
            let interval_ns = both
                .map(|(before, after)| before.change_interval_ns(after))
                .filter(|[low_ns, _]| low_ns.is_finite());
            Self {
                root: root.clone(),
                before: *before,
                after: *after,
                mean_before_ns: flows[0].map(RootFlows::mean_ns),
                // The sum of no numbers would be -0.
                caused_ns: effects
                    .iter()
                    .fold(0.0, |sum, (effect_ns, _)| sum + effect_ns),
                q_value: largest.map(|(_, q_value)| *q_value),
                change_low_ns: interval_ns.map(|[low_ns, _]| low_ns),
                change_high_ns: interval_ns.map(|[_, high_ns]| high_ns),
                recorded,
            }
        };
        let mut rows: Vec<Self> = of.roots.iter().map(row).collect();
        rows.sort_by(|a, b| {
            let by_size = b.change().abs().total_cmp(&a.change().abs());
            by_size.then_with(|| a.root.cmp(&b.root))
        });
        rows
    }

    fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Returns the rise of the mean latency by causes, if there is one and the earlier mean is
    /// above 0.
    pub(super) fn rise(&self) -> Option<Rise> {
        let mean_ns = self.mean_before_ns.filter(|mean_ns| *mean_ns > 0.0)?;
        let q_value = self.q_value?;
        (self.caused_ns > 0.0).then(|| Rise {
            metric: "mean".to_owned(),
            of: self.root.clone(),
            by: self.caused_ns / mean_ns,
            q_value,
        })
    }

    /// Describes the difference of the mean latency if its 95 % interval excludes changes of up to
    /// a twentieth.
    pub(super) fn mean_difference(&self) -> Option<String> {
        let ends_ns = self.change_low_ns.zip(self.change_high_ns)?;
        let nearest_ns = ends_ns.0.max(-ends_ns.1);
        (nearest_ns > DIFFERENCE_MIN * self.mean_before_ns?).then(|| {
            format!(
                "the mean of {} differs by {} (95 % interval, as if requests were independent), which also happens if \
                 kinds of requests come in turns or requests of a burst are alike",
                self.root,
                interval_text(ends_ns)
            )
        })
    }

    /// Reports whether both periods have requests, and at least one has enough to judge.
    pub(super) fn is_judged(&self) -> bool {
        let [before, after] = self.recorded;
        before.min(after) > 0 && before.max(after) >= REQUESTS_MIN
    }

    /// Returns the reason why the requests cannot exclude a rise of the mean latency by `worse_by`;
    /// `None` if they can, if a period has none, if both have too few to judge, or if both have
    /// enough and the earlier mean is 0.
    pub(super) fn doubt(&self, worse_by: f64) -> Option<String> {
        if !self.is_judged() {
            return None;
        }
        let fewest = self.recorded[0].min(self.recorded[1]);
        if fewest < REQUESTS_MIN {
            let requests = counted(fewest, "request");
            return Some(format!(
                "{} has {requests} in a period, and {REQUESTS_MIN} are needed",
                self.root
            ));
        }
        let mean_ns = self.mean_before_ns.filter(|mean_ns| *mean_ns > 0.0)?;
        let Some((low_ns, high_ns)) = self.change_low_ns.zip(self.change_high_ns) else {
            return Some(format!(
                "the weights of the requests of {} are too unequal to judge its mean latency",
                self.root
            ));
        };
        let [low, high] = [low_ns, high_ns].map(|ns| ns / mean_ns);
        (high >= worse_by).then(|| {
            format!(
                "the mean latency of {} changed by {} to {} (95% interval), and the limit is {}",
                self.root,
                percent(low),
                percent(high),
                percent(worse_by)
            )
        })
    }
}

/// Variation of latency, measured by C² (variance divided by the squared mean), within categories
/// with over ten requests. Their root operations have requests in both periods.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct VariationSays {
    before: VariationOf,
    after: VariationOf,
    /// Probability that chance alone makes the periods' C² differ this much; null if a period has
    /// no C².
    p_value: Option<f64>,
    changes: Vec<VariationRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct VariationOf {
    categories: u64,
    /// Share of categories with C² below 1.
    low: Option<f64>,
    median: Option<f64>,
    most: Option<f64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct VariationRow {
    root: String,
    category: String,
    before: f64,
    after: f64,
    q_value: f64,
}

impl VariationSays {
    pub(super) fn of(of: &Variation) -> Self {
        let period = |at: usize| VariationOf {
            categories: of.squared[at].len() as u64,
            low: of.low(at),
            median: of.squared[at].get(of.squared[at].len() / 2).copied(),
            most: of.squared[at].last().copied(),
        };
        let row = |change: &VariationChange| VariationRow {
            root: change.root.clone(),
            category: change.category.to_string(),
            before: change.squared[0],
            after: change.squared[1],
            q_value: change.q_value,
        };
        Self {
            before: period(0),
            after: period(1),
            p_value: of.p_value,
            changes: of.changes.iter().map(row).collect(),
        }
    }

    /// Describes the variation; `None` if a period has no C².
    pub(super) fn sentence(&self) -> Option<String> {
        let (old, new) = (self.before.median?, self.after.median?);
        let many = self.changes.len();
        let changes = match self.changes.first() {
            None => "it changed by no more than chance".to_owned(),
            Some(first) => format!(
                "it changed in {many} of them by more than chance, in the largest from {:.2} to {:.2}",
                first.before, first.after
            ),
        };
        Some(format!(
            "Latency varies within categories of requests by {old:.2} before and {new:.2} after (variance/mean², the median of the \
             categories); {changes}."
        ))
    }
}

/// Minimum factor by which the rate of requests must change to be mentioned. Also the maximum ratio
/// of a change of the time between requests to that of the latency, if clients wait for answers.
const RATE_MIN: f64 = 1.25;
/// Minimum change of a root operation's share of requests, 0 to 1, to be mentioned.
const MIX_MIN: f64 = 0.05;
/// Share of the earlier mean latency that a change without a cause must exceed to be stated. The
/// end of its 95 % interval that is nearest to zero counts.
const DIFFERENCE_MIN: f64 = 0.05;

/// Describes differences that are no causes: factors by which the times in all services changed,
/// the rate of requests, and their mix.
pub(super) fn surroundings(
    [old, new]: [&PeriodSummary; 2],
    mix: &[MixRow],
    environment: Option<&Environment>,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(environment) = environment.filter(|environment| environment.within > 0) {
        let [low, high] =
            [-1.0, 1.0].map(|sign| environment.factor * (sign * environment.spread).exp());
        found.push(format!(
            "Places of all services changed, two thirds of them by factors from {low:.2} to {high:.2}, as machines and load do; {} that \
             did no more than that {} not among the causes.",
            environment.within,
            if environment.within == 1 { "is" } else { "are" }
        ));
    }
    if let (Some(before), Some(after)) = (old.inter_arrival_mean_ns, new.inter_arrival_mean_ns)
        && before > 0.0
        && after > 0.0
        && (before / after).max(after / before) >= RATE_MIN
    {
        found.push(arrivals_text([before, after], [old.mean_ns, new.mean_ns]));
    }
    for row in mix.iter().filter(|row| row.change().abs() >= MIX_MIN) {
        found.push(format!(
            "{} is asked for in {:.0} % of the requests instead of {:.0} %.",
            row.root,
            100.0 * row.after,
            100.0 * row.before
        ));
    }
    found
}

/// Describes a changed mean time between requests, before and after, given the mean latencies.
///
/// Clients that wait for each answer send more often if answers come sooner. With n clients, the
/// time between requests changes by an n-th of the change of the latency. So such clients do not
/// explain a change larger than the latency's, or one in the other direction.
fn arrivals_text([before, after]: [f64; 2], latencies_ns: [f64; 2]) -> String {
    let shares = (after - before) / (latencies_ns[1] - latencies_ns[0]);
    // Both means are estimates, and clients also spend time outside of the recorded requests.
    let may_wait = shares > 0.0 && shares <= RATE_MIN;
    format!(
        "Requests come every {} instead of every {}: {}what sends them has changed.",
        duration(after),
        duration(before),
        if may_wait {
            "either clients wait for each answer, and the latency sets their rate, or "
        } else {
            ""
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: usize = 2_000;

    /// Returns noise between 0.5 and 1.5.
    fn noise(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        0.5 + (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the mean time between requests, and the mean latency. Each client waits for an
    /// answer, and then for `pause_ns`.
    fn closed_loop(seed: u64, clients: usize, latency_ns: f64, pause_ns: f64) -> [f64; 2] {
        let mut state = seed;
        let mut next_ns: Vec<f64> = vec![0.0; clients];
        let (mut last_ns, mut sum_ns) = (0.0, 0.0);
        for _ in 0..REQUESTS {
            let first = (0..clients).min_by(|a, b| next_ns[*a].total_cmp(&next_ns[*b]));
            let client = &mut next_ns[first.expect("a client")];
            last_ns = *client;
            let took_ns = latency_ns * noise(&mut state);
            sum_ns += took_ns;
            *client += took_ns + pause_ns * noise(&mut state);
        }
        [last_ns, sum_ns].map(|ns| ns / REQUESTS as f64)
    }

    /// Returns both means for requests that are sent without waiting.
    fn open_loop(seed: u64, gap_ns: f64, latency_ns: f64) -> [f64; 2] {
        let mut state = seed;
        let mut mean = |ns: f64| {
            let all: f64 = (0..REQUESTS).map(|_| ns * noise(&mut state)).sum();
            all / REQUESTS as f64
        };
        [mean(gap_ns), mean(latency_ns)]
    }

    #[test]
    fn clients_that_wait_are_one_reading() {
        let says_waits = |before: [f64; 2], after: [f64; 2]| {
            let text = arrivals_text([before[0], after[0]], [before[1], after[1]]);
            assert!(text.ends_with("what sends them has changed."), "{text}");
            text.contains("clients wait for each answer")
        };
        for seed in 1..=20 {
            for clients in [1, 3, 10] {
                for pause_ns in [0.0, 1e6, 20e6] {
                    let [slow, fast] = [(seed, 40e6), (seed + 100, 15e6)]
                        .map(|(seed, ns)| closed_loop(seed, clients, ns, pause_ns));
                    assert!(says_waits(slow, fast), "{clients} clients, seed {seed}");
                    assert!(says_waits(fast, slow), "{clients} clients, seed {seed}");
                }
            }
            // More requests make the service slower.
            let [few, many] = [(seed, 41e6, 5e6), (seed + 100, 27e6, 9e6)]
                .map(|(seed, gap_ns, ns)| open_loop(seed, gap_ns, ns));
            assert!(
                !says_waits(few, many) && !says_waits(many, few),
                "seed {seed}"
            );
            // The latency changed by far less than the time between requests.
            let other = open_loop(seed + 200, 27e6, 4e6);
            assert!(!says_waits(few, other), "seed {seed}");
        }
    }
}
