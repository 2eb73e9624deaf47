//! `explain`

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
use stroboscope_present::show::TableSpec;
use stroboscope_query::{Explained, HowCompared, explain_change};

/// Say which parameters tell requests with a change from those without
///
/// Attributes, of spans and of events, up to the operation at which the requests part, are asked about by a decision tree
/// (C4.5), grown from a part of the requests and judged by others. Precision and recall are counted among all requests.
/// Ids, timestamps, identities of processes and all else that differs in every request are left out, and consequences: measured times
/// where times changed, and descriptions of failures where requests fail. `failures` tells failed requests from others without two
/// periods.
#[derive(Debug, Args)]
pub struct ExplainVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    #[command(flatten)]
    periods: PeriodArguments,
    /// Explain the cause of this rank
    #[arg(
        long,
        value_name = "RANK",
        default_value_t = 1,
        conflicts_with = "mutation"
    )]
    cause: usize,
    /// Explain the mutation of this rank instead
    #[arg(long, value_name = "RANK")]
    mutation: Option<usize>,
    /// Leave out a parameter, such as count, or "count (web:read)"; can be repeated
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Another number takes other requests for the sample
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
            Some(rank) => Explained::Mutation(rank),
            None => Explained::Cause(self.cause),
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
            Explained::Cause(rank) => cause_in_words(comparison, rank),
            Explained::Mutation(rank) => mutation_in_words(comparison, rank),
        };
        let found = explain_change(periods.both(), how, which, &settings, &describe)
            .map_err(Failure::of)?;
        ExplainedSays::of(found, &settings, (&periods.after, &self.reading))
    }
}

impl ReadingVerb for ExplainVerb {
    type Report = ExplainedSays;
    /// Without two periods there is nothing to explain.
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
