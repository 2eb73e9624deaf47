//! Critical path of one request.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::critical_path::{LateStep, SegmentTiming};

use super::links::{Across, Links};
use crate::results::figures::request_figure;
use crate::study::NamedInference;
use crate::verb::Report;
use stroboscope_query::{LinkedPath, Notes, TraceAnswer};
use stroboscope_render::humanise::duration;
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, Figure, SegmentName};

const TIMELINE: &str = "What ran when";

/// Critical path of one request, with a timeline and the notes of the reading.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NotedRequest {
    // The requests that `--each` prints have no notes.
    #[serde(flatten)]
    #[schemars(with = "Option<Notes>")]
    notes: Notes,
    #[serde(flatten)]
    request: Request,
    /// Links to spans of other requests; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<Links>,
    /// Links of other requests' spans to this request; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    followed_by: Option<Links>,
    /// Path across traces; absent without `--follow-links`.
    #[serde(skip_serializing_if = "Option::is_none")]
    across: Option<Across>,
    #[serde(skip)]
    timeline: Figure,
}

/// Critical path of one request.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Request {
    trace: String,
    trace_id: String,
    root: Option<String>,
    start_ns: i64,
    latency_ns: u64,
    critical_path_ns: u64,
    tail_wait_ns: u64,
    after_answer_ns: u64,
    after_answer: Option<After>,
    segments: Vec<Timing>,
}

/// Work that continued after the response.
#[derive(Debug, Serialize, JsonSchema)]
struct After {
    duration_ns: u64,
    path: Vec<Step>,
    tail_wait_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Step {
    segment: u32,
    index: usize,
    wait_ns: u64,
    duration_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Timing {
    #[serde(flatten)]
    segment: SegmentName,
    start_ns: i64,
    end_ns: i64,
    wait_ns: u64,
    critical: bool,
    slack_ns: u64,
    after_answer: bool,
    #[serde(skip)]
    from_ns: u64,
    #[serde(skip)]
    duration_ns: u64,
    /// True if the segment is on the critical path, of the request or of the work after its
    /// response.
    #[serde(skip)]
    is_on_path: bool,
}

impl Request {
    pub(super) fn of(answer: &TraceAnswer, known: NamedInference<'_>) -> Self {
        let path = &answer.path;
        let step = |step: &LateStep| Step {
            segment: path.segments[step.index].segment.0,
            index: step.index,
            wait_ns: step.wait_ns,
            duration_ns: step.duration_ns,
        };
        let after_answer = path.after_answer.as_ref().map(|after| After {
            duration_ns: after.duration_ns,
            path: after.path.iter().map(step).collect(),
            tail_wait_ns: after.tail_wait_ns,
        });
        let is_late = |index| {
            path.after_answer
                .iter()
                .any(|after| after.path.iter().any(|step| step.index == index))
        };
        let timing = |(index, timing): (usize, &SegmentTiming)| Timing {
            segment: known.name(timing.segment),
            start_ns: timing.start_ns,
            end_ns: timing.end_ns,
            wait_ns: timing.wait_ns,
            critical: timing.critical,
            slack_ns: timing.slack_ns,
            after_answer: timing.after_answer,
            from_ns: u64::try_from(timing.start_ns.saturating_sub(answer.start_ns)).unwrap_or(0),
            duration_ns: timing.duration_ns(),
            is_on_path: timing.critical || is_late(index),
        };
        Self {
            trace: answer.label(),
            trace_id: answer.id.to_string(),
            root: answer.root.clone(),
            start_ns: answer.start_ns,
            latency_ns: path.latency_ns,
            critical_path_ns: path.critical_path_ns,
            tail_wait_ns: path.tail_wait_ns,
            after_answer_ns: after_answer.as_ref().map_or(0, |after| after.duration_ns),
            after_answer,
            segments: path.segments.iter().enumerate().map(timing).collect(),
        }
    }

    fn show(&self, doc: &mut Doc) {
        let root = self.root.as_ref();
        let root = root.map_or_else(String::new, |root| format!(" of {root}"));
        doc.heading(format!(
            "Trace {}{root}: {}",
            self.trace,
            duration(self.latency_ns as f64)
        ));
        let of = |late: bool| {
            self.segments
                .iter()
                .filter(move |timing| timing.after_answer == late)
        };
        doc.table("", of(false), usize::MAX);
        if self.tail_wait_ns > 0 {
            let tail = duration(self.tail_wait_ns as f64);
            doc.sentence(format!(
                "After the last segment, the request went on for {tail}."
            ));
        }
        if let Some(after) = &self.after_answer {
            let title = format!(
                "After the answer, which waited for none of this: {} more, with slack up to its own end",
                duration(after.duration_ns as f64)
            );
            doc.table(title, of(true), usize::MAX);
        }
    }
}

rows! {
    Timing as row, "request": "A segment of one request.";
    segment: Segment, "segment" = &row.segment;
    from_ns: DurationNs, "from" = row.from_ns;
    duration_ns: DurationNs, "takes" = row.duration_ns;
    wait_ns: DurationNs, "after waiting" = row.wait_ns;
    slack_ns: DurationNs, "slack" = row.slack_ns;
    critical: Flag, "critical" = row.is_on_path;
}

impl NotedRequest {
    /// Describes one request with its links and a timeline of its segments.
    pub(super) fn of(linked: &LinkedPath, known: NamedInference<'_>, notes: Notes) -> Self {
        let labels = known.inference.model.labels();
        let across = linked.across.as_ref();
        Self {
            notes,
            request: Request::of(&linked.answer, known),
            follows: Links::of(&linked.follows, false),
            followed_by: Links::of(&linked.followers, true),
            across: across.map(|across| Across::of(across, known)),
            timeline: request_figure(TIMELINE, &linked.answer.path, labels),
        }
    }
}

impl Report for NotedRequest {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        self.request.show(doc);
        doc.figures([self.timeline.clone()]);
        if let Some(follows) = &self.follows {
            follows.show("Spans that it links to", doc);
        }
        if let Some(followed_by) = &self.followed_by {
            followed_by.show("Spans that link to it", doc);
        }
        if let Some(across) = &self.across {
            across.show(doc);
        }
    }
}
