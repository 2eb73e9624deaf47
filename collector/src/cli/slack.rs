//! `slack`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::aggregate::PathStatistics;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::slack_validation::{SlackBucket, heat_cell_ns};
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, ServerArguments};
use super::critical_path::distribution_json;
use super::infer::prepare;
use super::output::{Table, print, print_json};
use super::strata::{cdf_json, cdf_text};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::query::{SlackCheck, aggregate, check_slack};

/// Say which segments could take longer at no cost
///
/// Slack is by how much a segment may grow, all else staying the same, before its request takes longer. Segments are
/// listed by their median slack, the largest first.
///
/// With --validate: whether slack means what it says. Requests are put into buckets of about equal size by the slack of
/// their last server segment. In those with little slack a slower server should make a slower request, and in those with
/// much it should not: the correlation of server time and latency should fall from bucket to bucket.
#[derive(Debug, Args)]
pub struct Slack {
    #[command(flatten)]
    reading: ReadingArguments,
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

impl Slack {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (source, selection, inference) = prepare(&self.reading, runtime)?;
        if self.validate || self.cdf {
            let buckets = usize::from(self.buckets);
            let server = self.server.rule();
            let check = check_slack(&source, selection, &inference, &server, buckets).map_err(Failure::of)?;
            return self.print_check(&check);
        }
        let paths = aggregate(&source, selection, &inference).map_err(Failure::of)?;
        let labels = inference.model.labels();
        let mut segments: Vec<(SegmentId, &PathStatistics)> = paths.aggregate.segments().collect();
        segments
            .sort_by_key(|(id, statistics)| (std::cmp::Reverse(statistics.slack.percentiles().p50_ns), *id));
        let traces = paths.aggregate.traces();
        let critical = |statistics: &PathStatistics| statistics.critical_traces as f64 / traces.max(1) as f64;
        if self.reading.json {
            let segment = |(id, statistics): &(SegmentId, &PathStatistics)| {
                let label = labels.get(*id);
                json!({
                    "segment": id.0,
                    "task": label.map(|label| &*label.task),
                    "start": label.map(|label| &*label.start),
                    "end": label.map(|label| &*label.end),
                    "occurrences": statistics.occurrences,
                    "critical_share": critical(statistics),
                    "slack": distribution_json(&statistics.slack),
                    "duration": distribution_json(&statistics.duration),
                })
            };
            let mut keys = notes::keys(&paths.notes);
            keys.insert("used_traces".into(), traces.into());
            keys.insert("segments".into(), segments.iter().map(segment).collect::<Vec<Value>>().into());
            print_json(&keys.into())?;
        } else {
            let top = if self.top == 0 { usize::MAX } else { self.top };
            let mut table = Table::new(&["slack p50", "p95", "takes p50", "critical in", "segment"]);
            for (id, statistics) in segments.iter().take(top) {
                let slack = statistics.slack.percentiles();
                table.row(vec![
                    duration(slack.p50_ns as f64),
                    duration(slack.p95_ns as f64),
                    duration(statistics.duration.percentiles().p50_ns as f64),
                    percent(critical(statistics)),
                    labels.get(*id).map_or_else(|| format!("segment {}", id.0), ToString::to_string),
                ]);
            }
            print(&format!("{traces} requests\n{}", table.render()))?;
        }
        Ok(notes::tell(&paths.notes))
    }

    fn print_check(&self, check: &SlackCheck) -> Result<Status, Failure> {
        if self.reading.json {
            let mut keys = notes::keys(&check.notes);
            keys.insert("used_traces".into(), check.slack.count().into());
            keys.insert("without_server".into(), check.without_server.into());
            keys.insert("slack".into(), distribution_json(&check.slack));
            if self.cdf {
                keys.insert("slack_cdf".into(), cdf_json(&check.slack));
            }
            if self.validate {
                keys.insert("buckets".into(), buckets_json(check).into());
            }
            print_json(&keys.into())?;
        } else {
            let mut parts = Vec::new();
            if self.validate {
                parts.push(buckets_text(check));
            }
            if self.cdf {
                parts.push(cdf_text("Slack of the last server segment", &check.slack));
            }
            if check.without_server > 0 {
                parts.push(format!("{} requests without server time were left out.", check.without_server));
            }
            print(&parts.join("\n\n"))?;
        }
        Ok(notes::tell(&check.notes))
    }
}

/// Buckets with their correlation (figure 10), and how server time and latency lie in each (figure 9).
fn buckets_json(check: &SlackCheck) -> Vec<Value> {
    let bucket = |bucket: &SlackBucket| {
        let cell = |((server, latency), requests): (&(u8, u8), &u64)| {
            json!([heat_cell_ns(*server), heat_cell_ns(*latency), requests])
        };
        json!({
            "slack_max_ns": bucket.slack_max_ns.min(check.slack.max_ns()),
            "requests": bucket.requests,
            "correlation": bucket.correlation(),
            "server_latency_requests": bucket.heat.iter().map(cell).collect::<Vec<_>>(),
        })
    };
    check.validation.buckets().iter().map(bucket).collect()
}

fn buckets_text(check: &SlackCheck) -> String {
    let mut table = Table::new(&["slack up to", "requests", "correlation"]);
    for bucket in check.validation.buckets() {
        let correlation = bucket.correlation();
        table.row(vec![
            duration(bucket.slack_max_ns.min(check.slack.max_ns()) as f64),
            bucket.requests.to_string(),
            correlation.map_or_else(|| "-".to_owned(), |correlation| format!("{correlation:.2}")),
        ]);
    }
    format!(
        "Correlation of server time and latency, by slack; it should fall\n{}\n{} requests",
        table.render(),
        check.slack.count()
    )
}
