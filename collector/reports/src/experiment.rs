//! The `experiment` subcommand.

mod evidence;
mod rows;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::experiment::{Effect, Metric, alpha_of_look};
use tokio::runtime::Runtime;

use self::rows::{
    BalanceRow, LeftOutRow, MetricRow, NeededRow, NoiseRow, SideMixRow, SideOf, name_of, percent,
};
use crate::arguments::{
    ReadingArguments, SelectionArguments, ShowArguments, parse_range, parse_share,
};
use crate::regression::{GateArguments, GatedReport};
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, Report};
use crate::{Failure, Status};
use stroboscope_query::{
    ComparedMetric, ComparedPart, ExperimentReport, ExperimentSettings, Notes, TimeRange,
    experiment,
};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::show::{Doc, TableSpec};

/// Show whether an experiment's test differs from its control, by how much, and how surely
///
/// Both sides are recorded at the same time; an attribute tells which side a request belongs to:
///
///   stroboscope experiment --by build --control 41 --test 42 --unit user
///
/// Requests of one user, and requests of one burst, resemble each other. The intervals take this
/// into account, and contain the true value with the given certainty. Set --unit to what was
/// assigned to a side, such as users, processes or hosts. With few units, little can be learned,
/// however many requests they send. The command first checks whether both sides get the same kinds
/// of requests, as often and from as many units. It leaves out times at which something other than
/// the change happened.
///
/// If each side has its own processes, name them:
///
///   stroboscope experiment --by process --of web --control 1a2b3c4d --test 5e6f7a8b
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ExperimentVerb {
    #[command(flatten)]
    from: SelectionArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Attribute that tells which side a request belongs to. `service`, `host`, `process`,
    /// `operation` and `kind` are those of the request's root span, and `status` is `error` or `ok`
    #[arg(long, value_name = "ATTRIBUTE")]
    by: String,
    /// With --by process or host, use the process or host of this service's spans, instead of the
    /// root's. Leaves out requests that several processes or hosts of the service served
    #[arg(long, value_name = "SERVICE")]
    of: Option<String>,
    /// Value of the attribute for the control; repeatable
    #[arg(long, value_name = "VALUE", required = true)]
    control: Vec<String>,
    /// Value of the attribute for the test; repeatable
    #[arg(long, value_name = "VALUE", required = true)]
    test: Vec<String>,
    /// Share of the units that was assigned to the test, such as 50%; the command checks whether
    /// that many arrived
    #[arg(long, value_name = "SHARE", value_parser = parse_share, requires = "unit")]
    share: Option<f64>,
    /// Time range in which both sides were treated alike, such as before the change: 3d..2d, or two
    /// times with .. between them. A difference in it is not due to the change, and shows how much
    /// the sides differ by chance
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range, allow_hyphen_values = true)]
    equal: Option<TimeRange>,
    /// Attribute whose values were assigned to a side, such as the user. By default, each request
    /// is a unit of its own
    #[arg(long, value_name = "ATTRIBUTE")]
    unit: Option<String>,
    /// Probability that an interval contains the true value: 0.5 to 0.9999
    #[arg(long, value_name = "PART", default_value_t = 0.95, value_parser = parse_certainty)]
    certainty: f64,
    /// Number of times that the growing data was examined, including this one. Repeated looks find
    /// differences by chance, so each look must be more certain than the one before
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    look: u32,
    #[command(flatten)]
    gate: GateArguments,
}

fn parse_certainty(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.5..=0.9999).contains(&part) => Ok(part),
        _ => Err("not a part from 0.5 to 0.9999".to_owned()),
    }
}

