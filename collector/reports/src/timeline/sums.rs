//! Sums over all activities of the kernel.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use stroboscope_analysis::kernel::by_operation::OperationSum;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::summary::{
    CallPerRequest, CallSum, RequestSummary, call_name, reason_name,
};
use stroboscope_kernel_model::export;

use super::lock_json::LockJson;
use super::locks::show_locks;
use crate::verb::{Report, schema_is_of};
use stroboscope_query::Notes;
use stroboscope_query::timeline::KernelOverview;
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc};

/// Maximum number of calls to name for one operation.
const CALLS_SHOWN: usize = 6;

/// Sums over all recordings. System calls and operations cover only whole requests, if there are
/// any. Times in JSON are ns.
pub struct Sums {
    overview: KernelOverview,
    notes: Notes,
    /// Maximum number of rows of each table, except for that of system calls.
    top: usize,
}

impl Sums {
    pub fn of(mut overview: KernelOverview, top: usize) -> Self {
        let notes = Notes::of_unread(std::mem::take(&mut overview.damage), overview.large_traces);
        Self {
            overview,
            notes,
            top: if top == 0 { usize::MAX } else { top },
        }
    }
}

/// Sums over the activities of the kernel. `calls_per_request` and `operations` cover only whole
/// requests, if there are any.
#[derive(Serialize, JsonSchema)]
struct SumsJson<'a> {
    recordings: usize,
    windows: u64,
    events: u64,
    lost: u64,
    whole_requests: u64,
    requests: Vec<Value>,
    calls_per_request: Vec<Value>,
    operations: Vec<OperationJson<'a>>,
    /// Locks and futexes at which any request waited, longest total wait first.
    locks: Vec<LockJson<'a>>,
    /// Waits of threads that worked for no known request; most of these are usually idle.
    other_waits: OtherWaitsJson,
}

#[derive(Serialize, JsonSchema)]
struct OtherWaitsJson {
    waits: u64,
    total_ns: u64,
}

#[derive(Serialize, JsonSchema)]
struct OperationJson<'a> {
    operation: &'a str,
    requests: u64,
    spans: u64,
    spans_per_request: f64,
    spans_max: u64,
    one_by_one_requests: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    calls: Map<String, Value>,
}

impl Serialize for Sums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let overview = &self.overview;
        let architecture = overview.architecture;
        let request = |request| export::request_json(request, &|_| None, architecture);
        let sums = SumsJson {
            recordings: overview.recordings,
            windows: overview.windows,
            events: overview.events,
            lost: overview.lost,
            whole_requests: overview.whole,
            requests: overview.requests.iter().map(request).collect(),
            calls_per_request: overview
                .calls
                .iter()
                .map(|row| export::call_json(row, architecture))
                .collect(),
            operations: overview
                .operations
                .iter()
                .map(|row| OperationJson::of(row, architecture))
                .collect(),
            locks: overview
                .locks
                .iter()
                .map(|row| LockJson::of(row, &overview.ids))
                .collect(),
            other_waits: OtherWaitsJson {
                waits: overview.other_waits.waits,
                total_ns: overview.other_waits.total_ns,
            },
        };
        sums.serialize(serializer)
    }
}

schema_is_of!(Sums, SumsJson<'_>);

impl<'a> OperationJson<'a> {
    fn of(row: &'a OperationSum, architecture: Architecture) -> Self {
        let call = |(&call, sum): (&u32, &CallSum)| {
            let per_request = row.calls_per_request(sum);
            let value = json!({"count": sum.count, "per_request": per_request, "total_ns": sum.total_ns,
                "max_ns": sum.max_ns, "failed": sum.failed});
            (call_name(call, architecture), value)
        };
        Self {
            operation: &row.operation,
            requests: row.requests,
            spans: row.spans,
            spans_per_request: row.spans_per_request(),
            spans_max: row.spans_max,
            one_by_one_requests: row.one_by_one,
            on_cpu_ns: row.sum.on_cpu_ns,
            runnable_ns: row.sum.runnable_ns,
            blocked_ns: row.sum.blocked_ns,
            calls: row.sum.calls.iter().map(call).collect(),
        }
    }
}

/// Time of one request by state, as a row of a table.
struct RequestRow<'a>(&'a RequestSummary, Architecture);

