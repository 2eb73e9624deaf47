//! The `pool` subcommand.

mod samples;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::pooling::{Dependence, PoolRefusal, STEPS_SHIFTED_MAX, UsePercentile};
use tokio::runtime::Runtime;

use crate::arguments::{DataArguments, ShowArguments, parse_instant, range_of};
use crate::verb::{Report, give_as};
use crate::{Failure, Status};
use samples::read_samples;
use stroboscope_query::{Notes, PoolReport, PoolSettings, PooledUse, Source, UsesByService};
use stroboscope_render::humanise::{are, counted, duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

/// Predict the CPU or memory percentiles of one process that serves the users of several
///
/// Processes with the SDK report about once a second what they use. A sum of normal distributions
/// describes the larger process under two conditions: most of a process's usage is normally
/// distributed, and processes do not depend on each other. The command checks both. If either
/// fails, it instead sums what processes used at the same time. It also predicts by how much the
/// 99th percentile exceeds that of the normal distribution.
///
///   stroboscope pool --service store                   one process instead of two
///   stroboscope pool --service web --with ranker       one of each, on the same processors
///   stroboscope pool --samples used.csv                samples of other tools: process,ts_ns,value
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PoolVerb {
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Only usage from then on: a time such as 2026-11-21T10:00, or an age such as 1d
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    since: Option<i64>,
    /// Only usage before that time
    #[arg(long, value_name = "WHEN", value_parser = parse_instant, allow_hyphen_values = true)]
    until: Option<i64>,
    /// Service whose processes are pooled; not needed if there is only one
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Pool one process of --service with one process of this service, instead of two processes of
    /// --service
    #[arg(
        long,
        value_name = "SERVICE",
        requires = "service",
        conflicts_with = "times"
    )]
    with: Option<String>,
    /// Number of processes to merge into one
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=16))]
    times: u8,
    /// Resource to predict
    #[arg(long = "of", value_enum, value_name = "WHAT", default_value_t = What::Cpu)]
    what: What,
    /// Read samples from this file instead of the data directory. Lines are CSV with column names
    /// in the first line, or JSON. They have process, ts_ns (ns since the Unix epoch) and value,
    /// and service if there are several
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "what"])]
    samples: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Busy cores: processor time divided by wall time
    Cpu,
    /// Resident memory
    Memory,
    /// Requests per second that enter a process
    Requests,
}

impl PoolVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let range = range_of(self.since, self.until)?;
        let (uses, unit) = match &self.samples {
            Some(file) => (read_samples(file, range).map_err(Failure::new)?, Unit::Any),
            None => {
                let directory = self.data.to_read(runtime.handle())?;
                let source = Source::open_any(directory.directory(), runtime.handle().clone());
                let source = source.map_err(Failure::of)?;
                let (used, unit) = match self.what {
                    What::Cpu => (PooledUse::CpuCores, Unit::Cores),
                    What::Memory => (PooledUse::MemoryBytes, Unit::Bytes),
                    What::Requests => (PooledUse::RequestsPerSecond, Unit::RequestsPerSecond),
                };
                let uses = UsesByService::of_store(&source, range, used);
                (uses.map_err(Failure::of)?, unit)
            }
        };
        let settings = PoolSettings {
            service: self.service,
            with: self.with,
            times: usize::from(self.times),
        };
        let report = uses.pool(&settings).map_err(Failure::of)?;
        let says = PoolSays::of(report, settings.times, unit);
        let data = self.samples.as_ref().unwrap_or(&self.data.data);
        give_as(&says, data, self.json, None, &self.show)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Cores,
    Bytes,
    RequestsPerSecond,
    /// Unit of the samples in a file.
    Any,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Cores => format!("{value:.3} cores"),
            Self::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Self::RequestsPerSecond => format!("{value:.1} /s"),
            Self::Any => format!("{value:.6}")
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned(),
        }
    }
}

