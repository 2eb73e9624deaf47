//! Timelines as JSON. Times are ns; instants are ns since the Unix epoch.

use serde_json::{Map, Value, json};
use stroboscope_analysis::kernel::by_operation::OperationSum;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::summary::{CallSum, call_name};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_kernel_model::export;

use stroboscope_query::KernelPart;
use stroboscope_query::request_tree::tree;
use stroboscope_query::timeline::{KernelOverview, TimelineView};

/// `burst`, of which a part is shown, if one was asked for; `requests` with their `spans` and `segments`; `kernel`, one element for each recording: what was recorded, with the
/// owner (trace's low half) and its span for everything.
pub(super) fn view(view: &TimelineView) -> Value {
    let burst = view.burst.map(|burst| {
        json!({
            "open_ns": burst.burst_ns.0,
            "close_ns": burst.burst_ns.1,
            "shown_from_ns": burst.shown_ns.0,
            "shown_to_ns": burst.shown_ns.1,
        })
    });
    json!({
        "burst": burst,
        "requests": view.requests.iter().map(request).collect::<Vec<_>>(),
        "kernel": view.kernel.iter().map(part).collect::<Vec<_>>(),
    })
}

fn request(records: &TraceRecords) -> Value {
    let spans: Vec<Value> = tree(records)
        .iter()
        .map(|node| {
            let segments = node.segments.iter().map(|segment| {
                json!({"start": &*segment.start, "end": &*segment.end, "start_ns": segment.start_ns,
                    "end_ns": segment.end_ns})
            });
            json!({
                "span": format!("{:016x}", node.span.span_id),
                "parent": format!("{:016x}", node.span.parent_id),
                "depth": node.depth,
                "operation": node.operation(),
                "host": &*node.span.host,
                "start_ns": node.span.start_ns,
                "end_ns": node.span.end_ns,
                "segments": segments.collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({"trace": records.name.as_deref().map_or_else(|| records.id.to_string(), str::to_owned),
        "trace_id": records.id.to_string(), "spans": spans})
}

fn part(part: &KernelPart) -> Value {
    let mut value = export::json(&part.timeline, &part.clocks, part.architecture);
    if let Some(keys) = value.as_object_mut() {
        keys.insert("host".into(), part.host.clone().into());
        keys.insert("recording".into(), format!("{:032x}", part.recording).into());
        keys.insert("events".into(), part.events.len().into());
        keys.insert("lost".into(), part.lost.total().into());
    }
    value
}

/// Sums over everything.
pub(super) fn overview(overview: &KernelOverview) -> Value {
    let architecture = overview.architecture;
    let calls: Vec<Value> = overview.calls.iter().map(|row| export::call_json(row, architecture)).collect();
    json!({
        "recordings": overview.recordings,
        "windows": overview.windows,
        "events": overview.events,
        "lost": overview.lost,
        "whole_requests": overview.whole,
        "requests": overview.requests.iter()
            .map(|request| export::request_json(request, &|_| None, architecture)).collect::<Vec<_>>(),
        "calls_per_request": calls,
        "operations": overview.operations.iter().map(|row| operation(row, architecture)).collect::<Vec<_>>(),
    })
}

fn operation(row: &OperationSum, architecture: Architecture) -> Value {
    let call = |(&call, sum): (&u32, &CallSum)| {
        let CallSum { count, total_ns, max_ns, failed } = *sum;
        let value = json!({"count": count, "per_request": row.calls_per_request(sum), "total_ns": total_ns,
            "max_ns": max_ns, "failed": failed});
        (call_name(call, architecture), value)
    };
    json!({
        "operation": row.operation,
        "requests": row.requests,
        "spans": row.spans,
        "spans_per_request": row.spans_per_request(),
        "spans_max": row.spans_max,
        "one_by_one_requests": row.one_by_one,
        "on_cpu_ns": row.sum.on_cpu_ns,
        "runnable_ns": row.sum.runnable_ns,
        "blocked_ns": row.sum.blocked_ns,
        "calls": row.sum.calls.iter().map(call).collect::<Map<_, _>>(),
    })
}
