//! `experiment`

use std::borrow::Cow;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::experiment::{Effect, LeftOutTime, Metric, OneOff, Unanswered};
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, SelectionArguments, ShowArguments};
use super::study::NamedStudy;
use super::verb::{Report, give};
use super::{Failure, Status};
use stroboscope_present::humanise::{counted, duration};
use stroboscope_present::show::{Cell, Column, Doc, Kind, Row, TableSpec};
use stroboscope_query::{
    ComparedMetric, ExperimentReport, ExperimentSettings, MixOf, Notes, experiment,
};

/// Differences of operations' parts that are less likely than this are not chance.
const MIX_Q: f64 = 0.01;

/// Say whether the test of an experiment differs from its control, by how much, and how sure that is
///
/// Both sides are recorded at the same time; an attribute says of which one a request is:
///
///   stroboscope experiment --by build --control 41 --test 42 --unit user
///
/// Requests of one user are alike, and so are those of one burst: an interval holds the truth with the certainty asked for
/// where that is so, too. Name by --unit what was assigned to a side (users, processes, hosts): with few of them, little can be
/// known, however many requests they make. Whether both sides are asked for the same is looked at first, and times at which
/// something happened that is not the change are left out.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ExperimentVerb {
    #[command(flatten)]
    from: SelectionArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// The attribute that says which side a request is of. `service`, `host`, `operation` and `kind` are those of the request's
    /// root span
    #[arg(long, value_name = "ATTRIBUTE")]
    by: String,
    /// Its value for the control
    #[arg(long, value_name = "VALUE")]
    control: String,
    /// Its value for the test
    #[arg(long, value_name = "VALUE")]
    test: String,
    /// The attribute whose values were assigned to a side, such as the user. Otherwise each request counts by itself
    #[arg(long, value_name = "ATTRIBUTE")]
    unit: Option<String>,
    /// How probable it is that an interval holds the truth: 0.5 to 0.9999
    #[arg(long, value_name = "PART", default_value_t = 0.95, value_parser = parse_certainty)]
    certainty: f64,
    /// How often the data was looked at, with this time, while it grew: who looks often sees differences by chance, so each
    /// look must be surer than the one before
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    look: u32,
}

fn parse_certainty(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.5..=0.9999).contains(&part) => Ok(part),
        _ => Err("not a part from 0.5 to 0.9999".to_owned()),
    }
}

/// What is left for this look of an error that all looks share: 6/π²k² of it, which for all k sums up to it.
fn alpha_of_look(alpha: f64, look: u32) -> f64 {
    match look {
        1 => alpha,
        look => alpha * 6.0 / (std::f64::consts::PI * f64::from(look)).powi(2),
    }
}

impl ExperimentVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        if self.control == self.test {
            return Err(Failure(format!(
                "--control and --test are both {}: name two values of {}",
                self.test, self.by
            )));
        }
        let settings = ExperimentSettings {
            by: self.by,
            control: self.control,
            test: self.test,
            unit: self.unit,
            alpha: alpha_of_look(1.0 - self.certainty, self.look),
        };
        let reading = ReadingArguments::of(self.from);
        let study = NamedStudy::of(&reading, runtime.handle())?;
        let found =
            experiment(study.source(), study.selection(), &settings).map_err(Failure::of)?;
        give(
            &ExperimentSays::of(found, settings),
            &reading.from,
            &self.show,
        )
    }
}

