//! `slack`

use std::borrow::Cow;
use std::cmp::Reverse;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::slack_validation::{SlackBucket, heat_cell_ns};

use super::Failure;
use super::arguments::{ReadingArguments, ServerArguments, ShowArguments};
use super::latency::{CdfPoint, CdfRow, Latency, cdf, cdf_rows};
use super::results::no_slack;
use super::study::Study;
use super::verb::{ReadingVerb, Report};
use stroboscope_present::humanise::counted;
use stroboscope_present::show::{Cell, Column, Doc, Kind, Row, SegmentName, TableSpec};
use stroboscope_query::{Notes, PathsQuestion, SlackCheck, check_slack};

/// Say which segments could take longer at no cost
///
/// Slack is by how much a segment may grow, all else staying the same, before its request takes longer. Segments are
/// listed by their median slack, the largest first.
///
/// With --validate: whether slack means what it says. Requests are put into buckets of about equal size by the slack of
/// their last server segment. In those with little slack a slower server should make a slower request, and in those with
/// much it should not: the correlation of server time and latency should fall from bucket to bucket.
#[derive(Debug, Args)]
pub(super) struct Slack {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Show so many segments; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
    /// Check slack by the natural variation of requests
    #[arg(long)]
    validate: bool,
    /// With --validate, put requests into so many buckets
    #[arg(long, value_name = "COUNT", default_value_t = 20, requires = "validate", value_parser = clap::value_parser!(u16).range(2..=1000))]
    buckets: u16,
    /// Show the distribution of the slack of requests' last server segment: by how much their answers could have come
    /// later
    #[arg(long)]
    cdf: bool,
    #[command(flatten)]
    server: ServerArguments,
}

impl ReadingVerb for Slack {
    type Report = SlackReport;
    const TABLES: &'static [TableSpec] = &[SegmentSlack::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &Study) -> Result<SlackReport, Failure> {
        if self.validate || self.cdf {
            let buckets = usize::from(self.buckets);
            let server = self.server.rule();
            let check = check_slack(study.inner(), &server, buckets);
            return Ok(SlackReport::Check(self.checked(check.map_err(Failure::of)?)));
        }
        let paths = study.ask(&PathsQuestion::default())?;
        let known = study.known()?;
        let traces = paths.aggregate.traces();
        // What only goes on after the answer has none: the request does not wait for it.
        let with_slack = paths.aggregate.segments().filter(|(_, statistics)| statistics.slack.count() > 0);
        let mut segments: Vec<SegmentSlack> = with_slack
            .map(|(id, statistics)| SegmentSlack {
                segment: known.name(id),
                occurrences: statistics.occurrences,
                critical_share: statistics.critical_traces as f64 / traces.max(1) as f64,
                slack: Latency::of(&statistics.slack),
                duration: Latency::of(&statistics.duration),
            })
            .collect();
        segments.sort_by_key(|of| (Reverse(of.slack.p50_ns), of.segment.id()));
        let list = SlackList { notes: paths.notes, used_traces: traces, segments, top: self.top };
        Ok(SlackReport::Segments(list))
    }
}

impl Slack {
    fn checked(&self, check: SlackCheck) -> Checked {
        let bucket = |bucket: &SlackBucket| Bucket::of(bucket, check.slack.max_ns());
        Checked {
            used_traces: check.slack.count(),
            without_server: check.without_server,
            why_no_slack: no_slack(&check.slack),
            slack_cdf: self.cdf.then(|| cdf(&check.slack)),
            cdf_rows: if self.cdf { cdf_rows(&check.slack) } else { Vec::new() },
            buckets: self.validate.then(|| check.validation.buckets().iter().map(bucket).collect()),
            slack: Latency::of(&check.slack),
            notes: check.notes,
        }
    }
}

/// Slack of segments, or a check of what slack says.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum SlackReport {
    Segments(SlackList),
    Check(Checked),
}

/// Segments, those with the least slack first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SlackList {
    #[serde(flatten)]
    notes: Notes,
    used_traces: u64,
    segments: Vec<SegmentSlack>,
    #[serde(skip)]
    top: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SegmentSlack {
    #[serde(flatten)]
    segment: SegmentName,
    occurrences: u64,
    critical_share: f64,
    slack: Latency,
    duration: Latency,
}

impl Row for SegmentSlack {
    const TABLE: TableSpec = TableSpec {
        name: "slack",
        about: "A segment, and by how much it may grow before its request takes longer.",
        columns: Cow::Borrowed(&[
            Column::new("segment", "segment", Kind::Segment),
            Column::new("slack_p50_ns", "slack p50", Kind::DurationNs),
            Column::new("slack_p95_ns", "p95", Kind::DurationNs),
            Column::new("duration_p50_ns", "takes p50", Kind::DurationNs),
            Column::new("critical_share", "critical in", Kind::Share),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&self.segment).into(),
            (self.slack.p50_ns as f64).into(),
            (self.slack.p95_ns as f64).into(),
            (self.duration.p50_ns as f64).into(),
            self.critical_share.into(),
        ]
    }
}

/// Buckets with their correlation (figure 10), and how server time and latency lie in each (figure 9).
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Checked {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<Bucket>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Bucket {
    slack_max_ns: u64,
    requests: u64,
    correlation: Option<f64>,
    /// Server time, latency, requests.
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

impl Row for Bucket {
    const TABLE: TableSpec = TableSpec {
        name: "slack_validation",
        about: "Requests of about the same slack, and whether a slower server makes them slower.",
        columns: Cow::Borrowed(&[
            Column::new("slack_max_ns", "slack up to", Kind::DurationNs),
            Column::new("requests", "requests", Kind::Count),
            Column::new("correlation", "correlation", Kind::Number),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![(self.slack_max_ns as f64).into(), self.requests.into(), self.correlation.into()]
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
        doc.heading("What could take longer unnoticed");
        match self {
            Self::Segments(list) => {
                let shown = if list.top == 0 { usize::MAX } else { list.top };
                doc.table(
                    format!("Slack of segments in {}", counted(list.used_traces, "request")),
                    &list.segments,
                    shown,
                );
            }
            Self::Check(check) => check.show(doc),
        }
    }
}

impl Checked {
    fn show(&self, doc: &mut Doc) {
        if let Some(buckets) = &self.buckets {
            doc.table(
                "Correlation of server time and latency, by slack; it should fall",
                buckets,
                usize::MAX,
            );
            doc.sentence(counted(self.used_traces, "request"));
        }
        doc.table("Slack of the last server segment", &self.cdf_rows, usize::MAX);
        doc.sentence(self.why_no_slack.clone().unwrap_or_default());
        if self.without_server > 0 {
            doc.sentence(format!("{} requests without server time were left out.", self.without_server));
        }
    }
}