impl ReadingVerb for ExperimentVerb {
    type Report = GatedReport<ExperimentSays>;
    /// Empty, because SQL cannot name the sides to compare.
    const TABLES: &'static [TableSpec] = &[];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (ReadingArguments::of(self.from.clone()), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<Self::Report, Failure> {
        if let Some(both) = self.control.iter().find(|of| self.test.contains(of)) {
            return Err(Failure::asked(format!(
                "--control and --test are both {both}: name two values of {}",
                self.by
            )));
        }
        if self.of.is_some() && !["process", "host", "host.name"].contains(&&*self.by) {
            return Err(Failure::asked(format!(
                "--of selects the service whose process or host counts; {} is an attribute of the request: omit --of",
                self.by
            )));
        }
        if self.share == Some(1.0) {
            return Err(Failure::asked(
                "--share 100% leaves no unit for the control",
            ));
        }
        let settings = ExperimentSettings {
            by: self.by.clone(),
            of: self.of.clone(),
            share: self.share,
            equal: self.equal,
            control: self.control.clone(),
            test: self.test.clone(),
            unit: self.unit.clone(),
            alpha: alpha_of_look(1.0 - self.certainty, self.look),
        };
        let found =
            experiment(study.source(), study.selection(), &settings).map_err(Failure::of)?;
        let found = ExperimentSays::of(found, settings);
        Ok(GatedReport::of(found, &self.gate))
    }

    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let files = &self.gate.files;
        files.give("experiment", &self.from, &self.show, || {
            let (reading, _) = self.arguments();
            self.answer(&NamedStudy::of(&reading, runtime.handle())?)
        })
    }
}

/// Result of an experiment.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExperimentSays {
    #[serde(flatten)]
    notes: Notes,
    by: String,
    unit: Option<String>,
    /// Certainty of each interval, after the correction for looks.
    certainty: f64,
    control: SideOf,
    test: SideOf,
    /// Number of blocks whose requests are assumed to be alike: bursts, or equal times if there are
    /// fewer than two bursts.
    blocks: usize,
    are_bursts: bool,
    /// Time from the beginning of the first request to that of the last, in ns.
    covered_ns: u64,
    /// Number of hours of the week, of 168, in which both sides have requests.
    hours_of_week: usize,
    /// True if the sides are alike in users, load and mix, as far as the data shows.
    is_balanced: bool,
    balance: Vec<BalanceRow>,
    /// True if the sides differed while they were treated alike; null if no such time was given, or
    /// it has too little data.
    differed_before: Option<bool>,
    metrics: Vec<MetricRow>,
    /// Metrics by hour of the day, if there are several.
    hours: Vec<MetricRow>,
    /// Metrics of the time in which both sides were treated alike, if it was given.
    equal: Vec<MetricRow>,
    noise: Vec<NoiseRow>,
    needed: Vec<NeededRow>,
    mix: Vec<SideMixRow>,
    left_out: Vec<LeftOutRow>,
    /// Number of requests with another value of the attribute, or without it.
    of_no_side: u64,
    /// Number of requests that several processes or hosts of the service served.
    of_several: u64,
    /// Number of requests without a unit.
    without_unit: u64,
}

/// Computes how large an experiment like this one would have to be to show differences of 1, 5
/// and 20 %, for all requests together. Omits the 99th percentile.
fn needed(found: &ExperimentReport, alpha: f64) -> Vec<NeededRow> {
    let (requests, units) = (found.requests, found.units);
    let all = found.metrics.iter();
    let all = all.filter(|of| of.of == ComparedPart::All && of.metric != Metric::Quantile(0.99));
    let each = all.flat_map(|of| {
        let effect: Option<&Effect> = of.effect.as_ref().ok();
        let row = move |difference: f64| {
            let times = effect?.times_needed(difference, alpha);
            times.is_finite().then(|| NeededRow {
                metric: name_of(of.metric),
                difference,
                times,
                requests: times * (requests.0 + requests.1) as f64,
                units: times * (units.0 + units.1) as f64,
                duration_ns: times * found.covered_ns as f64,
            })
        };
        [0.01, 0.05, 0.2].into_iter().filter_map(row)
    });
    each.collect()
}

