//! Formats timelines and statistics as text tables.

use std::fmt::Write;

use stroboscope_analysis::kernel::by_operation::OperationSum;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::summary::{
    CallPerRequest, RequestSummary, call_name, reason_name,
};
use stroboscope_analysis::kernel::timeline::{LockWait, Owner, Reason, Timeline};

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

fn owner(owner: Owner) -> String {
    match owner {
        Owner::Request(request) => format!("{:016x}", request.trace),
        Owner::Nobody => "-".to_owned(),
        Owner::Unknown => "?".to_owned(),
    }
}

/// Returns a header and one line for each request, with the parts of its time in µs.
#[must_use]
pub fn request_table(requests: &[RequestSummary], architecture: Architecture) -> String {
    let mut text = format!(
        "{:16} {:>10} {:>7} {:>10} {:>10} {:>10} {:>10} {:>6}  most blocked in\n",
        "request", "seen us", "threads", "on cpu", "runnable", "blocked", "locks", "calls"
    );
    for request in requests {
        let blocked: u64 = request.blocked_ns.values().sum();
        let most = request.blocked_ns.iter().max_by_key(|&(_, ns)| ns);
        let calls: u64 = request.calls.values().map(|sum| sum.count).sum();
        let _ = writeln!(
            text,
            "{:016x} {:>10} {:>7} {:>10} {:>10} {:>10} {:>10} {:>6}  {}{}",
            request.trace,
            us(request.last_ns - request.first_ns),
            request.threads,
            us(request.on_cpu_ns),
            us(request.runnable_ns),
            us(blocked),
            us(request.lock_ns.values().sum()),
            calls,
            most.map_or_else(
                || "-".to_owned(),
                |(&reason, _)| reason_name(reason, architecture)
            ),
            if request.is_cut { " (cut)" } else { "" },
        );
    }
    text
}

/// Returns a header and one line for each of `rows`: a system call and its statistics over many
/// requests.
#[must_use]
pub fn calls_table(rows: &[CallPerRequest], architecture: Architecture) -> String {
    let mut text = format!(
        "{:20} {:>9} {:>14} {:>8} {:>14} {:>10} {:>8}\n",
        "system call",
        "requests",
        "per request",
        "at most",
        "us per request",
        "longest us",
        "failed"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:20} {:>9} {:>14.2} {:>8} {:>14.1} {:>10} {:>8}",
            call_name(row.call, architecture),
            row.requests,
            row.mean_count,
            row.max_count,
            row.mean_ns / 1e3,
            us(row.sum.max_ns),
            row.sum.failed,
        );
    }
    text
}

/// Returns a header and one line for each operation over many requests, with its most frequent
/// system calls, at most 6.
#[must_use]
pub fn operations_table(rows: &[OperationSum], architecture: Architecture) -> String {
    let mut text = format!(
        "{:>9} {:>11} {:>7} {:>10} {:>9} {:>11} {:>10}  operation: calls per request\n",
        "requests",
        "per request",
        "at most",
        "one by one",
        "us on cpu",
        "us runnable",
        "us blocked"
    );
    for row in rows {
        let mut calls: Vec<_> = row.sum.calls.iter().collect();
        calls.sort_by_key(|(call, sum)| (std::cmp::Reverse(sum.count), **call));
        let calls: Vec<String> = calls
            .into_iter()
            .take(CALLS_SHOWN)
            .map(|(&call, sum)| {
                format!(
                    "{} {:.1}",
                    call_name(call, architecture),
                    row.calls_per_request(sum)
                )
            })
            .collect();
        let mean_us = |ns: u64| ns as f64 / 1e3 / row.requests.max(1) as f64;
        let _ = writeln!(
            text,
            "{:>9} {:>11.1} {:>7} {:>8.0} % {:>9.1} {:>11.1} {:>10.1}  {}: {}",
            row.requests,
            row.spans_per_request(),
            row.spans_max,
            100.0 * row.one_by_one as f64 / row.requests.max(1) as f64,
            mean_us(row.sum.on_cpu_ns),
            mean_us(row.sum.runnable_ns),
            mean_us(row.sum.blocked_ns),
            row.operation,
            if calls.is_empty() {
                "none".to_owned()
            } else {
                calls.join(", ")
            },
        );
    }
    text
}

/// Maximum number of calls named for one operation.
const CALLS_SHOWN: usize = 6;

/// Returns a header and one line for each system call, absence from the processor and marked lock
/// wait, in order of time; then one line for each gap. Starts are in µs since `origin_ns`
/// (monotonic), durations in µs.
#[must_use]
pub fn timeline_table(timeline: &Timeline, origin_ns: u64, architecture: Architecture) -> String {
    let mut lines: Vec<(u64, u32, Option<u64>, Owner, String)> = Vec::new();
    for call in &timeline.calls {
        let result = call
            .result
            .map_or_else(|| "…".to_owned(), |result| result.to_string());
        let began = if call.args.is_none() {
            " (began earlier)"
        } else {
            ""
        };
        let what = format!("{} = {result}{began}", call_name(call.call, architecture));
        lines.push((call.start_ns, call.tid, call.end_ns, call.owner, what));
    }
    for off in &timeline.off_cpu {
        let by = off
            .waker
            .map_or_else(String::new, |waker| match waker.call {
                Some(call) => {
                    format!(
                        ", woken by {} of thread {} in {}",
                        owner(waker.owner),
                        waker.tid,
                        call_name(call, architecture)
                    )
                }
                None => ", woken by an interrupt".to_owned(),
            });
        let why = if off.reason == Reason::Preempted {
            "off cpu: preempted"
        } else {
            "off cpu: waits in"
        };
        let reason = if off.reason == Reason::Preempted {
            String::new()
        } else {
            format!(" {}", reason_name(off.reason, architecture))
        };
        lines.push((
            off.start_ns,
            off.tid,
            off.end_ns,
            off.owner,
            format!("{why}{reason}{by}"),
        ));
    }
    for wait in timeline.lock_waits.iter().filter(|wait| wait.is_marked) {
        lines.push((
            wait.start_ns,
            wait.tid,
            wait.end_ns,
            wait.owner,
            held_by(wait),
        ));
    }
    lines.sort_by_key(|line| (line.0, line.1));
    let mut text = format!(
        "{:>12} {:>12} {:>8} {:16} what\n",
        "from us", "took us", "thread", "request"
    );
    for (start_ns, tid, end_ns, its, what) in lines {
        let from = (start_ns.cast_signed() - origin_ns.cast_signed()) as f64 / 1e3;
        let took = end_ns.map_or_else(
            || "…".to_owned(),
            |end_ns| us(end_ns.saturating_sub(start_ns)),
        );
        let _ = writeln!(
            text,
            "{from:>12.1} {took:>12} {tid:>8} {:16} {what}",
            owner(its)
        );
    }
    for gap in &timeline.gaps {
        let _ = writeln!(
            text,
            "{} events of processor {} are missing",
            gap.counts.total(),
            gap.cpu
        );
    }
    text
}

fn held_by(wait: &LockWait) -> String {
    let holders: Vec<String> = wait
        .releases
        .iter()
        .map(|release| format!("{} (thread {})", owner(release.owner), release.tid))
        .collect();
    match holders.len() {
        0 => format!("waits for lock {:#x}", wait.lock),
        1 => format!("waits for lock {:#x}, held by {}", wait.lock, holders[0]),
        _ => format!(
            "waits for lock {:#x}, held by each of {}",
            wait.lock,
            holders.join(", ")
        ),
    }
}