/// Predicted usage of a larger process.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PoolSays {
    #[serde(flatten)]
    notes: Notes,
    services: Vec<PooledService>,
    /// Number of processes of one service that are merged into one; with two services, one process
    /// of each is merged.
    times: usize,
    unit: Unit,
    samples: usize,
    /// Median time between two samples of a process, in ns.
    step_ns: i64,
    /// Number of samples that are missing between others.
    gaps: u64,
    /// True if the normal percentiles are reliable, except for the predicted tail.
    is_normal: bool,
    /// Reasons that the normal percentiles are not reliable.
    refused: Vec<RefusalOf>,
    percentiles: Vec<PercentileRow>,
    /// Usage of one process of the first service.
    one: Vec<OneRow>,
    /// Number of sums, each of what the processes used at the same time.
    together: usize,
    /// Number of pairs of processes that were examined.
    pairs: usize,
    strongest_dependence: Option<DependenceOf>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PooledService {
    service: String,
    /// Number of processes that were measured.
    processes: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RefusalOf {
    /// Kind of the reason: `not_normal`, `dependent`, `untold` or `few_samples`.
    kind: &'static str,
    said: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DependenceOf {
    first: String,
    second: String,
    /// Delay in ns with which the usage of the second process follows that of the first; negative
    /// if the first follows the second.
    shift_ns: i64,
    /// Rank correlation of the two usages: 1 if they rise and fall together, −1 if one rises
    /// when the other falls.
    correlation: f64,
    /// Rank correlation of the two usages without the shift.
    at_once: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PercentileRow {
    /// Name of the percentile: `p50`, `p95` or `p99`.
    percentile: String,
    /// Percentile of a sum of normal distributions.
    normal: f64,
    /// Percentile of a sum of the measured distributions, assuming independence.
    independent: f64,
    /// Relative excess of `independent` over `normal`.
    foretold_error: f64,
    /// Percentile of the sums of what processes used at the same time; null if there are too few
    /// sums.
    together: Option<f64>,
    #[serde(skip)]
    unit: Option<Unit>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OneRow {
    percentile: String,
    found: f64,
    /// Percentile of a normal distribution with the same mean and variance.
    normal: f64,
    #[serde(skip)]
    unit: Option<Unit>,
}

fn name_of(part: f64) -> String {
    format!("p{}", (part * 1_000.0).round() / 10.0)
}

impl RefusalOf {
    fn of(refusal: &PoolRefusal) -> Self {
        let (kind, said) = match refusal {
            PoolRefusal::NotNormal { part, error } => (
                "not_normal",
                format!(
                    "The usage of one process is not normal in its bulk: the sum's {} would be {} {} than a normal \
                     one's.",
                    name_of(*part),
                    percent(error.abs()),
                    if *error > 0.0 { "more" } else { "less" },
                ),
            ),
            PoolRefusal::Dependent(on) => ("dependent", dependence(on)),
            PoolRefusal::Untold { steps: 0, .. } => (
                "untold",
                "Dependence between processes is unknown, as no two of them were measured at the same time: record \
                 two or more."
                    .to_owned(),
            ),
            PoolRefusal::Untold { steps, needed } => (
                "untold",
                format!(
                    "Dependence between processes cannot be determined: they were measured at {} together{}.",
                    counted(*steps as u64, "moment"),
                    needed.map_or_else(String::new, |needed| format!(
                        ", and some {needed} are needed, as what they use changes slowly or they are many"
                    )),
                ),
            ),
            PoolRefusal::FewSamples { samples, needed } => (
                "few_samples",
                format!("There {} {}; {needed} are needed to know the usage of a process.", are(*samples as u64), counted(*samples as u64, "sample")),
            ),
        };
        Self { kind, said }
    }
}

fn dependence(on: &Dependence) -> String {
    let how = match on.correlation > 0.0 {
        true => "uses more when the other does",
        false => "uses more when the other uses less",
    };
    let later = match on.shift_ns {
        0 => String::new(),
        shift_ns => format!(
            ", {} {}",
            duration(shift_ns.unsigned_abs() as f64),
            if shift_ns > 0 { "before" } else { "after" },
        ),
    };
    let shifted = match on.shift_ns == 0 && on.correlation > 0.0 {
        true => "",
        false => " Their usage is shifted in time.",
    };
    format!(
        "Processes depend on each other: {} {how}{later} ({}; correlation {:.2}).{shifted}",
        on.first, on.second, on.correlation
    )
}

impl PoolSays {
    fn of(report: PoolReport, times: usize, unit: Unit) -> Self {
        let PoolReport { services, pooled } = report;
        let times = if services.len() > 1 { 1 } else { times };
        let service = |(service, processes)| PooledService { service, processes };
        let one = |of: &UsePercentile| OneRow {
            percentile: name_of(of.part),
            found: of.found,
            normal: of.normal,
            unit: Some(unit),
        };
        let percentiles = pooled.percentiles.iter().map(|of| PercentileRow {
            percentile: name_of(of.part),
            normal: of.normal,
            independent: of.independent,
            foretold_error: of.foretold_error(),
            together: of.together,
            unit: Some(unit),
        });
        Self {
            notes: Notes::default(),
            services: services.into_iter().map(service).collect(),
            times,
            unit,
            samples: pooled.samples,
            step_ns: pooled.step_ns,
            gaps: pooled.gaps,
            is_normal: pooled.refused.is_empty(),
            refused: pooled.refused.iter().map(RefusalOf::of).collect(),
            percentiles: percentiles.collect(),
            one: pooled.one.iter().map(one).collect(),
            together: pooled.together,
            pairs: pooled.pairs,
            strongest_dependence: pooled.strongest.map(|on| DependenceOf {
                first: on.first,
                second: on.second,
                shift_ns: on.shift_ns,
                correlation: on.correlation,
                at_once: on.at_once,
            }),
        }
    }

    fn headline(&self) -> String {
        let list = |of: &dyn Fn(&PercentileRow) -> Option<f64>| -> Option<String> {
            let each = self.percentiles.iter().map(|row| {
                let value = of(row)?;
                Some(format!("{} {}", row.percentile, self.unit.show(value)))
            });
            Some(each.collect::<Option<Vec<_>>>()?.join(", "))
        };
        if self.is_normal {
            let last = self.percentiles.last();
            let tail = last.map_or(0.0, |row| row.foretold_error);
            let tail = match tail.abs() > 0.005 {
                true => format!(
                    " The tail is not normal: the 99th percentile is predicted to be {} {} than a normal one's, and \
                     is given so.",
                    percent(tail.abs()),
                    if tail > 0.0 { "larger" } else { "smaller" }
                ),
                false => String::new(),
            };
            let normal = |row: &PercentileRow| {
                Some(match row.percentile == "p99" {
                    true => row.independent,
                    false => row.normal,
                })
            };
            let said = list(&normal).unwrap_or_default();
            return format!("A larger process would use: {said}.{tail}");
        }
        match list(&|row| row.together) {
            Some(said) => format!(
                "A sum of normal distributions does not describe a larger process. By the usage of processes at the \
                 same time: {said}."
            ),
            None => "This data cannot show the usage of a larger process.".to_owned(),
        }
    }
}

rows! {
    PercentileRow as row, "pool_percentiles": "A percentile of a larger process's usage, estimated in three ways.";
    {
        let show = |value: f64| row.unit.unwrap_or(Unit::Any).show(value);
    }
    percentile: Text, "percentile" = &*row.percentile;
    normal: Text, "sum of normal ones" = &*show(row.normal);
    independent: Text, "of independent ones" = &*show(row.independent);
    foretold_error: Share, "predicted error" = row.foretold_error;
    together: Text, "at the same time" = &*row.together.map_or_else(String::new, show);
}

rows! {
    OneRow as row, "pool_one": "A percentile of the usage of one process, and that of a normal distribution.";
    {
        let show = |value: f64| row.unit.unwrap_or(Unit::Any).show(value);
    }
    percentile: Text, "percentile" = &*row.percentile;
    found: Text, "found" = &*show(row.found);
    normal: Text, "normal" = &*show(row.normal);
}

impl Report for PoolSays {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("A larger process");
        doc.sentence(self.headline());
        let services = self.services.iter().map(|of| {
            format!(
                "{} of {}",
                counted(of.processes as u64, "process"),
                of.service
            )
        });
        let services: Vec<String> = services.collect();
        let place = match self.services.len() {
            1 => format!("one for {}", self.times),
            _ => "one of either together".to_owned(),
        };
        doc.sentence(format!(
            "{}, {place}; {}, every {}.",
            services.join(" and "),
            counted(self.samples as u64, "sample"),
            duration(self.step_ns as f64),
        ));
        doc.sentences(self.refused.iter().map(|refusal| &refusal.said));
        if self.is_normal {
            doc.sentence(format!(
                "In {} no dependence was seen, with shifts of up to {} either way; one within a sample's time, in which one \
                 works while the other waits, shows as turns or not at all.",
                counted(self.pairs as u64, "pair"),
                duration(self.step_ns as f64 * STEPS_SHIFTED_MAX as f64),
            ));
        }
        if self.gaps > 0 {
            doc.sentence(format!(
                "{} missing between others.",
                counted(self.gaps, "sample")
            ));
        }
        doc.table("Predicted usage", &self.percentiles, usize::MAX);
        doc.table("Usage of one process", &self.one, usize::MAX);
    }
}
