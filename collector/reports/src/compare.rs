//! The `compare` subcommand.

use clap::Args;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::periods::PeriodArguments;
use crate::regression::{GateArguments, GatedReport};
use crate::results::compare::ComparisonReport;
use crate::study::NamedStudy;
use crate::verb::ReadingVerb;
use crate::{Failure, Status};
use stroboscope_query::HowCompared;
use stroboscope_render::show::TableSpec;

/// Show what changed between two periods, and why
///
/// Groups requests into categories of equal structure. Compares the times at each place of the
/// critical path, between requests that do the same there (rank tests), and the shares of
/// structures. Changes due to one operation or one difference of structure form one cause, and
/// causes are related to the whole change. Counts failed requests by root operation and by the
/// origin of their failures, including incomplete requests.
#[derive(Debug, Args)]
pub struct CompareVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    #[command(flatten)]
    periods: PeriodArguments,
    /// Maximum number of mutations to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    gate: GateArguments,
}

impl CompareVerb {
    fn compared(
        &self,
        study: &NamedStudy,
        runtime: Option<&Runtime>,
    ) -> Result<GatedReport<ComparisonReport>, Failure> {
        let periods = self
            .periods
            .open("compare", study, &self.reading, runtime)?;
        let how = HowCompared {
            infer: study.inner().settings(),
            flow: self.periods.flow.settings(),
            compare: &self.periods.settings(),
        };
        let compared = periods.compare(how, self.top)?;
        Ok(GatedReport::of(compared, &self.gate))
    }
}

impl ReadingVerb for CompareVerb {
    type Report = GatedReport<ComparisonReport>;
    /// Empty, because SQL cannot pass the two periods to compare.
    const TABLES: &'static [TableSpec] = &[];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<Self::Report, Failure> {
        self.compared(study, None)
    }

    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let files = &self.gate.files;
        files.give("compare", &self.reading.from, &self.show, || {
            let study = NamedStudy::of(&self.reading, runtime.handle())?;
            self.compared(&study, Some(runtime))
        })
    }
}
