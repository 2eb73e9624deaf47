//! Rows of the result of an experiment.

use crate::regression::{ALL_REQUESTS, Rise};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::experiment::{Effect, LeftOutTime, Metric, NoComparison, Noise, OneOff};
use stroboscope_query::{ComparedMetric, ComparedPart, LoadBalance, MixOf, UserBalance};
use stroboscope_render::rows;
use stroboscope_render::show::Cell;

/// Probability below which a difference between the sides is not attributed to chance.
const BALANCE_P: f64 = 0.01;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SideOf {
    pub value: String,
    pub requests: usize,
    pub units: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MetricRow {
    /// Root operation; null for requests of all root operations.
    pub root: Option<String>,
    /// Hour of the day in UTC in which requests began; null for any hour.
    pub hour: Option<u8>,
    /// Name of the metric: `mean`, `p50`, `p95` or `p99`.
    pub metric: String,
    pub control_ns: Option<f64>,
    pub test_ns: Option<f64>,
    /// Ratio of test to control, minus 1.
    pub difference: Option<f64>,
    /// Lower and upper (`high`) bound of the difference; null without a result. Without bounds,
    /// `low` is −1 and `high` is null.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// p-value before the correction: the difference's bounds exclude 0 if and only if it is below
    /// 1 minus the certainty.
    pub p_value: Option<f64>,
    /// p-value corrected for the number of metrics: among the metrics with at most q, on average at
    /// most a share q is chance.
    pub q_value: Option<f64>,
    /// True if test and control differ: `q_value` is below 1 minus the certainty.
    pub differs: bool,
    /// Number of equal units or bursts that would vary as much as the recorded ones do.
    pub effective_clusters: Option<f64>,
    /// Factors by which the experiment, in time and users, would have to grow to show differences
    /// of 1, 5 and 20 % in four of five cases.
    pub times_for_1_percent: Option<f64>,
    pub times_for_5_percent: Option<f64>,
    pub times_for_20_percent: Option<f64>,
    /// Reason why there is no result; null if there is one.
    pub why_not: Option<String>,
}

/// Difference between equal sides by chance.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NoiseRow {
    /// Name of the metric: `mean`, `p50`, `p95` or `p99`.
    pub metric: String,
    /// Number of units on each side; `requests` is the mean number of requests on a side.
    pub units: usize,
    pub requests: usize,
    /// Relative difference that half of the pairs of equal sides exceed; one pair in twenty exceeds
    /// `twentieth`.
    pub half: f64,
    pub twentieth: f64,
    /// Relative difference that nineteen in twenty pairs of equal sides stay within, with as many
    /// units as this experiment has.
    pub here: f64,
    /// Ratio of the experiment's own standard error to that of equal sides of its size, which
    /// should be about 1; null if it has no interval, or if `here` is 0.
    pub interval_to_noise: Option<f64>,
}

/// Size of an experiment that shows a difference in four of five cases.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NeededRow {
    pub metric: String,
    /// Relative difference; 0.05 is 5 %.
    pub difference: f64,
    /// Required data, as a multiple of this experiment's data.
    pub times: f64,
    /// Number of requests on both sides together.
    pub requests: f64,
    pub units: f64,
    /// Required duration in ns, at the experiment's rate of requests.
    pub duration_ns: f64,
}

