//! Arguments for two periods to compare.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::compare::{CompareSettings, Comparison};
use stroboscope_analysis::flow::{FlowSettings, Fold, Zoom};
use tokio::runtime::Runtime;

use crate::arguments::{DataArguments, Readable, ReadingArguments, parse_formula, parse_range};
use crate::failure::Failure;
use crate::results::compare::{ComparisonReport, cause_in_words};
use crate::study::{NamedStudy, Reader, open};
use stroboscope_query::{
    HowCompared, PeriodOf, Source, TimeRange, compare_with_failures, explain_first_cause,
};
use stroboscope_search::Formula;

/// Arguments that select two periods, and define which requests of both are alike.
#[derive(Clone, Debug, Args)]
pub(crate) struct PeriodArguments {
    /// Earlier period: a range FROM..UNTIL, such as 2h..1h or 2026-11-21T10:00..2026-11-21T10:30,
    /// or the requests with an attribute, such as service.version=1.4
    #[arg(long, value_name = "PERIOD")]
    before: Option<String>,
    /// Later period, in the same format
    #[arg(long, value_name = "PERIOD")]
    after: Option<String>,
    /// Only requests of the earlier period that satisfy this formula, in the language of `search`.
    /// If only one side has a formula, the other side gets the requests that do not satisfy it
    #[arg(long, value_name = "FORMULA", value_parser = parse_formula)]
    before_where: Option<(String, Formula)>,
    /// Only requests of the later period that satisfy this formula
    #[arg(long, value_name = "FORMULA", value_parser = parse_formula)]
    after_where: Option<(String, Formula)>,
    /// Data directory of the earlier period
    #[arg(long, value_name = "DIR")]
    before_data: Option<PathBuf>,
    #[command(flatten)]
    pub flow: FlowArguments,
    /// Minimum change of the number of requests of a category, or of requests in which an operation
    /// behaves differently, scaled to the later period
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    threshold: u64,
    /// Minimum change, as a share of the mean latency of the earlier requests that contain the
    /// place, such as 5% or 0.05. A tenth of it suffices where the own time of an operation changed
    /// by 30 % or more. A tenth of it is also the minimum relative to the mean latency of the root
    /// operation
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_part)]
    min_effect: f64,
    /// Also accept, as precursors, categories that lost fewer requests than the mutation gained
    #[arg(long)]
    any_precursor: bool,
    /// Compare absolute numbers of requests per category, instead of shares. For two periods with
    /// the same workload
    #[arg(long)]
    same_workload: bool,
}

/// The two periods to compare, with their opened stores.
pub(crate) struct Periods {
    pub before: PeriodOf,
    pub after: PeriodOf,
    /// Directories opened for the periods. Dropping this releases mirrors of published stores.
    _directories: Vec<Readable>,
}

impl Periods {
    /// Returns both periods, the earlier one first.
    pub(crate) fn both(&self) -> [&PeriodOf; 2] {
        [&self.before, &self.after]
    }

    /// Compares the periods, and explains the first cause; shows up to `top` mutations.
    pub(crate) fn compare(
        &self,
        how: HowCompared<'_>,
        top: usize,
    ) -> Result<ComparisonReport, Failure> {
        let both = self.both();
        let (found, failures) =
            compare_with_failures(both, how.infer, how.flow, how.compare).map_err(Failure::of)?;
        let first = |comparison: &Comparison| cause_in_words(comparison, 1);
        let telling = explain_first_cause(both, &found, how, &first).map_err(Failure::of)?;
        let compared = ComparisonReport::of(found, top).explained_by(telling.as_ref());
        Ok(compared.with_failures(&failures))
    }
}