impl ExperimentSays {
    fn of(found: ExperimentReport, settings: ExperimentSettings) -> Self {
        let alpha = settings.alpha;
        let side = |values: &[String], requests, units| SideOf {
            value: values.join(", "),
            requests,
            units,
        };
        let rows = |of: &[ComparedMetric]| -> Vec<MetricRow> {
            of.iter().map(|of| MetricRow::of(of, alpha)).collect()
        };
        let of_all = |metric: Metric| {
            let is_it = |of: &&ComparedMetric| of.of == ComparedPart::All && of.metric == metric;
            let found = found.metrics.iter().find(is_it);
            found.and_then(|of| of.effect.as_ref().ok())
        };
        let noise = found.noise.iter();
        let noise = noise.map(|noise| NoiseRow::of(noise, of_all(noise.metric), found.units));
        let balance: Vec<BalanceRow> = [
            found.users.as_ref().map(BalanceRow::users),
            found.load.as_ref().map(BalanceRow::load),
            (!found.mix.is_empty()).then(|| BalanceRow::mix(&found.mix)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let equal = rows(&found.equal);
        let is_known = equal.iter().any(|of| of.why_not.is_none());
        Self {
            by: match &settings.of {
                Some(of) => format!("{} of {of}", settings.by),
                None => settings.by,
            },
            unit: settings.unit,
            certainty: 1.0 - alpha,
            control: side(&settings.control, found.requests.0, found.units.0),
            test: side(&settings.test, found.requests.1, found.units.1),
            blocks: found.bursts,
            are_bursts: found.is_of_bursts,
            covered_ns: found.covered_ns,
            hours_of_week: found.hours_of_week,
            is_balanced: balance.iter().all(|of| of.is_balanced),
            balance,
            differed_before: is_known.then(|| equal.iter().any(|of| of.differs)),
            metrics: rows(&found.metrics),
            hours: rows(&found.hours),
            equal,
            noise: noise.collect(),
            needed: needed(&found, alpha),
            mix: found.mix.into_iter().map(SideMixRow::of).collect(),
            left_out: found.left_out.iter().map(LeftOutRow::of).collect(),
            of_no_side: found.of_no_side,
            of_several: found.of_several,
            without_unit: found.without_unit,
            notes: found.notes,
        }
    }

    fn headline(&self) -> String {
        let all: Vec<&MetricRow> = self.metrics.iter().filter(|of| of.root.is_none()).collect();
        if let Some(unlike) = self.balance.iter().find(|of| !of.is_balanced) {
            return match unlike.what {
                "users" => "The sides have other shares of the units than were assigned, so the missing units may \
                            make the difference, and not the change: find out where they are lost.",
                "load" => "Units of one side ask more often than those of the other, so the load may cause the \
                           difference between the sides, and not the change: check that they were assigned at \
                           random.",
                _ => "The sides receive different kinds of requests, so the change may not cause their difference: \
                      compare operation by operation.",
            }
            .to_owned();
        }
        if self.differed_before == Some(true) {
            return "The sides differed already while they were treated alike, so the change may not cause the \
                    difference now."
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
                "No difference is sure. By itself the median's lies between {between}, but with several metrics, one \
                 does so by chance."
            );
        }
        format!("No difference is seen. At the median it lies between {between}.")
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
        let unused = [
            (self.of_no_side, "of neither side"),
            (
                self.of_several,
                "left out, as several instances served them",
            ),
            (self.without_unit, "left out, as their unit is unknown"),
        ];
        for (count, why) in unused.into_iter().filter(|(count, _)| *count > 0) {
            doc.sentence(format!("{} {why}.", counted(count, "request")));
        }
        // A shorter recording misses hours or days at which a service may behave differently.
        if self.covered_ns < 7 * 86_400_000_000_000 {
            doc.sentence(
                "Less than a week was recorded: differences at other hours or on other days are not in it.",
            );
        } else if self.hours_of_week < 168 {
            doc.sentence(format!(
                "Of the week's 168 hours, both sides have requests in {}: differences in the others are not in it.",
                self.hours_of_week
            ));
        }
        let hours = self.hours.iter().filter(|of| of.differs).count();
        if hours > 0 {
            doc.sentence(format!(
                "{} of {} figures by hour of the day differ.",
                hours,
                self.hours.len()
            ));
        }
        doc.table("Differences", &self.metrics, usize::MAX);
        doc.table("By hour of the day", &self.hours, usize::MAX);
        doc.table("While they were treated alike", &self.equal, usize::MAX);
        doc.table("Chance differences of equal sides", &self.noise, usize::MAX);
        doc.table(
            "Requirements to show a difference, four times of five",
            &self.needed,
            usize::MAX,
        );
        doc.table("Kinds of requests", &self.mix, usize::MAX);
        doc.table("Left out", &self.left_out, usize::MAX);
    }
}