rows! {
    RequestRow<'_> as row, "kernel_requests": "A request, and its time by state as the kernel saw it.";
    {
        let Self(request, architecture) = *row;
        let waited_ns: u64 = request.lock_ns.values().sum();
        let most = request.blocked_ns.iter().max_by_key(|&(_, ns)| ns);
        let most = most.map(|(&reason, _)| reason_name(reason, architecture));
    }
    request: Request, "request" = format!("{:016x}", request.trace).as_str();
    seen_ns: DurationNs, "seen" = request.last_ns.saturating_sub(request.first_ns) as f64;
    threads: Count, "threads" = request.threads as u64;
    on_cpu_ns: DurationNs, "on CPU" = request.on_cpu_ns;
    runnable_ns: DurationNs, "runnable" = request.runnable_ns;
    blocked_ns: DurationNs, "blocked" = request.blocked_ns.values().sum::<u64>() as f64;
    lock_wait_ns: DurationNs, "marked locks" = (waited_ns > 0).then_some(waited_ns as f64);
    calls: Count, "calls" = request.calls.values().map(|sum| sum.count).sum::<u64>();
    cut: Flag, "cut" = request.is_cut;
    most_blocked_in: Text, "most blocked in" = most.as_deref();
}

/// One system call over many requests, as a row of a table.
struct CallRow<'a>(&'a CallPerRequest, Architecture);

rows! {
    CallRow<'_> as row, "kernel_calls": "A system call, over the requests that make it.";
    {
        let Self(row, architecture) = *row;
    }
    call: Text, "system call" = call_name(row.call, architecture).as_str();
    requests: Count, "requests" = row.requests;
    mean_count: Mean, "per request" = row.mean_count;
    max_count: Count, "at most" = row.max_count;
    mean_ns: DurationNs, "time per request" = row.mean_ns;
    max_ns: DurationNs, "longest" = row.sum.max_ns;
    failed: Count, "failed" = row.sum.failed;
}

/// Kernel's work for one operation, as a row of a table.
struct OperationRow<'a>(&'a OperationSum, Architecture);

rows! {
    OperationRow<'_> as row, "kernel_operations":
        "An operation, and the work of the kernel for it in a mean request that has it.";
    {
        let Self(row, architecture) = *row;
        let mut calls: Vec<(&u32, &CallSum)> = row.sum.calls.iter().collect();
        calls.sort_by_key(|(call, sum)| (Reverse(sum.count), **call));
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
        let mean = |ns: u64| Cell::from(ns as f64 / row.requests.max(1) as f64);
    }
    operation: Text, "operation" = &*row.operation;
    requests: Count, "requests" = row.requests;
    spans_per_request: Mean, "per request" = row.spans_per_request();
    spans_max: Count, "at most" = row.spans_max;
    one_by_one_share: Share, "one by one" = row.one_by_one as f64 / row.requests.max(1) as f64;
    on_cpu_mean_ns: DurationNs, "on CPU" = mean(row.sum.on_cpu_ns);
    runnable_mean_ns: DurationNs, "runnable" = mean(row.sum.runnable_ns);
    blocked_mean_ns: DurationNs, "blocked" = mean(row.sum.blocked_ns);
    calls: Text, "calls per request" = (!calls.is_empty()).then(|| calls.join(", ")).as_deref();
}

impl Report for Sums {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let overview = &self.overview;
        let architecture = overview.architecture;
        doc.heading(format!(
            "{} of the kernel in {} of {}, {} lost",
            counted(overview.events, "event"),
            counted(overview.windows, "window"),
            counted(overview.recordings as u64, "recording"),
            overview.lost
        ));
        let whole = overview.whole;
        let of_these = match whole {
            0 => "",
            _ => ": the sums of calls and by operation are of these",
        };
        let requests = overview.requests.len();
        doc.sentence(format!(
            "{}, {whole} of them whole in one window{of_these}",
            counted(requests as u64, "request"),
        ));
        let mut longest: Vec<RequestRow<'_>> = overview
            .requests
            .iter()
            .map(|request| RequestRow(request, architecture))
            .collect();
        longest.sort_by_key(|RequestRow(request, _)| {
            Reverse(request.on_cpu_ns + request.blocked_ns.values().sum::<u64>())
        });
        doc.table(
            "Where requests' time went, the busiest first",
            &longest,
            self.top,
        );
        show_locks(overview, self.top, doc);
        let calls = overview.calls.iter();
        let calls: Vec<_> = calls.map(|row| CallRow(row, architecture)).collect();
        doc.table(
            "System calls of a request, the most frequent first",
            &calls,
            usize::MAX,
        );
        let operations = overview.operations.iter();
        let operations = operations.map(|row| OperationRow(row, architecture));
        let operations: Vec<_> = operations.collect();
        let title = "By operation: calls repeated one by one are candidates for batching";
        doc.table(title, &operations, self.top);
    }
}