/// Arguments that define the categories of requests.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FlowArguments {
    /// Level of detail of a category's structure
    #[arg(long, value_enum, default_value_t = ZoomArgument::Operation)]
    zoom: ZoomArgument,
    /// Treatment of consecutive repetitions. `buckets` distinguishes 1, 2, 3–4, 5–8, …: a growing
    /// loop is visible, but data-dependent lengths do not each become a category. `none`
    /// distinguishes every number, `all` none
    #[arg(long, value_enum, default_value_t = FoldArgument::Buckets)]
    fold: FoldArgument,
    /// Distinguish equal operations on different hosts
    #[arg(long)]
    with_hosts: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ZoomArgument {
    /// Calls from service to service
    Service,
    /// Every span
    Operation,
    /// Every span, and every event inside of them
    Full,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FoldArgument {
    None,
    Buckets,
    All,
}

impl FlowArguments {
    pub(crate) fn settings(self) -> FlowSettings {
        FlowSettings {
            zoom: match self.zoom {
                ZoomArgument::Service => Zoom::Service,
                ZoomArgument::Operation => Zoom::Operation,
                ZoomArgument::Full => Zoom::Full,
            },
            fold: match self.fold {
                FoldArgument::None => Fold::None,
                FoldArgument::Buckets => Fold::Buckets,
                FoldArgument::All => Fold::All,
            },
            with_hosts: self.with_hosts,
        }
    }
}

impl PeriodArguments {
    pub(crate) fn settings(&self) -> CompareSettings {
        CompareSettings {
            count_min: self.threshold,
            effect_min: self.min_effect,
            any_precursor: self.any_precursor,
            same_workload: self.same_workload,
            ..CompareSettings::default()
        }
    }

    pub(crate) fn are_asked(&self) -> bool {
        let is_time = self.before.is_some() || self.after.is_some();
        let is_formula = self.before_where.is_some() || self.after_where.is_some();
        is_time || is_formula || self.before_data.is_some()
    }

    /// Opens both periods. Without a runtime, as on pages, both use the study's store, and formulas
    /// and another directory are errors.
    pub(crate) fn open(
        &self,
        verb: &str,
        study: &NamedStudy,
        reading: &ReadingArguments,
        runtime: Option<&Runtime>,
    ) -> Result<Periods, Failure> {
        let mut directories = Vec::new();
        let mut source_of = |data: Option<&PathBuf>, formula: Option<(String, Formula)>| {
            if data.is_none() && formula.is_none() {
                return Ok(study.inner().shared_source());
            }
            let Some(runtime) = runtime else {
                return Err(Failure::asked(format!(
                    "pages compare periods of time or attributes; for a formula or another directory, run `stroboscope {verb}`"
                )));
            };
            let mut from = reading.clone();
            if let Some(data) = data {
                from.from.data = DataArguments { data: data.clone() };
            }
            from.from.filter = both(from.from.filter, formula);
            let (readable, source, _) = open(&from, &Reader::of_terminal(runtime.handle()))?;
            directories.push(readable);
            Ok::<_, Failure>(Arc::new(source))
        };
        let [of_before, of_after] = self.formulas();
        let is_by_formula = of_before.is_some() || of_after.is_some();
        let before_source = source_of(self.before_data.as_ref(), of_before)?;
        let after_source = source_of(None, of_after)?;
        if !self.are_asked() {
            // Pages and tools accept neither a second directory nor formulas.
            let more = runtime.map_or("", |_| {
                "; or --before-data, the directory of the earlier period; or a formula for a side, --before-where or \
                 --after-where"
            });
            return Err(Failure::needs_more(format!(
                "{verb} needs two periods: --before and --after, each a range such as 2h..1h or requests with an \
                 attribute, such as service.version=1.4{more}"
            )));
        }
        let mut before = Self::period(
            ("--before", self.before.as_deref()),
            reading,
            &before_source,
        )?;
        let mut after = Self::period(("--after", self.after.as_deref()), reading, &after_source)?;
        let is_one_store = self.before_data.is_none() && !is_by_formula;
        if is_one_store && before.only.is_none() && after.only.is_none() {
            let (old, new) = (&mut before.selection.range, &mut after.selection.range);
            // A missing period is the time before or after the given one.
            if self.before.is_none() {
                old.until_ns = new.since_ns;
            } else if self.after.is_none() {
                new.since_ns = old.until_ns;
            }
            if let Some(overlap) = overlap(*old, *new) {
                return Err(Failure::asked(overlap));
            }
        }
        Ok(Periods {
            before,
            after,
            _directories: directories,
        })
    }

    /// Returns the formulas of both periods. If only one period has a formula, the other one gets
    /// its negation, so no request is in both.
    fn formulas(&self) -> [Option<(String, Formula)>; 2] {
        let others = |of: &(String, Formula)| {
            let (text, formula) = of.clone();
            (format!("not ({text})"), Formula::Not(Box::new(formula)))
        };
        let (before, after) = (self.before_where.clone(), self.after_where.clone());
        [
            before.clone().or_else(|| after.as_ref().map(others)),
            after.or_else(|| before.as_ref().map(others)),
        ]
    }

    fn period(
        (name, period): (&str, Option<&str>),
        reading: &ReadingArguments,
        source: &Arc<Source>,
    ) -> Result<PeriodOf, Failure> {
        let mut selection = reading.selection()?;
        let mut only = None;
        match period {
            None => {}
            Some(text) if text.contains("..") => {
                selection.range = parse_range(text).map_err(|expected| {
                    Failure::asked(format!("{name} {text}: expected {expected}"))
                })?;
            }
            Some(text) => {
                let (attribute, value) = text.split_once('=').ok_or_else(|| {
                    Failure::asked(format!(
                        "{name} {text}: expected a range such as 2h..1h, or an attribute and its value, such as service.version=1.4"
                    ))
                })?;
                only = Some((Attribute::named(attribute), value.to_owned()));
            }
        }
        Ok(PeriodOf {
            source: source.clone(),
            selection,
            only,
        })
    }
}

/// Returns the conjunction of two formulas, or the only one; `None` if there is none.
fn both(a: Option<(String, Formula)>, b: Option<(String, Formula)>) -> Option<(String, Formula)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((
            format!("({}) and ({})", a.0, b.0),
            Formula::And(Box::new(a.1), Box::new(b.1)),
        )),
        (a, b) => a.or(b),
    }
}

/// Returns an error text if the periods overlap. Requests in both periods would hide differences.
fn overlap(before: TimeRange, after: TimeRange) -> Option<String> {
    let from_ns = before.since_ns.max(after.since_ns);
    let until = [before.until_ns, after.until_ns]
        .into_iter()
        .flatten()
        .min();
    let is_apart =
        matches!((from_ns, until), (Some(from_ns), Some(until_ns)) if until_ns <= from_ns);
    (!is_apart).then(|| {
        "--before and --after overlap: give two ranges that share no time, such as --before 2h..1h --after 1h.. (UTC where no \
         offset is given)"
            .to_owned()
    })
}

/// Parses a part: a number from 0 to 1, or a percentage.
fn parse_part(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let part = number.parse::<f64>().map(|number| number / unit);
    part.ok()
        .filter(|part| (0.0..=1.0).contains(part))
        .ok_or_else(|| {
            "a part is a number from 0 to 1 or a percentage, such as 0.05 or 5%".to_owned()
        })
}
