//! The `slack` subcommand.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::slack_validation::{SlackBucket, heat_cell_ns};
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ServerArguments, ShowArguments};
use crate::latency::{CdfPoint, CdfRow, Latency, cdf, cdf_rows};
use crate::results::figures::slack_figure;
use crate::results::no_slack;
use crate::results::slack::{SegmentSlack, SlackList};
use crate::shard::ShardArguments;
use crate::study::{NamedInference, NamedStudy};
use crate::verb::{ReadingVerb, Report};
use crate::{Failure, Status};
use stroboscope_query::{Notes, Paths, PathsQuestion, ShardReport, SlackCheck, check_slack};
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, Figure, Row, TableSpec};

/// Show which segments could take longer at no cost
///
/// Slack is the time by which a segment may grow, all else being equal, before its request takes
/// longer. Segments are listed by their median slack, the largest first.
///
/// With --validate, checks the predictions of slack. Groups requests into buckets of about equal
/// size by the slack of their last server segment. A slower server should cause a slower request in
/// buckets with little slack, but not in buckets with much slack. The correlation of server time
/// and latency should therefore fall from bucket to bucket.
#[derive(Debug, Args)]
pub struct Slack {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Maximum number of segments to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = TOP)]
    top: usize,
    /// Validate slack by the natural variation of requests
    #[arg(long, conflicts_with_all = ["shard", "cluster"])]
    validate: bool,
    /// With --validate, number of buckets
    #[arg(long, value_name = "COUNT", default_value_t = 20, requires = "validate", value_parser = clap::value_parser!(u16).range(2..=1000))]
    buckets: u16,
    /// Show the distribution of the slack of requests' last server segment: by how much their
    /// responses could have come later
    #[arg(long, conflicts_with_all = ["shard", "cluster"])]
    cdf: bool,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    shard: ShardArguments,
}

/// Default of `--top`.
pub const TOP: usize = 25;

impl ReadingVerb for Slack {
    type Report = SlackReport;
    const TABLES: &'static [TableSpec] = &[SegmentSlack::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<SlackReport, Failure> {
        if self.validate || self.cdf {
            let buckets = usize::from(self.buckets);
            let server = self.server.rule();
            let check = check_slack(study.inner(), &server, buckets);
            let checked = self.checked(check.map_err(Failure::of)?);
            return Ok(SlackReport::Check(Box::new(checked)));
        }
        let paths = study.ask(&PathsQuestion::default())?;
        Ok(SlackReport::of(&paths, study.known()?, self.top))
    }

    fn run_shard(&self, runtime: &Runtime) -> Option<Result<Status, Failure>> {
        let asked = (&PathsQuestion::default(), ShardReport::Slack);
        let given = (&self.reading, &self.show);
        self.shard.run(given, asked, runtime, |paths, known| {
            SlackReport::of(&paths, known, self.top)
        })
    }
}

impl Slack {
    fn checked(&self, check: SlackCheck) -> SlackCheckReport {
        let bucket = |bucket: &SlackBucket| Bucket::of(bucket, check.slack.max_ns());
        SlackCheckReport {
            used_traces: check.slack.count(),
            without_server: check.without_server,
            why_no_slack: no_slack(&check.slack),
            slack_cdf: self.cdf.then(|| cdf(&check.slack)),
            cdf_rows: if self.cdf {
                cdf_rows(&check.slack)
            } else {
                Vec::new()
            },
            figure: (self.cdf && check.slack.count() > 0).then(|| slack_figure(&check.slack)),
            buckets: self
                .validate
                .then(|| check.validation.buckets().iter().map(bucket).collect()),
            slack: Latency::of(&check.slack),
            notes: check.notes,
        }
    }
}

/// Slack of segments, or the distribution or validation of slack.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SlackReport {
    Segments(Box<SlackList>),
    Check(Box<SlackCheckReport>),
}

/// Distribution of slack, its validation, or both. Validation: buckets with their correlation of
/// server time and latency (Chow et al., OSDI 2014, figure 10), and the distribution of both times
/// in each bucket (figure 9).
#[derive(Debug, Serialize, JsonSchema)]
pub struct SlackCheckReport {
    #[serde(flatten)]
    notes: Notes,
    used_traces: u64,
    without_server: u64,
    slack: Latency,
    why_no_slack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slack_cdf: Option<Vec<CdfPoint>>,
    #[serde(skip)]
    cdf_rows: Vec<CdfRow>,
    #[serde(skip)]
    figure: Option<Figure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<Bucket>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Bucket {
    slack_max_ns: u64,
    requests: u64,
    correlation: Option<f64>,
    /// Server time in ns, latency in ns, and number of requests.
    server_latency_requests: Vec<(u64, u64, u64)>,
}

impl Bucket {
    fn of(bucket: &SlackBucket, max_ns: u64) -> Self {
        let cell = |((server, latency), requests): (&(u8, u8), &u64)| {
            (heat_cell_ns(*server), heat_cell_ns(*latency), *requests)
        };
        Self {
            slack_max_ns: bucket.slack_max_ns.min(max_ns),
            requests: bucket.requests,
            correlation: bucket.correlation(),
            server_latency_requests: bucket.heat.iter().map(cell).collect(),
        }
    }
}

rows! {
    Bucket as row, "slack_validation": "Requests of about the same slack, and whether a slower server makes them slower.";
    slack_max_ns: DurationNs, "slack up to" = row.slack_max_ns;
    requests: Count, "requests" = row.requests;
    correlation: Number, "correlation" = row.correlation;
}

impl SlackReport {
    /// Creates the report on the segments of all requests.
    pub fn of(paths: &Paths, known: NamedInference<'_>, top: usize) -> Self {
        Self::Segments(Box::new(SlackList::of(paths, known, top)))
    }
}

impl Report for SlackReport {
    fn notes(&self) -> &Notes {
        match self {
            Self::Segments(list) => &list.notes,
            Self::Check(check) => &check.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Segments with slack");
        match self {
            Self::Segments(list) => list.show(doc),
            Self::Check(check) => check.show(doc),
        }
    }
}

impl SlackCheckReport {
    fn show(&self, doc: &mut Doc) {
        if let Some(buckets) = &self.buckets {
            doc.table(
                "Correlation of server time and latency, by slack; it should fall",
                buckets,
                usize::MAX,
            );
            doc.sentence(counted(self.used_traces, "request"));
        }
        doc.figures(self.figure.clone());
        doc.table(
            "Slack of the last server segment",
            &self.cdf_rows,
            usize::MAX,
        );
        doc.sentence(self.why_no_slack.clone().unwrap_or_default());
        if self.without_server > 0 {
            doc.sentence(format!(
                "Left out: {} without server time.",
                counted(self.without_server, "request")
            ));
        }
    }
}
