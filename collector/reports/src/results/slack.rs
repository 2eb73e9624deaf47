//! Segments by their slack, shared by `slack`, `merge` and `report`.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::Serialize;

use crate::latency::Latency;
use crate::study::NamedInference;
use stroboscope_query::{Notes, Paths};
use stroboscope_render::humanise::duration;
use stroboscope_render::roots::requests_text;
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, SegmentName};

/// Segments by their median slack, the largest first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SlackList {
    #[serde(flatten)]
    pub(crate) notes: Notes,
    used_traces: u64,
    #[serde(skip)]
    requests_text: String,
    segments: Vec<SegmentSlack>,
    #[serde(skip)]
    top: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SegmentSlack {
    #[serde(flatten)]
    segment: SegmentName,
    occurrences: u64,
    critical_share: f64,
    slack: Latency,
    duration: Latency,
    /// Id of the request in which an instance of the segment has the most slack; `None` if no
    /// instance has slack.
    #[serde(skip)]
    example: Option<String>,
}

rows! {
    SegmentSlack as row, "slack": "A segment, and how much it may grow before its request takes longer.";
    segment: Segment, "segment" = &row.segment;
    slack_p50_ns: DurationNs, "slack p50" = row.slack.p50_ns;
    slack_p95_ns: DurationNs, "p95" = row.slack.p95_ns;
    duration_p50_ns: DurationNs, "takes p50" = row.duration.p50_ns;
    critical_share: Share, "critical in" = row.critical_share;
    example: Request, "most in" = row.example.as_deref();
}

impl SlackList {
    /// Ranks the segments of all requests' paths by their median slack. Leaves out those that
    /// always end after the response. Shows up to `top`, or all if it is 0.
    pub fn of(paths: &Paths, known: NamedInference<'_>, top: usize) -> Self {
        let aggregate = &paths.aggregate;
        let traces = aggregate.traces();
        // A segment that always ends after the response has no slack, because the request does not
        // wait for it.
        let with_slack = aggregate
            .segments()
            .filter(|(_, statistics)| statistics.slack.count() > 0);
        let mut segments: Vec<SegmentSlack> = with_slack
            .map(|(id, statistics)| SegmentSlack {
                segment: known.name(id),
                occurrences: statistics.occurrences.rounded(),
                critical_share: statistics.critical_traces.share_of(traces),
                slack: Latency::of(&statistics.slack),
                duration: Latency::of(&statistics.duration),
                example: paths.slack_examples.get(&id).map(ToString::to_string),
            })
            .collect();
        segments.sort_by_key(|of| (Reverse(of.slack.p50_ns), of.segment.id()));
        Self {
            notes: paths.notes.clone(),
            used_traces: traces.rounded(),
            requests_text: requests_text(traces),
            segments,
            top: if top == 0 { usize::MAX } else { top },
        }
    }

    /// Describes a use of the largest median slack among the segments that requests seldom wait
    /// for; `None` if no such segment has a median above 0.
    fn use_text(&self) -> Option<String> {
        let seldom = |of: &&SegmentSlack| of.critical_share < 0.5 && of.slack.p50_ns > 0;
        let most = self.segments.iter().find(seldom)?;
        let [slack, takes] = [&most.slack, &most.duration].map(|of| duration(of.p50_ns as f64));
        Some(format!(
            "{} takes {takes}, and in half of its requests {slack} more would make no request slower: its work may run later, at a \
             lower priority or on a slower machine.",
            most.segment.short()
        ))
    }

    pub fn show(&self, doc: &mut Doc) {
        doc.sentences(self.use_text());
        let title = format!("Slack of segments in {}", self.requests_text);
        doc.table(title, &self.segments, self.top);
    }
}
