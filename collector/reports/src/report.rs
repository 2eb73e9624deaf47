//! The `report` subcommand.

mod page;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::convergence::LineLimit;
use tokio::runtime::Runtime;

use self::page::PageInput;
use crate::arguments::{CategoryArguments, ReadingArguments};
use crate::output::{print_as_is, print_json, terminal_view};
use crate::periods::PeriodArguments;
use crate::results::anomalies::Anomalies;
use crate::results::compare::ComparisonReport;
use crate::results::critical_path::Aggregate;
use crate::results::slack::SlackList;
use crate::results::strata::BrokenDown;
use crate::results::tradeoffs::{LogSays, PolicySays, TradeoffsSay, read_policy};
use crate::roots::{RootRow, root_rows, show_roots};
use crate::study::{NamedStudy, Reader};
use crate::{Failure, Status, notes};
use stroboscope_query::{
    AnomalyQuestion, BreakdownQuestion, HowCompared, InferSettings, Notes, OverviewQuestion,
    PathsQuestion, StrataRule, tradeoffs,
};
use stroboscope_render::page::to_page_of_sections;
use stroboscope_render::roots::requests_text;
use stroboscope_render::show::Doc;

/// Write all findings to one HTML page with pictures
///
/// The page is self-contained and loads nothing. Its only script sorts and filters tables, and
/// moves graphs. It shows latency, the critical path by operation and category next to summed
/// delay, and example requests as timelines. It also shows what is different about slow requests,
/// slack, the causal model as a graph and its convergence, the hosts' clocks, and what was lost or
/// left out. With --before or --after, it also shows what changed between two periods, as `compare`
/// does.
#[derive(Debug, Args)]
pub struct ReportVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    /// File to write the page to
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// Number of traces between two points of the model's convergence; by default, each time that
    /// the number of traces has grown by a thirty-second
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    convergence_every: Option<u64>,
    /// Also show categories for each value, or each fifth, of this attribute of requests;
    /// repeatable
    #[arg(long, value_name = "ATTRIBUTE")]
    by: Vec<String>,
    #[command(flatten)]
    categories: CategoryArguments,
    #[command(flatten)]
    periods: PeriodArguments,
    /// Also show the models of this policy of tradeoffs, and the observed omissions, which takes
    /// one more pass over the store
    #[arg(long, value_name = "FILE")]
    tradeoffs: Option<PathBuf>,
}

/// Default denominator of the convergence's initial pace: a point is due each time that the number
/// of traces has grown by one part in this many, and by one at least. Even a large store gets only
/// some hundreds of points, most of them early, when the model changes most.
const CONVERGENCE_PART: u64 = 32;

/// Share of requests that count as slow, as in `anomalies` without arguments.
const SLOWEST: f64 = 0.05;
/// Maximum number of segments to show that differ in slow requests.
const DIFFERENT_SHOWN: usize = 15;
/// Maximum number of changed categories to show.
const MUTATIONS_SHOWN: usize = 10;
/// Maximum number of segments or operations in other tables.
const SEGMENTS_SHOWN: usize = 50;

impl ReportVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let pace = self
            .convergence_every
            .map_or(LineLimit::OneIn(CONVERGENCE_PART), LineLimit::Traces);
        let reader = Reader::of_terminal(runtime.handle());
        let study = NamedStudy::with(&self.reading, Some(pace), &reader)?;
        let rule = self.categories.rule();
        let by = |attribute: &String| BreakdownQuestion {
            rule: rule.clone(),
            by: Some(StrataRule {
                attribute: attribute.clone(),
                quantiles: None,
            }),
        };
        let strata: Vec<BreakdownQuestion> = self.by.iter().map(by).collect();
        let slow = AnomalyQuestion(SLOWEST);
        let asked = (
            (OverviewQuestion(rule.clone()), PathsQuestion(rule.clone())),
            (slow, strata),
        );
        let ((overview, paths), (slow, strata)) = study.ask(&asked)?;
        let known = study.known()?;
        let inference = known.inference;
        let strata = self.by.iter().zip(strata);
        let input = PageInput {
            known,
            changed: self.changed(&study, runtime)?,
            tradeoffs: self.given_up(&study)?,
            slack: SlackList::of(&paths, known, SEGMENTS_SHOWN),
            // All pictures use the same colours for categories.
            aggregate: Aggregate::of(paths, known, SEGMENTS_SHOWN)
                .with_categories(overview.categories.names()),
            strata: strata
                .map(|(by, found)| BrokenDown::of(found, known, Some(by), false))
                .collect(),
            anomalies: Anomalies::of(slow, known, DIFFERENT_SHOWN),
            recorded: study.source().recorded().map_err(Failure::of)?,
            overview: &overview,
        };
        let title = study.source().name();
        let made_at =
            chrono::DateTime::<chrono::Utc>::from(SystemTime::now()).format("%Y-%m-%d %H:%M UTC");
        let about = format!(
            "{title} · made {made_at} by stroboscope {}",
            env!("CARGO_PKG_VERSION")
        );
        let page = to_page_of_sections(&title, "Critical paths", &about, &input.sections());
        std::fs::write(&self.html, &page).map_err(|error| {
            Failure::new(format!(
                "cannot write the page to {}: {error}",
                self.html.display()
            ))
        })?;
        let requests = overview.aggregate.traces();
        if self.reading.from.json {
            print_json(&WrittenPage {
                notes: &overview.notes,
                used_traces: requests.rounded(),
                roots: root_rows(&inference.roots, None),
                html: &self.html,
                bytes: page.len(),
            })?;
        } else {
            let mut doc = Doc::new();
            show_roots(&root_rows(&inference.roots, None), &mut doc);
            let html = self.html.display();
            doc.sentence(format!("{}; the page is {html}", requests_text(requests)));
            print_as_is(&terminal_view().render(&doc))?;
        }
        Ok(notes::tell(&overview.notes))
    }

    /// Returns the models of the policy and the log of omissions; nothing without `--tradeoffs`.
    fn given_up(&self, study: &NamedStudy) -> Result<Vec<TradeoffsSay>, Failure> {
        let Some(path) = &self.tradeoffs else {
            return Ok(Vec::new());
        };
        let policy = read_policy(path)?;
        let models = PolicySays::of(&policy, Vec::new(), Notes::default());
        let (observed, notes) =
            tradeoffs(study.source(), study.selection()).map_err(Failure::of)?;
        Ok(vec![
            TradeoffsSay::Policy(Box::new(models)),
            TradeoffsSay::Log(Box::new(LogSays::of(&observed, notes))),
        ])
    }

    /// Compares the two periods, if requested.
    fn changed(
        &self,
        study: &NamedStudy,
        runtime: &Runtime,
    ) -> Result<Option<ComparisonReport>, Failure> {
        if !self.periods.are_asked() {
            return Ok(None);
        }
        let periods = self
            .periods
            .open("report", study, &self.reading, Some(runtime))?;
        let infer = InferSettings {
            convergence: None,
            ..study.inner().settings().clone()
        };
        let how = HowCompared {
            infer: &infer,
            flow: self.periods.flow.settings(),
            compare: &self.periods.settings(),
        };
        periods.compare(how, MUTATIONS_SHOWN).map(Some)
    }
}

/// Report on the written page, and on the data in it.
#[derive(Serialize, JsonSchema)]
pub struct WrittenPage<'a> {
    #[serde(flatten)]
    notes: &'a Notes,
    used_traces: u64,
    roots: Vec<RootRow>,
    html: &'a Path,
    bytes: usize,
}
