//! Timelines as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::DateTime;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::summary::{RequestSummary, call_name, reason_name, requests};
use stroboscope_analysis::kernel::timeline::{LockWait, Owner, Reason, Waker};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_kernel_model::export::{NamedSegment, calls_table, operations_table, request_table};

use super::short::sum_up;
use stroboscope_present::humanise::{duration, percent};
use stroboscope_query::KernelPart;
use stroboscope_query::request_tree::{SpanNode, tree};
use stroboscope_query::timeline::{BurstPart, KernelOverview, TimelineView};

/// Something the kernel did for a request. Times are wall time, ns.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) span: u64,
    pub(super) start_ns: i64,
    pub(super) end_ns: Option<i64>,
    pub(super) thread: String,
    pub(super) what: String,
    /// Time on a processor, and on which.
    pub(super) on_processor: Option<u16>,
}

fn owner_name(owner: Owner) -> String {
    match owner {
        Owner::Request(request) => format!("request {:016x}", request.trace),
        Owner::Nobody => "no request".to_owned(),
        Owner::Unknown => "a request that is not known".to_owned(),
    }
}

pub(super) fn took(ns: u64) -> String {
    duration(ns as f64)
}

/// The request's segments as slices for Perfetto.
pub(super) fn slices(view: &TimelineView) -> Vec<NamedSegment> {
    let mut slices = Vec::new();
    for records in &view.requests {
        for node in tree(records) {
            slices.extend(node.segments.iter().map(|segment| NamedSegment {
                trace: records.id.0 as u64,
                span: node.span.span_id,
                track: node.operation(),
                name: format!("{} … {}", segment.start, segment.end),
                start_ns: segment.start_ns,
                end_ns: segment.end_ns,
            }));
        }
    }
    slices
}

/// One request or one burst.
pub(super) fn view(view: &TimelineView) -> String {
    let mut text = view.burst.map_or_else(String::new, burst);
    for part in &view.kernel {
        let windows = &part.timeline.windows;
        let seen_ns: u64 = windows.iter().map(|window| window.close_ns - window.open_ns).sum();
        let missing: u64 = part.timeline.gaps.iter().map(|gap| gap.counts.total()).sum();
        let _ = writeln!(
            text,
            "kernel of {}: {} events in {} windows, {} together; {missing} events are missing in them",
            part.host,
            part.events.len(),
            windows.len(),
            took(seen_ns)
        );
    }
    for records in &view.requests {
        request(records, &view.kernel, &mut text);
    }
    others(view, &mut text);
    text.trim_end().to_owned()
}

/// Which part of which burst this is.
fn burst(part: BurstPart) -> String {
    let at = |at_ns: i64| {
        format!("{} ({at_ns})", DateTime::from_timestamp_nanos(at_ns).format("%Y-%m-%dT%H:%M:%S%.6fZ"))
    };
    let length = |(from_ns, to_ns): (i64, i64)| took(from_ns.abs_diff(to_ns));
    let (burst_ns, shown_ns) = (part.burst_ns, part.shown_ns);
    if !part.is_a_part() {
        return format!("burst of {} from {}\n", length(burst_ns), at(burst_ns.0));
    }
    let next = if shown_ns.1 < burst_ns.1 {
        format!("; --burst {} shows what comes next", shown_ns.1)
    } else {
        "; it ends there".to_owned()
    };
    format!(
        "{} of a burst of {} that opened at {}:\n  shown from {} to {}{next}\n",
        length(shown_ns),
        length(burst_ns),
        at(burst_ns.0),
        at(shown_ns.0),
        at(shown_ns.1),
    )
}

fn request(records: &TraceRecords, kernel: &[KernelPart], text: &mut String) {
    let low = records.id.0 as u64;
    let nodes = tree(records);
    let start_ns = records.spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
    let end_ns = records.spans.iter().map(|span| span.end_ns).max().unwrap_or(start_ns);
    let name = records.name.as_ref().map_or_else(|| records.id.to_string(), |name| name.to_string());
    let _ = writeln!(text, "\nrequest {name}: {}", took(end_ns.abs_diff(start_ns)));
    for part in kernel {
        if let Some(summary) = requests(&part.timeline, part.architecture).iter().find(|one| one.trace == low)
        {
            let _ = writeln!(text, "  {}: {}", part.host, summary_text(summary, part.architecture));
        }
    }
    let mut items: BTreeMap<u64, Vec<Item>> = BTreeMap::new();
    for item in kernel.iter().flat_map(|part| items_of(part, low)) {
        items.entry(item.span).or_default().push(item);
    }
    let _ = writeln!(text, "  {:>10}  {:>10}  what", "from", "takes");
    for node in &nodes {
        span(node, &items.remove(&node.span.span_id).unwrap_or_default(), start_ns, text);
    }
    for (span_id, items) in items {
        let _ = writeln!(text, "  {:>10}  {:>10}  span {span_id:016x}, which is not in the store", "", "");
        lines(items.iter(), start_ns, 1, text);
    }
}