/// Balance of the sides in one respect.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BalanceRow {
    /// Respect in which the sides are compared: `users`, `load` or `mix`.
    pub what: &'static str,
    /// Expected value: for users, the share assigned to the test; for load, the geometric mean of
    /// the control's requests per unit; null for the mix.
    pub expected: Option<f64>,
    pub found: Option<f64>,
    /// Probability that chance alone makes the sides differ this much; for the mix, the smallest
    /// among its operations, corrected for their number.
    pub p_value: f64,
    pub is_balanced: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SideMixRow {
    pub root: String,
    /// Share of the control's requests that have this root operation; `test` is the same share of
    /// the test's requests.
    pub control: f64,
    pub test: f64,
    pub q_value: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LeftOutRow {
    /// Beginning of the time that was left out, ns since the Unix epoch.
    pub from_ns: i64,
    pub to_ns: i64,
    pub requests: usize,
    pub why: &'static str,
}

pub(super) fn name_of(metric: Metric) -> String {
    match metric {
        Metric::Mean => "mean".to_owned(),
        Metric::Quantile(part) => format!("p{:.0}", part * 100.0),
    }
}

pub(super) fn reason(why: NoComparison) -> String {
    match why {
        NoComparison::OneSided { control, test } => {
            format!("too few units on a side: {control} of the control, {test} of the test")
        }
        NoComparison::FewClusters {
            effective,
            of_units,
        } => {
            let of = if of_units {
                "units make the difference"
            } else {
                "bursts make the difference"
            };
            format!("as few as {effective:.1} {of}")
        }
        NoComparison::FewAbove { requests, needed } => {
            format!("a side has {requests} requests; {needed} are needed")
        }
    }
}

pub(super) fn percent(part: Option<f64>) -> String {
    match part {
        None => "no bound".to_owned(),
        Some(part) => format!("{:.1} %", part * 100.0),
    }
}

impl MetricRow {
    pub(super) fn of(of: &ComparedMetric, alpha: f64) -> Self {
        let effect = of.effect.ok();
        let finite = |value: f64| value.is_finite().then_some(value);
        let get = |value: fn(&Effect) -> f64| effect.as_ref().map(value).and_then(finite);
        let times = |difference: f64| {
            let effect = effect.as_ref()?;
            finite(effect.times_needed(difference, alpha))
        };
        Self {
            root: match &of.of {
                ComparedPart::Root(root) => Some(root.clone()),
                _ => None,
            },
            hour: match of.of {
                ComparedPart::Hour(hour) => Some(hour),
                _ => None,
            },
            metric: name_of(of.metric),
            control_ns: get(|effect| effect.control_ns),
            test_ns: get(|effect| effect.test_ns),
            difference: get(Effect::difference),
            low: get(|effect| effect.interval.0),
            high: get(|effect| effect.interval.1),
            p_value: get(|effect| effect.p_value),
            q_value: of.q_value,
            differs: of.q_value.is_some_and(|q| q < alpha),
            effective_clusters: get(|effect| effect.effective_clusters),
            times_for_1_percent: times(0.01),
            times_for_5_percent: times(0.05),
            times_for_20_percent: times(0.2),
            why_not: of.effect.err().map(reason),
        }
    }

    /// Returns the rise of the latency from control to test, if it is more than chance.
    pub(super) fn rise(&self) -> Option<Rise> {
        let by = self.difference.filter(|by| self.differs && *by > 0.0)?;
        Some(Rise {
            metric: self.metric.clone(),
            of: self.part(),
            by,
            q_value: self.q_value?,
        })
    }

    /// Names the root operation or the hour of the row's requests; without either, all requests.
    pub(super) fn part(&self) -> String {
        match (&self.root, self.hour) {
            (Some(root), _) => root.clone(),
            (None, Some(hour)) => format!("{hour:02}:00 to {:02}:00 UTC", (hour + 1) % 24),
            (None, None) => ALL_REQUESTS.to_owned(),
        }
    }
}

impl SideMixRow {
    pub(super) fn of(of: MixOf) -> Self {
        Self {
            root: of.root,
            control: of.control,
            test: of.test,
            q_value: of.q_value,
        }
    }
}

impl NoiseRow {
    pub(super) fn of(noise: &Noise, effect: Option<&Effect>, units: (usize, usize)) -> Self {
        const NINETEEN_OF_TWENTY: f64 = 1.96;
        let here = noise.at(units.0, units.1);
        Self {
            metric: name_of(noise.metric),
            units: noise.units,
            requests: noise.requests,
            half: noise.half,
            twentieth: noise.twentieth,
            here: (NINETEEN_OF_TWENTY * here).exp_m1(),
            interval_to_noise: effect
                .map(|effect| effect.standard_error / here)
                .filter(|ratio| ratio.is_finite()),
        }
    }
}

impl BalanceRow {
    pub(super) fn users(users: &UserBalance) -> Self {
        Self {
            what: "users",
            expected: Some(users.assigned),
            found: Some(users.found),
            p_value: users.p_value,
            is_balanced: users.p_value >= BALANCE_P,
        }
    }

    pub(super) fn load(load: &LoadBalance) -> Self {
        Self {
            what: "load",
            expected: Some(load.control),
            found: Some(load.test),
            p_value: load.p_value,
            is_balanced: load.p_value >= BALANCE_P,
        }
    }

    pub(super) fn mix(mix: &[MixOf]) -> Self {
        let least = mix.iter().map(|of| of.q_value).fold(1.0, f64::min);
        Self {
            what: "mix",
            expected: None,
            found: None,
            p_value: least,
            is_balanced: least >= BALANCE_P,
        }
    }
}

impl LeftOutRow {
    pub(super) fn of(time: &LeftOutTime) -> Self {
        Self {
            from_ns: time.from_ns,
            to_ns: time.to_ns,
            requests: time.requests,
            why: match time.why {
                OneOff::Both => "both sides differ from all other times: not the change",
                OneOff::MixOfTest => {
                    "one side received other kinds of requests than at any other time"
                }
                OneOff::ShareOfTest => "one side had more or fewer requests than its share",
            },
        }
    }
}

rows! {
    MetricRow as row, "experiment_metrics":
        "The difference of a metric between test and control, and its limits of confidence.";
    {
        let text = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or_default());
        let is_said = row.why_not.is_none();
        let said = |text: String| if is_said { text } else { String::new() };
    }
    metric: Text, "latency" = &*row.metric;
    difference: Text, "differs by" = &*said(percent(row.difference));
    interval: Text, "between" = &*said(format!("{} … {}", percent(row.low), percent(row.high)));
    q_value: Probability, "q" = row.q_value;
    control_ns: DurationNs, "control" = row.control_ns;
    test_ns: DurationNs, "test" = row.test_ns;
    times_for_5_percent: Mean, "times for 5 %" = row.times_for_5_percent;
    why_not: Text, "why not" = text(&row.why_not);
    root: Text, "of" = &*row.part();
}

