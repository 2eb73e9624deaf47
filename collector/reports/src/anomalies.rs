//! The `anomalies` subcommand.

use clap::Args;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments, parse_share};
use crate::results::anomalies::{Anomalies, AnomalyRow};
use crate::shard::ShardArguments;
use crate::study::NamedStudy;
use crate::verb::ReadingVerb;
use crate::{Failure, Status};
use stroboscope_query::{AnomalyQuestion, ShardReport};
use stroboscope_render::show::{Row as _, TableSpec};

/// Show what is different about slow requests
///
/// Compares each segment's share of the critical path in the slowest requests with that in the
/// others. The effect is Cohen's d; q is the p-value of Welch's t-test, corrected for the number of
/// segments by the rule of Benjamini and Hochberg. The rank depends first on whether the share is
/// larger in slow requests, then on whether it differs significantly (q up to 0.05), then on the
/// size of the gain.
#[derive(Debug, Args)]
pub struct AnomaliesVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Share of the requests that count as slow
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    slowest: f64,
    /// Maximum number of segments to show; 0 shows all. Otherwise, text and pages omit segments
    /// that do not differ significantly, or by less than half a percent of the critical path
    #[arg(long, value_name = "COUNT", default_value_t = TOP)]
    top: usize,
    #[command(flatten)]
    shard: ShardArguments,
}

/// Default of `--top`.
pub const TOP: usize = 25;

impl ReadingVerb for AnomaliesVerb {
    type Report = Anomalies;
    const TABLES: &'static [TableSpec] = &[AnomalyRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<Anomalies, Failure> {
        let found = study.ask(&AnomalyQuestion(self.slowest))?;
        Ok(Anomalies::of(found, study.known()?, self.top))
    }

    fn run_shard(&self, runtime: &Runtime) -> Option<Result<Status, Failure>> {
        let question = AnomalyQuestion(self.slowest);
        let asked = (&question, ShardReport::Anomalies(self.slowest));
        let given = (&self.reading, &self.show);
        self.shard.run(given, asked, runtime, |found, known| {
            Anomalies::of(found, known, self.top)
        })
    }
}
