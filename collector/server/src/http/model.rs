//! `/api/model`: the live model, as JSON. Segments have the format of `infer --json`; relations are
//! pairs of segment ids. Timestamps are as recorded; if `clocks_differ` is true, orders across
//! hosts may be wrong.

use serde_json::{Value, json};
use stroboscope_analysis::model::Relation;

use crate::live::{LiveCounts, LiveModel, Snapshot};
use stroboscope_render::roots::roots_json;

/// Renders the live model as JSON. May take some milliseconds, so async code must not call it.
pub(super) fn render(live: &LiveModel) -> Value {
    let Snapshot {
        model,
        counts,
        roots,
        from_ns,
        refused_labels,
        clocks_differ,
    } = live.snapshot();
    let relations = model.relations(0.0);
    let pairs = |relations: &[Relation]| -> Vec<Value> {
        relations
            .iter()
            .map(|relation| json!([relation.first.0, relation.second.0]))
            .collect()
    };
    let segments: Vec<Value> = model
        .labels()
        .iter()
        .map(|(id, label)| {
            let seen = model.segment_counts(id);
            json!({
                "id": id.0,
                "task": &*label.task,
                "start": &*label.start,
                "end": &*label.end,
                "count": seen.occurrences,
                "traces": seen.traces,
            })
        })
        .collect();
    let pipelines: Vec<Value> = relations
        .all_pipelines()
        .iter()
        .map(|p| json!({"first": &*p.first, "second": &*p.second, "elements": p.elements}))
        .collect();
    let LiveCounts {
        open_traces,
        open_records,
        late_records,
        early_traces,
        skipped_records,
        ..
    } = counts;
    let left_out = counts.left_out;
    json!({
        "traces": counts.traces,
        "complete_traces": counts.complete_traces,
        "incomplete": counts.incomplete,
        "open_traces": open_traces,
        "open_records": open_records,
        "late_records": late_records,
        "early_traces": early_traces,
        "skipped_records": skipped_records,
        "left_out": {
            "outside_requests": left_out.outside_requests,
            "over_trace_limit": left_out.over_trace_limit,
            "span_missing": left_out.span_missing,
            "no_span_no_task": left_out.no_span_no_task,
            "copies": left_out.copies,
            "unreadable_attributes": left_out.unreadable_attributes,
        },
        "window_from_ns": from_ns,
        "refused_segments": refused_labels,
        "clocks_differ": clocks_differ,
        "roots": roots_json(&roots),
        "segments": segments,
        "happens_before": pairs(relations.all_happens_before()),
        "mutual_exclusion": pairs(relations.all_mutual_exclusion()),
        "pipelines": pipelines,
    })
}