fn summary_text(summary: &RequestSummary, architecture: Architecture) -> String {
    let mut parts = vec![
        format!("{} on CPU by {} threads", took(summary.on_cpu_ns), summary.threads),
        format!("{} runnable but waiting", took(summary.runnable_ns)),
    ];
    let mut blocked: BTreeMap<String, u64> = BTreeMap::new();
    for (&reason, ns) in &summary.blocked_ns {
        *blocked.entry(reason_name(reason, architecture)).or_default() += ns;
    }
    parts.extend(blocked.iter().map(|(reason, &ns)| format!("{} blocked in {reason}", took(ns))));
    parts.extend(summary.lock_ns.iter().map(|(holder, &ns)| {
        let holder = match holder {
            Some(0) => "no request".to_owned(),
            Some(trace) => format!("request {trace:016x}"),
            None => "somebody not known".to_owned(),
        };
        format!("{} waiting for locks held by {holder}", took(ns))
    }));
    let calls: u64 = summary.calls.values().map(|sum| sum.count).sum();
    parts.push(format!("{calls} system calls"));
    if summary.is_cut {
        parts.push("a window's edge cuts it".to_owned());
    }
    parts.join(", ")
}

/// What was done for one request, or for all of them (`0`).
fn items_of(part: &KernelPart, low: u64) -> Vec<Item> {
    let (timeline, clocks, architecture) = (&part.timeline, &part.clocks, part.architecture);
    let thread = |tid: u32| {
        let name = timeline.threads.get(&tid).map(|info| info.name.to_string()).unwrap_or_default();
        format!("{name} {tid}")
    };
    let item = |owner: Owner, tid: u32, start_ns: u64, end_ns: Option<u64>, what: String| {
        let span = owner.request().filter(|request| request.trace == low)?.span;
        let end_ns = end_ns.map(|end_ns| clocks.wall_ns(end_ns));
        let start_ns = clocks.wall_ns(start_ns);
        Some(Item { span, start_ns, end_ns, thread: thread(tid), what, on_processor: None })
    };
    let getpid = architecture.call_number("getpid");
    let calls = timeline.calls.iter().filter(|call| Some(call.call) != getpid).filter_map(|call| {
        let args = call.args.map_or_else(|| "…".to_owned(), |args| arguments(&args));
        let result = call.result.map_or_else(|| "…".to_owned(), |result| result.to_string());
        let name = call_name(call.call, architecture);
        item(call.owner, call.tid, call.start_ns, call.end_ns, format!("{name}({args}) = {result}"))
    });
    let on = timeline.on_cpu.iter().filter_map(|on| {
        let all = item(on.owner, on.tid, on.start_ns, Some(on.end_ns), format!("on CPU {}", on.cpu))?;
        Some(Item { on_processor: Some(on.cpu), ..all })
    });
    let off = timeline.off_cpu.iter().filter_map(|off| {
        let why = match off.reason {
            Reason::Preempted => "preempted".to_owned(),
            reason => format!("blocked in {}", reason_name(reason, architecture)),
        };
        let waited = match (off.wake_ns, off.end_ns) {
            (Some(wake_ns), Some(end_ns)) => {
                format!(", then {} until a CPU was free", took(end_ns.saturating_sub(wake_ns)))
            }
            _ => String::new(),
        };
        let by = off.waker.map_or_else(String::new, |waker| waker_text(&waker, &thread, architecture));
        item(off.owner, off.tid, off.start_ns, off.end_ns, format!("off CPU: {why}{by}{waited}"))
    });
    let waits =
        timeline.lock_waits.iter().filter(|wait| wait.is_marked).filter_map(|wait| {
            item(wait.owner, wait.tid, wait.start_ns, wait.end_ns, wait_text(wait, &thread))
        });
    let mut items: Vec<Item> = calls.chain(on).chain(off).chain(waits).collect();
    items.sort_by_key(|item| item.start_ns);
    items
}

fn waker_text(waker: &Waker, thread: &impl Fn(u32) -> String, architecture: Architecture) -> String {
    match waker.call {
        Some(call) => format!(
            ", woken by {} in {} (thread {})",
            owner_name(waker.owner),
            call_name(call, architecture),
            thread(waker.tid)
        ),
        None => ", woken by an interrupt".to_owned(),
    }
}

fn wait_text(wait: &LockWait, thread: &impl Fn(u32) -> String) -> String {
    let holders: Vec<String> = wait
        .releases
        .iter()
        .map(|release| format!("{} (thread {})", owner_name(release.owner), thread(release.tid)))
        .collect();
    match holders.as_slice() {
        [] => format!("waits for lock {:#x}; who held it was not seen", wait.lock),
        [one] => format!("waits for lock {:#x}, held by {one}", wait.lock),
        _ => format!("waits for lock {:#x}, held in turn by {}", wait.lock, holders.join(", ")),
    }
}

/// Small numbers as they are, addresses in hexadecimal; what stands behind the last argument that is not 0 is left out.
fn arguments(args: &[u64; 6]) -> String {
    let used = args.iter().rposition(|&arg| arg != 0).map_or(0, |last| last + 1);
    let one = |&arg: &u64| if arg < 1 << 20 { arg.to_string() } else { format!("{arg:#x}") };
    args[..used].iter().map(one).collect::<Vec<_>>().join(", ")
}

