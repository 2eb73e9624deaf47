//! Exports timelines as JSON, with times in ns since the Unix epoch and ids of traces and spans as
//! 16 hexadecimal digits.

use serde_json::{Value, json as object};
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::summary::{
    self, CallPerRequest, RequestSummary, call_name, reason_name,
};
use stroboscope_analysis::kernel::timeline::{LockWait, Owner, ReleaseEvidence, Timeline};

use crate::clock::ClockLog;

fn id(owner: Owner) -> Value {
    match owner {
        Owner::Request(request) => Value::String(format!("{:016x}", request.trace)),
        Owner::Nobody => Value::Null,
        Owner::Unknown => Value::String("unknown".into()),
    }
}

fn span(owner: Owner) -> Option<String> {
    owner
        .request()
        .map(|request| format!("{:016x}", request.span))
}

/// Returns a timeline as one JSON object: `windows`, `requests`, `calls_per_request`, `calls`,
/// `on_cpu`, `off_cpu`, `lock_waits`, `threads`, `gaps`, `implied_switches`, `unknown_markers`. An
/// owner is a trace id's low half, `null` for no request, or `"unknown"`.
#[must_use]
pub fn json(timeline: &Timeline, clocks: &ClockLog, architecture: Architecture) -> Value {
    let wall = |at_ns: u64| clocks.wall_ns(at_ns);
    let maybe = |at_ns: Option<u64>| at_ns.map(wall);
    let requests = summary::requests(timeline, architecture);
    let rows = summary::calls_per_request(&requests);
    let all = |values: Vec<Value>| Value::Array(values);
    object!({
        "windows": all(timeline.windows.iter().map(|window| object!({
            "open_ns": wall(window.open_ns), "close_ns": wall(window.close_ns)})).collect()),
        "requests": all(requests.iter().map(|request| request_json(request, &|ns| Some(wall(ns)), architecture)).collect()),
        "calls_per_request": all(rows.iter().map(|row| call_json(row, architecture)).collect()),
        "calls": all(timeline.calls.iter().map(|call| object!({
            "tid": call.tid, "call": call_name(call.call, architecture), "args": call.args,
            "start_ns": wall(call.start_ns), "end_ns": maybe(call.end_ns), "result": call.result,
            "owner": id(call.owner), "span": span(call.owner)})).collect()),
        "on_cpu": all(timeline.on_cpu.iter().map(|on| object!({
            "tid": on.tid, "cpu": on.cpu, "start_ns": wall(on.start_ns), "end_ns": wall(on.end_ns),
            "owner": id(on.owner), "span": span(on.owner)})).collect()),
        "off_cpu": all(timeline.off_cpu.iter().map(|off| object!({
            "tid": off.tid, "start_ns": wall(off.start_ns), "wake_ns": maybe(off.wake_ns), "end_ns": maybe(off.end_ns),
            "owner": id(off.owner), "span": span(off.owner), "reason": reason_name(off.reason, architecture),
            "end_implied": off.is_end_implied,
            "waker": off.waker.map(|waker| object!({"tid": waker.tid, "owner": id(waker.owner),
                "call": waker.call.map(|call| call_name(call, architecture))}))})).collect()),
        "lock_waits": all(timeline.lock_waits.iter().map(|wait| of_wait(wait, &wall)).collect()),
        "threads": all(timeline.threads.iter().map(|(tid, info)| object!({
            "tid": tid, "process": info.process, "tid_in_process": info.tid_in_process,
            "name": info.name.to_string()})).collect()),
        "gaps": all(timeline.gaps.iter().map(|gap| object!({
            "cpu": gap.cpu, "start_ns": wall(gap.start_ns), "end_ns": wall(gap.end_ns),
            "events": gap.counts.total()})).collect()),
        "implied_switches": timeline.implied_switches,
        "unknown_markers": timeline.unknown_markers,
    })
}

/// Returns the statistics of a system call over many requests as JSON.
#[must_use]
pub fn call_json(row: &CallPerRequest, architecture: Architecture) -> Value {
    object!({
        "call": call_name(row.call, architecture), "requests": row.requests, "mean_count": row.mean_count,
        "max_count": row.max_count, "mean_ns": row.mean_ns, "count": row.sum.count, "total_ns": row.sum.total_ns,
        "max_ns": row.sum.max_ns, "failed": row.sum.failed})
}

/// Returns the JSON of a request; `wall` converts monotonic time to wall time, if that is known.
#[must_use]
pub fn request_json(
    request: &RequestSummary,
    wall: &dyn Fn(u64) -> Option<i64>,
    architecture: Architecture,
) -> Value {
    let blocked: serde_json::Map<String, Value> =
        request
            .blocked_ns
            .iter()
            .fold(serde_json::Map::new(), |mut map, (&reason, &ns)| {
                // All futexes have one name here, so their times add up.
                let entry = map
                    .entry(reason_name(reason, architecture))
                    .or_insert(Value::from(0_u64));
                *entry = Value::from(entry.as_u64().unwrap_or(0) + ns);
                map
            });
    let held = |holder: &Option<u64>| match holder {
        Some(0) => Value::Null,
        Some(trace) => Value::String(format!("{trace:016x}")),
        None => Value::String("unknown".into()),
    };
    object!({
        "trace": format!("{:016x}", request.trace),
        "first_ns": wall(request.first_ns), "last_ns": wall(request.last_ns),
        "seen_ns": request.last_ns.saturating_sub(request.first_ns), "threads": request.threads,
        "on_cpu_ns": request.on_cpu_ns, "runnable_ns": request.runnable_ns, "blocked_ns": blocked,
        "locks": request.lock_ns.iter().map(|(holder, ns)| object!({"holder": held(holder), "wait_ns": ns}))
            .collect::<Vec<_>>(),
        "calls": request.calls.iter().map(|(&call, sum)| object!({
            "call": call_name(call, architecture), "count": sum.count, "total_ns": sum.total_ns,
            "max_ns": sum.max_ns, "failed": sum.failed})).collect::<Vec<_>>(),
        "cut": request.is_cut,
    })
}

fn of_wait(wait: &LockWait, wall: &impl Fn(u64) -> i64) -> Value {
    let evidence = wait.evidence.map(|evidence| match evidence {
        ReleaseEvidence::Marker => "marker",
        ReleaseEvidence::Wake => "wake",
        ReleaseEvidence::Call => "call",
    });
    object!({
        "tid": wait.tid, "owner": id(wait.owner), "span": span(wait.owner), "lock": format!("{:#x}", wait.lock), "marked": wait.is_marked,
        "start_ns": wall(wait.start_ns), "end_ns": wait.end_ns.map(wall), "evidence": evidence,
        "holders": wait.releases.iter().map(|release| object!({
            "tid": release.tid, "owner": id(release.owner), "released_ns": wall(release.ts_ns)})).collect::<Vec<_>>(),
    })
}