/// What an experiment says.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ExperimentSays {
    #[serde(flatten)]
    notes: Notes,
    by: String,
    unit: Option<String>,
    /// The certainty of each interval, after the correction for looks.
    certainty: f64,
    control: SideOf,
    test: SideOf,
    /// Bursts, or equal times where nothing was recorded in bursts, whose requests were taken to be alike.
    blocks: usize,
    are_bursts: bool,
    /// From the first request's begin to the last one's.
    covered_ns: u64,
    /// Whether the sides are asked for the same, as far as can be told.
    is_balanced: bool,
    metrics: Vec<MetricRow>,
    mix: Vec<MixRow>,
    left_out: Vec<LeftOutRow>,
    /// Requests of another value of the attribute, or without it.
    of_no_side: u64,
    /// Requests without a unit.
    without_unit: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SideOf {
    value: String,
    requests: usize,
    units: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct MetricRow {
    /// Of one root operation; none: of all requests.
    root: Option<String>,
    /// `mean`, `p50`, `p95`, `p99`.
    metric: String,
    control_ns: Option<f64>,
    test_ns: Option<f64>,
    /// Test to control, less 1.
    difference: Option<f64>,
    /// Between these it is; null is not bounded.
    low: Option<f64>,
    high: Option<f64>,
    /// Corrected for the number of metrics: of what has at most q, a part of q is chance.
    q_value: Option<f64>,
    /// Whether it differs, with the certainty asked for.
    differs: bool,
    /// As many equal units or bursts would vary as these do.
    effective_clusters: Option<f64>,
    /// Times as long an experiment, with as many more users, that shows 1, 5 and 20 % in four of five cases.
    times_for_1_percent: Option<f64>,
    times_for_5_percent: Option<f64>,
    times_for_20_percent: Option<f64>,
    /// Why nothing can be said.
    why_not: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct MixRow {
    root: String,
    /// Parts of either side's requests.
    control: f64,
    test: f64,
    q_value: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LeftOutRow {
    /// Ns since the Unix epoch.
    from_ns: i64,
    to_ns: i64,
    requests: usize,
    why: &'static str,
}

fn name_of(metric: Metric) -> String {
    match metric {
        Metric::Mean => "mean".to_owned(),
        Metric::Quantile(part) => format!("p{:.0}", part * 100.0),
    }
}

fn reason(why: Unanswered) -> String {
    match why {
        Unanswered::OneSided { control, test } => {
            format!("too few units on a side: {control} of the control, {test} of the test")
        }
        Unanswered::FewClusters {
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
        Unanswered::FewAbove { requests, needed } => {
            format!("a side has {requests} requests; {needed} are needed")
        }
    }
}

impl MetricRow {
    fn of(of: &ComparedMetric, alpha: f64) -> Self {
        let effect = of.effect.ok();
        let finite = |value: f64| value.is_finite().then_some(value);
        let get = |value: fn(&Effect) -> f64| effect.as_ref().map(value).and_then(finite);
        let times = |difference: f64| {
            let effect = effect.as_ref()?;
            finite(effect.times_needed(difference, alpha))
        };
        Self {
            root: of.root.clone(),
            metric: name_of(of.metric),
            control_ns: get(|effect| effect.control_ns),
            test_ns: get(|effect| effect.test_ns),
            difference: get(Effect::difference),
            low: get(|effect| effect.interval.0),
            high: get(|effect| effect.interval.1),
            q_value: of.q_value,
            differs: of.q_value.is_some_and(|q| q < alpha),
            effective_clusters: get(|effect| effect.effective_clusters),
            times_for_1_percent: times(0.01),
            times_for_5_percent: times(0.05),
            times_for_20_percent: times(0.2),
            why_not: of.effect.err().map(reason),
        }
    }
}

impl ExperimentSays {
    fn of(found: ExperimentReport, settings: ExperimentSettings) -> Self {
        let alpha = settings.alpha;
        let side = |value: String, requests, units| SideOf {
            value,
            requests,
            units,
        };
        Self {
            notes: found.notes,
            by: settings.by,
            unit: settings.unit,
            certainty: 1.0 - alpha,
            control: side(settings.control, found.requests.0, found.units.0),
            test: side(settings.test, found.requests.1, found.units.1),
            blocks: found.bursts,
            are_bursts: found.is_of_bursts,
            covered_ns: found.covered_ns,
            is_balanced: found.mix.iter().all(|of| of.q_value >= MIX_Q),
            metrics: found
                .metrics
                .iter()
                .map(|of| MetricRow::of(of, alpha))
                .collect(),
            mix: found.mix.into_iter().map(MixRow::of).collect(),
            left_out: found.left_out.iter().map(LeftOutRow::of).collect(),
            of_no_side: found.of_no_side,
            without_unit: found.without_unit,
        }
    }

    /// What matters, in one sentence.
    fn headline(&self) -> String {
        let all: Vec<&MetricRow> = self.metrics.iter().filter(|of| of.root.is_none()).collect();
        if !self.is_balanced {
            return "The sides are asked for different things, so what differs between them may not be the change: compare \
                    operation by operation."
                .to_owned();
        }
        let differing: Vec<String> = all
            .iter()
            .filter(|of| of.differs)
            .map(|of| {
                let how = if of.difference.unwrap_or(0.0) > 0.0 {
                    "slower"
                } else {
                    "faster"
                };
                let by = percent(of.difference.map(f64::abs));
                let between = format!("{} to {}", percent(of.low), percent(of.high));
                format!("{} is {by} {how} ({between})", of.metric)
            })
            .collect();
        if !differing.is_empty() {
            return format!("The test differs: {}.", differing.join(", "));
        }
        if self.metrics.iter().any(|of| of.differs) {
            return "All requests together do not differ; those of an operation do.".to_owned();
        }
        let Some(median) = all
            .iter()
            .find(|of| of.metric == "p50" && of.why_not.is_none())
        else {
            return "This data cannot say whether the test differs.".to_owned();
        };
        let between = format!("{} and {}", percent(median.low), percent(median.high));
        if median.low > Some(0.0) || median.high.is_some_and(|high| high < 0.0) {
            return format!(
                "No difference is sure. By itself the median's lies between {between}, but of several metrics that are looked \
                 at one does so by chance."
            );
        }
        format!("No difference is seen. At the median it lies between {between}.")
    }
}

fn percent(part: Option<f64>) -> String {
    match part {
        None => "no bound".to_owned(),
        Some(part) => format!("{:.1} %", part * 100.0),
    }
}

impl MixRow {
    fn of(of: MixOf) -> Self {
        let MixOf {
            root,
            control,
            test,
            q_value,
        } = of;
        Self {
            root,
            control,
            test,
            q_value,
        }
    }
}

impl LeftOutRow {
    fn of(time: &LeftOutTime) -> Self {
        Self {
            from_ns: time.from_ns,
            to_ns: time.to_ns,
            requests: time.requests,
            why: match time.why {
                OneOff::Both => "both sides took as long as at no other time: not the change",
                OneOff::ShareOfTest => "one side had more or fewer requests than its share",
            },
        }
    }
}

impl Row for MetricRow {
    const TABLE: TableSpec = TableSpec {
        name: "experiment_metrics",
        about: "How a metric differs between test and control, and between which limits that is sure.",
        columns: Cow::Borrowed(&[
            Column::new("metric", "latency", Kind::Text),
            Column::new("difference", "differs by", Kind::Text),
            Column::new("interval", "between", Kind::Text),
            Column::new("q_value", "q", Kind::Number),
            Column::new("control_ns", "control", Kind::DurationNs),
            Column::new("test_ns", "test", Kind::DurationNs),
            Column::new("times_for_5_percent", "times for 5 %", Kind::Number),
            Column::new("why_not", "why not", Kind::Text),
            Column::new("root", "of", Kind::Text),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        let text = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or_default());
        let is_said = self.why_not.is_none();
        let said = |text: String| if is_said { text } else { String::new() };
        vec![
            (&*self.metric).into(),
            (&*said(percent(self.difference))).into(),
            (&*said(format!("{} … {}", percent(self.low), percent(self.high)))).into(),
            self.q_value.into(),
            self.control_ns.into(),
            self.test_ns.into(),
            self.times_for_5_percent.into(),
            text(&self.why_not),
            self.root.as_deref().unwrap_or("all requests").into(),
        ]
    }
}

impl Row for MixRow {
    const TABLE: TableSpec = TableSpec {
        name: "experiment_mix",
        about: "A root operation's part of the requests of control and test.",
        columns: Cow::Borrowed(&[
            Column::new("root", "operation", Kind::Text),
            Column::new("control", "control", Kind::Share),
            Column::new("test", "test", Kind::Share),
            Column::new("q_value", "q", Kind::Number),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.root).into(),
            self.control.into(),
            self.test.into(),
            self.q_value.into(),
        ]
    }
}

impl Row for LeftOutRow {
    const TABLE: TableSpec = TableSpec {
        name: "experiment_left_out",
        about: "A time that was left out of an experiment, and why.",
        columns: Cow::Borrowed(&[
            Column::new("length_ns", "for", Kind::DurationNs),
            Column::new("requests", "requests", Kind::Count),
            Column::new("why", "why", Kind::Text),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            ((self.to_ns - self.from_ns) as f64).into(),
            (self.requests as u64).into(),
            self.why.into(),
        ]
    }
}

impl Report for ExperimentSays {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Test against control");
        doc.sentence(self.headline());
        let side = |side: &SideOf| {
            let units = match self.unit {
                Some(_) => format!(" of {}", counted(side.units as u64, "unit")),
                None => String::new(),
            };
            format!(
                "{} = {}: {}{units}",
                self.by,
                side.value,
                counted(side.requests as u64, "request")
            )
        };
        let blocks = if self.are_bursts { "burst" } else { "time" };
        doc.sentence(format!(
            "Control {}; test {}; in {} over {}. Intervals hold the truth with probability {}.",
            side(&self.control),
            side(&self.test),
            counted(self.blocks as u64, blocks),
            duration(self.covered_ns as f64),
            percent(Some(self.certainty)),
        ));
        if self.unit.is_none() {
            doc.sentence(
                "Requests were taken to be assigned to a side one by one. If users or processes were, name them by --unit: \
                 the intervals are too narrow otherwise.",
            );
        }
        if self.of_no_side > 0 {
            doc.sentence(format!(
                "{} of neither side.",
                counted(self.of_no_side, "request")
            ));
        }
        if self.without_unit > 0 {
            doc.sentence(format!(
                "{} left out, as no unit is said.",
                counted(self.without_unit, "request")
            ));
        }
        // A week has all that a service does in the course of one.
        if self.covered_ns < 7 * 86_400_000_000_000 {
            doc.sentence(
                "Less than a week was recorded: what differs at other hours or on other days is not in it.",
            );
        }
        doc.table("How they differ", &self.metrics, usize::MAX);
        doc.table("What they are asked for", &self.mix, usize::MAX);
        doc.table("Left out", &self.left_out, usize::MAX);
    }
}
