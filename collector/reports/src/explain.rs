//! The `explain` subcommand.

use clap::Args;
use stroboscope_analysis::compare::Comparison;
use stroboscope_analysis::explain::ExplainSettings;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::periods::PeriodArguments;
use crate::results::compare::{cause_in_words, mutation_in_words};
use crate::results::explain::ExplainedSays;
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, give};
use crate::{Failure, Status};
use stroboscope_query::{ExplainSubject, HowCompared, explain_change};
use stroboscope_render::show::TableSpec;

/// Show which parameters distinguish requests with a change from those without
///
/// A decision tree (C4.5) splits requests by hosts and by attributes of spans and events, up to the
/// point where the requests diverge. It is grown from two thirds of a sample of requests, and
/// tested on the last third. Precision and recall are relative to all requests. The tree ignores
/// ids, timestamps, counters and identities of processes. It also ignores consequences: measured
/// times if times changed, and descriptions of failures if requests fail. If times changed in only
/// some of the later requests, a second tree separates these from the other later ones. It may use
/// identities of processes that are not known by name, as a slow process may be the cause.
/// `failures` distinguishes failed requests from others without two periods.
#[derive(Debug, Args)]
pub struct ExplainVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    #[command(flatten)]
    periods: PeriodArguments,
    /// Rank of the cause to explain
    #[arg(
        long,
        value_name = "RANK",
        default_value_t = 1,
        conflicts_with = "mutation"
    )]
    cause: usize,
    /// Rank of the mutation to explain, instead of a cause
    #[arg(long, value_name = "RANK")]
    mutation: Option<usize>,
    /// Leave out a parameter, such as count, or "count (web:read)"; repeatable
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Seed of the sample of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

impl ExplainVerb {
    fn explained(
        &self,
        study: &NamedStudy,
        runtime: Option<&Runtime>,
    ) -> Result<ExplainedSays, Failure> {
        let periods = self
            .periods
            .open("explain", study, &self.reading, runtime)?;
        let which = match self.mutation {
            Some(rank) => ExplainSubject::Mutation(rank),
            None => ExplainSubject::Cause(self.cause),
        };
        let settings = ExplainSettings {
            seed: self.seed,
            without: self.without.iter().cloned().collect(),
            ..ExplainSettings::default()
        };
        let how = HowCompared {
            infer: study.inner().settings(),
            flow: self.periods.flow.settings(),
            compare: &self.periods.settings(),
        };
        let describe = |comparison: &Comparison| match which {
            ExplainSubject::Cause(rank) => cause_in_words(comparison, rank),
            ExplainSubject::Mutation(rank) => mutation_in_words(comparison, rank),
        };
        let found = explain_change(periods.both(), how, which, &settings, &describe)
            .map_err(Failure::of)?;
        ExplainedSays::of(found, &settings, (&periods.after, &self.reading))
    }
}

impl ReadingVerb for ExplainVerb {
    type Report = ExplainedSays;
    /// Empty, because SQL cannot pass the two periods to explain.
    const TABLES: &'static [TableSpec] = &[];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<ExplainedSays, Failure> {
        self.explained(study, None)
    }

    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let study = NamedStudy::of(&self.reading, runtime.handle())?;
        give(
            &self.explained(&study, Some(runtime))?,
            &self.reading.from,
            &self.show,
        )
    }
}