rows! {
    SideMixRow as row, "experiment_mix": "A root operation's part of the requests of control and test.";
    root: Text, "operation" = &*row.root;
    control: Share, "control" = row.control;
    test: Share, "test" = row.test;
    q_value: Probability, "q" = row.q_value;
}

rows! {
    LeftOutRow as row, "experiment_left_out": "A time that was left out of an experiment, and why.";
    length_ns: DurationNs, "for" = (row.to_ns - row.from_ns) as f64;
    requests: Count, "requests" = row.requests as u64;
    why: Text, "why" = row.why;
}

rows! {
    NoiseRow as row, "experiment_noise": "The difference by chance of sides that are treated alike.";
    metric: Text, "latency" = &*row.metric;
    units: Count, "units a side" = row.units as u64;
    half: Share, "half differ by" = row.half;
    twentieth: Share, "one in twenty by" = row.twentieth;
    here: Share, "at this size by" = row.here;
}

rows! {
    NeededRow as row, "experiment_needed": "What an experiment needs that shows a difference in four of five cases.";
    metric: Text, "latency" = &*row.metric;
    difference: Share, "to see" = row.difference;
    times: Mean, "times as much" = row.times;
    requests: Count, "requests" = row.requests.round() as u64;
    units: Count, "units" = row.units.round() as u64;
    duration_ns: DurationNs, "as they come, in" = row.duration_ns;
}