fn line(from_ns: i64, takes_ns: Option<u64>, depth: usize, what: &str, text: &mut String) {
    let sign = if from_ns < 0 { "-" } else { "" };
    let from = format!("{sign}{}", took(from_ns.unsigned_abs()));
    let takes = takes_ns.map_or_else(|| "…".to_owned(), took);
    let _ = writeln!(text, "  {from:>10}  {takes:>10}  {:indent$}{what}", "", indent = 2 * depth);
}

fn lines<'a>(items: impl Iterator<Item = &'a Item>, origin_ns: i64, depth: usize, text: &mut String) {
    for item in sum_up(items.collect()) {
        let takes_ns = item.end_ns.map(|end_ns| end_ns.abs_diff(item.start_ns));
        line(item.start_ns - origin_ns, takes_ns, depth, &format!("{}: {}", item.thread, item.what), text);
    }
}

/// A span, its segments, and under each what the kernel did in it.
fn span(node: &SpanNode<'_>, items: &[Item], origin_ns: i64, text: &mut String) {
    let (depth, span) = (node.depth, node.span);
    line(
        span.start_ns - origin_ns,
        Some(span.end_ns.abs_diff(span.start_ns)),
        depth,
        &node.operation(),
        text,
    );
    let mut rest = items.iter().peekable();
    for segment in &node.segments {
        let mut before = Vec::new();
        while let Some(item) = rest.next_if(|item| item.start_ns < segment.start_ns) {
            before.push(item);
        }
        lines(before.into_iter(), origin_ns, depth + 2, text);
        let what = format!("[{} … {}]", segment.start, segment.end);
        let takes_ns = segment.end_ns.abs_diff(segment.start_ns);
        line(segment.start_ns - origin_ns, Some(takes_ns), depth + 1, &what, text);
        let mut inside = Vec::new();
        while let Some(item) = rest.next_if(|item| item.start_ns < segment.end_ns) {
            inside.push(item);
        }
        lines(inside.into_iter(), origin_ns, depth + 2, text);
    }
    lines(rest, origin_ns, depth + 2, text);
}

/// What was done for requests that the store does not know.
fn others(view: &TimelineView, text: &mut String) {
    let known: Vec<u64> = view.requests.iter().map(|records| records.id.0 as u64).collect();
    for part in &view.kernel {
        let summaries = requests(&part.timeline, part.architecture);
        for summary in summaries.iter().filter(|summary| !known.contains(&summary.trace)) {
            let what = summary_text(summary, part.architecture);
            let _ = writeln!(
                text,
                "\nrequest {:016x}, which is not in the store\n  {}: {what}",
                summary.trace, part.host
            );
            // Asked for by its id: all there is.
            if view.burst.is_none() {
                let origin_ns = part.clocks.wall_ns(summary.first_ns);
                let _ = writeln!(text, "  {:>10}  {:>10}  what", "from", "takes");
                lines(items_of(part, summary.trace).iter(), origin_ns, 0, text);
            }
        }
    }
}

/// Sums over everything.
pub(super) fn overview(overview: &KernelOverview, top: usize) -> String {
    let top = if top == 0 { usize::MAX } else { top };
    let architecture = overview.architecture;
    let mut text = format!(
        "{} events of the kernel in {} windows of {} recordings, {} lost\n{} requests, {} of them whole in one \
         window{}\n",
        overview.events,
        overview.windows,
        overview.recordings,
        overview.lost,
        overview.requests.len(),
        overview.whole,
        if overview.whole > 0 { ": the sums of calls and by operation are of these" } else { "" },
    );
    let mut longest: Vec<&RequestSummary> = overview.requests.iter().collect();
    longest.sort_by_key(|request| {
        std::cmp::Reverse(request.on_cpu_ns + request.blocked_ns.values().sum::<u64>())
    });
    let longest: Vec<RequestSummary> = longest.into_iter().take(top).cloned().collect();
    text.push_str("\nWhere requests' time went, the busiest first\n");
    text.push_str(&request_table(&longest, architecture));
    let locks = |known: bool| -> u64 {
        let of = |request: &RequestSummary| {
            request
                .lock_ns
                .iter()
                .filter(|(holder, _)| !known || holder.is_some())
                .map(|(_, ns)| ns)
                .sum::<u64>()
        };
        overview.requests.iter().map(of).sum()
    };
    let (waited_ns, known_ns) = (locks(false), locks(true));
    if waited_ns > 0 {
        let share = percent(known_ns as f64 / waited_ns as f64);
        let _ = writeln!(
            text,
            "Waiting for locks: {} together; who held them is known of {} ({share})",
            took(waited_ns),
            took(known_ns)
        );
    }
    text.push_str("\nSystem calls of a request, the most frequent first\n");
    text.push_str(&calls_table(&overview.calls, architecture));
    text.push_str("\nBy operation: what a request does many times, one by one, it might do at once\n");
    let shown = &overview.operations[..overview.operations.len().min(top)];
    text.push_str(operations_table(shown, architecture).trim_end());
    text
}
