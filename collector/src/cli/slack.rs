//! `slack`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::aggregate::PathStatistics;
use stroboscope_analysis::label::SegmentId;
use tokio::runtime::Runtime;

use super::arguments::ReadingArguments;
use super::critical_path::distribution_json;
use super::infer::prepare;
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::query::aggregate;

/// Say which segments could take longer at no cost
///
/// Slack is by how much a segment may grow, all else staying the same, before its request takes longer. Segments are
/// listed by their median slack, the largest first.
#[derive(Debug, Args)]
pub struct Slack {
    #[command(flatten)]
    reading: ReadingArguments,
    /// Show so many segments; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
}

impl Slack {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (source, selection, inference) = prepare(&self.reading, runtime)?;
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
}
